"""dma_compute with the scales third, as in NKI 0.2."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, a, b):
    nisa.dma_compute(dst, [a, b], [1.0, 1.0], nl.add)  # expect: E14-argument-order
    # instead: nisa.dma_compute(dst, [a, b], nl.add, [1.0, 1.0])
    return dst
