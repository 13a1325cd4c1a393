"""dst by position and by keyword."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src):
    nisa.tensor_copy(
        dst,
        src,
        dst=dst,  # expect: E05-repeated-argument
        # instead: engine=nisa.engine.vector,
    )
    return dst
