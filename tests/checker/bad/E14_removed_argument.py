"""dma_copy no longer accumulates."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, src):
    nisa.dma_copy(dst, src, dst_rmw_op=nl.add)  # expect: E14-removed-argument
    # instead: nisa.dma_compute(dst, [dst, src], reduce_op=nl.add)
    return dst
