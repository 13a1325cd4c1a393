"""A counter at module level."""

import nki

CALLS = 0


@nki.jit
def kernel(x):
    global CALLS  # expect: E21-global
    # instead: CALLED = 0
    CALLS = 1
    return x
