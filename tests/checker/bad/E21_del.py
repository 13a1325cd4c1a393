"""del of a tile."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.load(x)
    nl.store(x, tile)
    del tile  # expect: E21-del
    # instead: tile = None
    return x
