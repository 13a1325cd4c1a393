"""A destination of lower rank than the axes."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    flat = nl.ndarray((128, 64, 2), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_transpose(dst=flat, src=x, axes=(3, 1, 2, 0))  # expect: E12-transpose-shape
    # instead: nisa.dma_transpose(dst=flat, src=x, axes=(2, 1, 0))
    return x
