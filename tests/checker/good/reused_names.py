"""Names that hold different things in turn: nothing is certain about them."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, start, deep, result=None):
    tile = start
    for step in range(4):
        shape = (256, 128) if deep else (64, 128)
        buffer = nl.shared_hbm if step == 3 else nl.sbuf
        tile = nl.ndarray(shape, dtype=nl.int32 if deep else nl.float32, buffer=buffer)
        if step < 3:
            nisa.memset(dst=tile, value=1.0)
        else:
            nisa.dma_copy(dst=tile, src=x)
    index = 16
    index = step
    nisa.dma_copy(dst=x, src=tile[index : index + 16, :])
    if tile == None or result == None:
        return x
    return tile
