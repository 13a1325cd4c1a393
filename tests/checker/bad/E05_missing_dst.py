"""An instruction called for its result, as in the beta."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x):
    y = nisa.reciprocal(x)  # expect: E05-missing-argument
    # instead: y = nisa.reciprocal(x, x)
    return y
