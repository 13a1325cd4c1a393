"""An old name of a tile size."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    print(nl.tile_size.psum_fmax)  # expect: W04-tile-size-name
    # instead: print(nl.tile_size.psum_bank_fmax)
    return x
