"""An engine operand that starts at partition 16."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[16:48, :], src=x)
    nisa.memset(dst=tile[16:48, :], value=0.0)  # expect: E19-start-partition
    # instead: nisa.memset(dst=tile[32:64, :], value=0.0)
    return x
