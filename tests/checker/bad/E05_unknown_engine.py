"""A member that the enum does not have."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src):
    nisa.tensor_copy(dst=dst, src=src, engine=nisa.engine.activation)  # expect: E05-unknown-name
    # instead: nisa.tensor_copy(dst=dst, src=src, engine=nisa.engine.scalar)
    return dst
