"""A variable number of parameters."""

import nki


def first(*tiles):  # expect: E21-star
# instead: def first(tiles, others):
    return tiles[0]


@nki.jit
def kernel(x, y):
    print(first(x, y))
    return x
