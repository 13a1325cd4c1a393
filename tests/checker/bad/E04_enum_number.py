"""A raw integer for dge_mode."""

import nki
import nki.isa as nisa
import nki.language as nl

MODE_NONE = 3


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x, dge_mode=MODE_NONE)  # expect: E04-enum-value
    # instead: nisa.dma_copy(dst=out, src=x, dge_mode=nisa.dge_mode.none)
    return out
