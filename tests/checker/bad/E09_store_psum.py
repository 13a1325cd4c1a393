"""A product, which is in PSUM, stored without a copy."""

import nki
import nki.language as nl


@nki.jit
def kernel(x, y):
    product = nl.matmul(nl.load(x), nl.load(y), transpose_x=True)
    nl.store(x, product)  # expect: E09-dma-psum
    # instead: nl.store(x, nl.copy(product))
    return x
