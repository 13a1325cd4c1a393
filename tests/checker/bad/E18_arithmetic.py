"""Arithmetic on the register of a counted loop."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, y, count):
    def body(i):
        start = i * 128  # expect: E18-register-arithmetic
        # instead: start = i
        nisa.dma_copy(dst=y, src=x.ap([[512, 128], [1, 512]], scalar_offset=start))

    nl.fori_loop(0, count, body)
    return y
