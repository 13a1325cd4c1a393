"""The matrix product of Python."""

import nki
import nki.language as nl


@nki.jit
def kernel(x, y):
    nl.store(x, nl.load(x) @ nl.load(y))  # expect: E21-matmul-operator
    # instead: nl.store(x, nl.copy(nl.matmul(nl.load(x), nl.load(y), transpose_x=True)))
    return x
