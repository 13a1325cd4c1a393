"""An assignment in a condition."""

import nki


@nki.jit
def kernel(x):
    if (rows := x.shape[0]) > 128:  # expect: E21-walrus
    # instead: if x.shape[0] > 128:
        print("many rows")
    return x
