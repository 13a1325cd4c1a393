"""A division of tiles, passed on as a function first."""

import nki
import nki.language as nl


@nki.jit
def kernel(x, y):
    combine = nl.divide
    nl.store(x, combine(nl.load(x), nl.load(y)))  # expect: E15-no-device-function
    # instead: nl.store(x, nl.multiply(nl.load(x), nl.reciprocal(nl.load(y))))
    return x
