"""A branch on the elements of a tile."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, flag):
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=flag)
    if tile[0, 0] > 0:  # expect: E24-tensor-value
    # instead: if tile[0, 0].shape[0] > 0:
        print("set")
    return x
