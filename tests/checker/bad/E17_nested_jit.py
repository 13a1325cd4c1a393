"""A helper that is decorated although a kernel calls it."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
# instead:
def load(x):
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


@nki.jit
def kernel(x):
    tile = load(x)  # expect: E17-nested-jit
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
