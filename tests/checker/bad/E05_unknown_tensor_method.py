"""A NumPy method on a tensor."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=x, src=tile.astype(nl.float32))  # expect: E05-unknown-name
    # instead: nisa.dma_copy(dst=x, src=tile.view(nl.float32))
    return x
