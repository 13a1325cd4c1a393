"""A tile of 256 rows, by a constant and the default buffer."""

import nki
import nki.language as nl

ROWS = 2 * nl.tile_size.pmax


@nki.jit
def kernel(x):
    tile = nl.ndarray((ROWS, 512), dtype=x.dtype)  # expect: E19-partitions
    # instead: tile = nl.ndarray((ROWS // 2, 512), dtype=x.dtype)
    print(tile.shape)
    return x
