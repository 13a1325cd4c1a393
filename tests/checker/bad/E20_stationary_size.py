"""A stationary tile of 256 columns."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    weight = nl.ndarray((128, 2, 256), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=weight, src=y)
    nisa.nc_matmul(dst=x, stationary=weight[:, 0, :], moving=x)  # expect: E20-size
    # instead: nisa.nc_matmul(dst=x, stationary=weight[:, 0, 0:128], moving=x)
    return x
