"""A tensor as the bound of a loop."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y, count):
    limit = nl.load(count)

    def body(i):
        nisa.dma_copy(dst=y, src=x)

    nl.fori_loop(0, limit, body)  # expect: E18-loop-bound
    # instead: nl.fori_loop(0, nisa.register_alloc(4), body)
    return y
