"""A tuple as a key, in an assignment."""

import nki


@nki.jit
def kernel(x):
    tiles = {}
    tiles[0, 1] = x  # expect: E16-dict-key
    # instead: tiles["0, 1"] = x
    return x
