"""A hardware DGE copy that would have to cast."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    low = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
    high = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    mode = nisa.dge_mode.hwdge
    nisa.dma_copy(dst=high, src=low, dge_mode=mode)  # expect: E11-hwdge-cast
    # instead: nisa.dma_copy(dst=high.view(nl.bfloat16), src=low, dge_mode=mode)
    return high
