"""The result is in private HBM, one of two results."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    first = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    second = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    nisa.dma_copy(dst=first, src=x)
    nisa.dma_copy(dst=second, src=x)
    return first, second  # expect: E08-return-buffer
    # instead: return first
