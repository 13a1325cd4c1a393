"""A transpose by hardware DGE of a tile of 32 rows."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows = nl.ndarray((32, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    columns = nl.ndarray((128, 32), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=x)
    mode = nisa.dge_mode.hwdge
    # instead: mode = nisa.dge_mode.unknown
    nisa.dma_transpose(dst=columns, src=rows, dge_mode=mode)  # expect: E12-transpose-hwdge
    return x
