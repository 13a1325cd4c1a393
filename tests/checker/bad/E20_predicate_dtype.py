"""A predicate of floats."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, src, mask):
    predicate = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=predicate, src=mask)
    nisa.tensor_copy_predicated(dst, src, predicate)  # expect: E20-dtype
    # instead: nisa.tensor_copy_predicated(dst, src, predicate.view(nl.uint32))
    return dst
