"""A compute engine reads HBM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.memset(dst=out, value=0.0)  # expect: E20-buffer
    # instead: nisa.dma_copy(dst=out, src=x)
    return out
