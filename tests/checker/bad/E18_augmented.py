"""An augmented assignment of a register."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x):
    register = nisa.register_alloc(0)
    register += 1  # expect: E18-register-arithmetic
    # instead: nisa.register_move(register, 1)
    return x
