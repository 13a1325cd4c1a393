"""A transpose that would cast."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf)
    columns = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=rows, src=x)
    nisa.nc_transpose(dst=columns, data=rows)  # expect: E20-dtype
    # instead: nisa.nc_transpose(dst=columns, data=rows.view(nl.float32))
    return x
