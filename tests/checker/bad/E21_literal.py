"""A complex number."""

import nki


@nki.jit
def kernel(x):
    print(2j)  # expect: E21-literal
    # instead: print(2.0)
    return x
