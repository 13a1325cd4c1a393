"""The value of a tile as a loop count."""

import nki
import nki.language as nl


@nki.jit
def kernel(x, count):
    for i in range(nl.load(count)):  # expect: E24-tensor-value
    # instead: for i in range(nl.load(count).shape[0]):
        print(i)
    return x
