"""A while_loop body that returns a tensor."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, count):
    register = nisa.register_alloc()
    left = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)

    def body(r):
        nisa.dma_copy(dst=left, src=count)
        return left  # expect: E18-while-body-result
        # instead: return r

    nl.while_loop(register, body)
    return x
