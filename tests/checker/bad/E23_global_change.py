"""A cache at module level."""

import nki

SHAPES = []


@nki.jit
def kernel(x):
    SHAPES.append(x.shape)  # expect: E23-global-change
    # instead: shapes = [x.shape]
    return x
