"""Loads."""

import nki.isa as nisa
import nki.language as nl

BLOCK = 128


def load_block(x, first):
    tile = nl.ndarray((BLOCK, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[first : first + BLOCK, :])
    return tile
