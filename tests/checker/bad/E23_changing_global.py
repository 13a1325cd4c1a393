"""A setting that a host function changes between launches."""

import nki

TILE = 128


def set_tile(size):
    global TILE
    TILE = size


@nki.jit
def kernel(x):
    print(x.shape[0] // TILE)  # expect: E23-changing-global
    # instead: print(x.shape[0] // 128)
    return x
