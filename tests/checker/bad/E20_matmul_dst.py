"""A matmul into SBUF."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(dst=product, stationary=x, moving=y)  # expect: E20-buffer
    # instead: nisa.nc_matmul(dst=x, stationary=product[:, 0:128], moving=product)
    return x
