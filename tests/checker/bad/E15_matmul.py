"""nl.matmul in the orientation that does not compile."""

import nki
import nki.language as nl


@nki.jit
def kernel(x, y):
    product = nl.matmul(nl.load(x), nl.load(y))  # expect: E15-matmul
    # instead: product = nl.matmul(nl.load(x), nl.load(y), transpose_x=True)
    nl.store(x, nl.copy(product))
    return x
