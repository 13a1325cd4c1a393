"""jit(mode=)."""

import nki


@nki.jit(mode="trace")  # expect: W08-jit-mode
# instead: @nki.jit
def kernel(x):
    return x
