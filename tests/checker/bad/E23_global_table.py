"""A table at module level that the kernel fills."""

import nki

TABLE = {}


@nki.jit
def kernel(x):
    TABLE["rows"] = x.shape[0]  # expect: E23-global-change
    # instead: table = {"rows": x.shape[0]}
    return x
