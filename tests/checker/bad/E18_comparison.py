"""A register compared with a number."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    def body(i):
        first = i == 0  # expect: E18-register-arithmetic
        # instead: first = None
        nisa.nc_matmul(dst=y, stationary=x, moving=x, accumulate=first)

    nl.fori_loop(0, 4, body)
    return x
