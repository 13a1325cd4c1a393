"""A string for perf_mode, in one arm of a conditional."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, stationary, moving, fast):
    nisa.nc_matmul(
        dst=dst,
        stationary=stationary,
        moving=moving,
        perf_mode="double_row" if fast else nisa.matmul_perf_mode.none,  # expect: E04-enum-value
        # instead: perf_mode=nisa.matmul_perf_mode.double_row,
    )
