"""tensor_copy_dynamic_src is gone."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src, index):
    nisa.tensor_copy_dynamic_src(dst, src, index)  # expect: E14-removed-function
    # instead: nisa.tensor_copy(dst, src.ap([[64, 128], [1, 1]], scalar_offset=index))
    return dst
