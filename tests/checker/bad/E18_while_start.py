"""A while_loop that starts from a number."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, count):
    def body(r):
        nisa.register_load(r, count)
        return r

    nl.while_loop(1, body)  # expect: E18-loop-bound
    # instead: nl.while_loop(nisa.register_alloc(1), body)
    return x
