"""GpSimd reads PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    psum = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(dst=psum, stationary=x, moving=x)
    nisa.tensor_copy(tile, psum, engine=nisa.engine.gpsimd)  # expect: E20-buffer
    # instead: nisa.tensor_copy(tile, psum, engine=nisa.engine.scalar)
    return x
