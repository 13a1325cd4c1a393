"""register_move(imm=)."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x):
    register = nisa.register_alloc()
    nisa.register_move(register, imm=42)  # expect: E14-removed-argument
    # instead: nisa.register_move(register, src=42)
    return x
