"""A branch on a register."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x, count):
    register = nisa.register_alloc()
    nisa.register_load(register, count)
    if not register:  # expect: E18-register-in-condition
    # instead: if register == None:
        print("nothing to do")
    return x
