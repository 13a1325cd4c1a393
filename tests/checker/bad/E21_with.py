"""A with block of another kind."""

import nki
import nki.language as nl


def timed(x):
    return x


@nki.jit
def kernel(x):
    with timed(x):  # expect: E21-with
    # instead: with nl.no_reorder():
        nl.store(x, nl.load(x))
    return x
