"""Positional-only parameters."""

import nki


@nki.jit
def kernel(x, scale, /):  # expect: E21-positional-only
# instead: def kernel(x, scale):
    return x
