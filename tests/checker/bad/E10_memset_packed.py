"""Ones into a packed tensor."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    packed = nl.ndarray((128, 128), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    nisa.memset(dst=packed, value=1)  # expect: E10-memset-packed
    # instead: nisa.memset(dst=packed, value=0)
    return x
