"""A float into an integer tensor."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    index = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=index, value=-1.0)  # expect: E10-memset-type
    # instead: nisa.memset(dst=index, value=-1)
    return x
