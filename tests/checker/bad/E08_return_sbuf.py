"""A view of an SBUF tile is returned."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.load(x)
    return tile[0:64, :]  # expect: E08-return-buffer
    # instead: return x[0:64, :]
