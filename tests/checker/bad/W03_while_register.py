"""while with a register."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x, count):
    register = nisa.register_alloc(1)
    while register:  # expect: W03-while-register
    # instead: while False:
        nisa.register_load(register, count)
    return x
