"""The destination has the shape of the source."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows = nl.ndarray((16, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    columns = nl.ndarray((16, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=x)
    nisa.dma_transpose(dst=columns, src=rows)  # expect: E12-transpose-shape
    # instead: nisa.dma_transpose(dst=columns.ap([[128, 128], [1, 16]]), src=rows)
    return x
