"""A string for a buffer."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, "shared_hbm")  # expect: E04-buffer-name
    # instead: out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    return out
