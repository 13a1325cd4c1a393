"""mask= of the beta."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src, inside):
    nisa.tensor_copy(dst=dst, src=src, mask=inside)  # expect: E07-beta-argument
    # instead: nisa.tensor_copy(dst=dst[inside], src=src[inside])
    return dst
