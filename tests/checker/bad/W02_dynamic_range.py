"""dynamic_range."""

import nki
import nki.isa as nisa
from nki.language import dynamic_range


@nki.jit
def kernel(x, y):
    for i in dynamic_range(4):  # expect: W02-dynamic-range
        # instead: for i in range(4):
        nisa.dma_copy(dst=y, src=x.ap([[512, 128], [1, 512]], scalar_offset=i))
    return y
