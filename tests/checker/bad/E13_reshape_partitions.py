"""A reshape that moves rows between partitions."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    half = tile.reshape((64, 128))  # expect: E13-reshape-partitions
    # instead: half = tile.reshape((128, 2, 32))
    print(half.shape)
    return x
