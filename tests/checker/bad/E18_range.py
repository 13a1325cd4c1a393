"""A static loop over a register."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x, count):
    register = nisa.register_alloc(0)
    nisa.register_load(register, count)
    for tile in range(register):  # expect: E18-register-conversion
    # instead: for tile in range(8):
        print(tile)
    return x
