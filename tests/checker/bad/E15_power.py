"""A tile to the power of a number."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    nl.store(x, nl.power(nl.load(x), 2.0))  # expect: E15-scalar-power
    # instead: nl.store(x, nl.power(nl.load(x), nl.load(x)))
    return x
