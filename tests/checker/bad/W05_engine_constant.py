"""An engine by its old constant."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src):
    nisa.tensor_copy(dst=dst, src=src, engine=nisa.vector_engine)  # expect: W05-engine-constant
    # instead: nisa.tensor_copy(dst=dst, src=src, engine=nisa.engine.vector)
    return dst
