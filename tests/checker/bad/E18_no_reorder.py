"""A dynamic loop in a no_reorder block."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    def body(i):
        nisa.dma_copy(dst=y, src=x)

    with nl.no_reorder():
        nl.fori_loop(0, 4, body)  # expect: E18-loop-in-no-reorder
        # instead: body(0)
    return y
