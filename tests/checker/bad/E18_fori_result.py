"""A fori_loop body that returns something."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    def body(i):
        nisa.dma_copy(dst=y, src=x)
        return y  # expect: E18-fori-body-result
        # instead: return

    nl.fori_loop(0, 4, body)
    return y
