"""A DMA accumulation reads PSUM through its list of sources."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    psum = nl.zeros((128, 512), nl.float32, nl.psum)
    nisa.dma_compute(y, [x, psum], reduce_op=nl.add)  # expect: E09-dma-psum
    # instead: nisa.dma_compute(y, [x, y], reduce_op=nl.add)
    return y
