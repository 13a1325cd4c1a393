"""A permutation that the DMA does not have."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src):
    nisa.dma_transpose(dst=dst, src=src, axes=(0, 2, 1))  # expect: E12-transpose-axes
    # instead: nisa.dma_transpose(dst=dst, src=src, axes=(2, 1, 0))
    return dst
