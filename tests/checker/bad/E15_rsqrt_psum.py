"""nl.rsqrt of PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    psum = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=psum, stationary=x, moving=y)
    nl.store(x, nl.rsqrt(psum))  # expect: E15-rsqrt-psum
    # instead: nl.store(x, nl.rsqrt(nl.copy(psum)))
    return x
