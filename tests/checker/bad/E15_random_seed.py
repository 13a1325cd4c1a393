"""A seed that is not a tile."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    nl.random_seed(42)  # expect: E15-random-seed
    # instead: nl.random_seed(nl.load(x))
    return x
