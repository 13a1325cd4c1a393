"""A set."""

import nki


@nki.jit
def kernel(x, mode):
    assert mode in {"copy", "add"}  # expect: E21-set
    # instead: assert mode in ("copy", "add")
    return x
