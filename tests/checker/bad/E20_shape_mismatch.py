"""A copy between tiles of two sizes."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    wide = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    narrow = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=wide, src=x)
    nisa.tensor_copy(dst=narrow, src=wide)  # expect: E20-size
    # instead: nisa.tensor_copy(dst=narrow, src=wide[:, 256:512])
    return x
