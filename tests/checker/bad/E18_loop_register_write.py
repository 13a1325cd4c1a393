"""A counted loop whose body writes its register."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y):
    def body(i):
        nisa.dma_copy(dst=y, src=x)
        nisa.register_move(i, 0)  # expect: E18-loop-register-write
        # instead: nisa.register_move(nisa.register_alloc(), 0)

    nl.fori_loop(0, 4, body)
    return y
