"""A generator expression as an argument."""

import nki


@nki.jit
def kernel(x):
    print(max(size // 2 for size in x.shape))  # expect: E21-comprehension
    # instead: print(max(x.shape))
    return x
