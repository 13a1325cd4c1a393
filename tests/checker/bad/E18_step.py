"""A loop that counts down."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    def body(i):
        nisa.dma_copy(dst=y, src=x)

    nl.fori_loop(4, 0, body, step=-1)  # expect: E18-loop-step
    # instead: nl.fori_loop(0, 4, body, step=1)
    return y
