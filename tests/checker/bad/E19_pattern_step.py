"""Every other partition by an access pattern."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    odd = tile.ap(pattern=[[1024, 64], [1, 512]], offset=512)  # expect: E19-partition-step
    # instead: odd = tile.ap(pattern=[[512, 64], [1, 512]], offset=512)
    nisa.dma_copy(dst=x, src=odd)
    return x
