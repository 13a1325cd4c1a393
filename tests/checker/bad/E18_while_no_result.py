"""A while_loop body that returns nothing."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, count):
    register = nisa.register_alloc()
    nisa.register_load(register, count)

    def body(r):  # expect: E18-while-body-result
        nisa.register_load(r, count)
        # instead: return r

    nl.while_loop(register, body)
    return x
