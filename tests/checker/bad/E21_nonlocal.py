"""A counter of the surrounding function."""

import nki


@nki.jit
def kernel(x):
    count = 0

    def step():
        nonlocal count  # expect: E21-global
        # instead: count = 1
        count = count + 1

    step()
    return x
