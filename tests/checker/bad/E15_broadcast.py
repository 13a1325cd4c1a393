"""Tiles of two shapes in one operation."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, row):
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    scale = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=scale, src=row)
    nl.store(x, nl.multiply(tile, scale))  # expect: E15-broadcast
    # instead: nl.store(x, nl.multiply(tile, nl.broadcast_to(scale, (128, 512))))
    return x
