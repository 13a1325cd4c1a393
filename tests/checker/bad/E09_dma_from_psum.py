"""A DMA reads PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, weight):
    psum = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=psum, stationary=x, moving=weight)
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=psum[:, 0:512])  # expect: E09-dma-psum
    # instead: nisa.dma_copy(dst=out, src=x[:, 0:512])
    return out
