"""A tensor of the loop body is read after the loop."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y, count):
    for i in nl.dynamic_range(count):  # expect: W02-dynamic-range
        # instead: for i in range(8):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[512, 128], [1, 512]], scalar_offset=i))
    nisa.dma_copy(dst=y, src=tile)  # expect: E18-loop-tensor
    return y
