"""A loop body that wants more than the register."""

import nki
import nki.isa as nisa
import nki.language as nl


def body(i, x, y):
    nisa.dma_copy(dst=y, src=x)


@nki.jit
def kernel(x, y):
    def copy_once(i):
        body(i, x, y)

    copy_once(0)
    nl.fori_loop(0, 4, body)  # expect: E18-loop-body
    # instead: nl.fori_loop(0, 4, copy_once)
    return y
