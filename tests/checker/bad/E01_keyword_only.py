"""A kernel with a parameter that can only be given by name."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copy(x, *, scale=1.0):  # expect: E01-keyword-only
# instead: def copy(x, scale=1.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out
