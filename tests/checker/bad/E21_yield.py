"""A generator as a helper."""

import nki


def tiles(size):
    for first in range(0, size, 128):
        yield first  # expect: E21-yield
        # instead: return [first]


@nki.jit
def kernel(x):
    for first in tiles(x.shape[0]):
        print(first)
    return x
