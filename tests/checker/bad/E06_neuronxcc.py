"""A helper imported from the old namespace is used in the kernel."""

import nki
from neuronxcc.nki import language as nl  # expect: E06-neuronxcc
# instead: import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out
