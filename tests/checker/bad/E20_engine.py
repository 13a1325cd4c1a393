"""The tensor engine cannot copy."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src):
    nisa.tensor_copy(dst=dst, src=src, engine=nisa.engine.tensor)  # expect: E20-engine
    # instead: nisa.tensor_copy(dst=dst, src=src, engine=nisa.engine.gpsimd)
    return dst
