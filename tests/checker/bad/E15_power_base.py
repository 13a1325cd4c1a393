"""A number to the power of a tile."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    nl.store(x, nl.power(2.0, nl.load(x)))  # expect: E15-scalar-power
    # instead: nl.store(x, nl.exp(nl.multiply(nl.load(x), 0.6931472)))
    return x
