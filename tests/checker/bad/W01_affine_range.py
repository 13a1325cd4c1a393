"""A range of the beta."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    for i in nl.affine_range(4):  # expect: W01-range-alias
    # instead: for i in range(4):
        print(i)
    return x
