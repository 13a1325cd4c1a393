"""A function with a dynamic loop called in a no_reorder block."""

import nki
import nki.isa as nisa
import nki.language as nl


def repeat(x, y):
    def body(i):
        nisa.dma_copy(dst=y, src=x)

    nl.fori_loop(0, 4, body)


def twice(x, y):
    repeat(x, y)
    repeat(y, x)


@nki.jit
def kernel(x, y):
    with nl.no_reorder():
        twice(x, y)  # expect: E18-loop-in-no-reorder
        # instead: nisa.dma_copy(dst=y, src=x)
    return y
