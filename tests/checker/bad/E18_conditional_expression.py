"""A conditional expression on a loop register."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    def body(i):
        source = x if i else y  # expect: E18-register-in-condition
        # instead: source = x
        nisa.dma_copy(dst=y, src=source)

    nl.fori_loop(0, 8, body)
    return y
