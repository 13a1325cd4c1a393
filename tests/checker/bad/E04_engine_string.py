"""A string for an engine, by position."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src):
    nisa.tensor_copy(dst, src, "vector")  # expect: E04-enum-value
    # instead: nisa.tensor_copy(dst, src, nisa.engine.vector)
