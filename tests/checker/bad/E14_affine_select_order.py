"""affine_select with the offset third, as in NKI 0.2."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, tile):
    nisa.affine_select(dst, [[1, 512]], 0, 1, tile, -1.0)  # expect: E14-argument-order
    # instead: nisa.affine_select(dst, [[1, 512]], 1, tile, -1.0, offset=0)
    return dst
