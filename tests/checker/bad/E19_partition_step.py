"""Every other partition by a slice."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=x, src=tile[::2, :])  # expect: E19-partition-step
    # instead: nisa.dma_copy(dst=x, src=tile[::1, :])
    return x
