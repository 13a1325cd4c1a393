"""The allocator of the beta."""

import nki
import nki.compiler as ncc
import nki.language as nl


@nki.jit
def kernel(x):
    where = ncc.sbuf.mod_alloc(base_addr=0)  # expect: E07-beta-name
    # instead: where = nl.sbuf
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=where)
    print(tile.shape)
    return x
