"""A list comprehension."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    tiles = [nl.load(x[i]) for i in range(4)]  # expect: E21-comprehension
    # instead: tiles = [nl.load(x[0]), nl.load(x[1])]
    print(tiles)
    return x
