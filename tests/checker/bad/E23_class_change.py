"""A counter kept on a class."""

import nki
import nki.language as nl


class Counter(nl.NKIObject):
    count: int = 0


@nki.jit
def kernel(x):
    Counter.count = 1  # expect: E23-global-change
    # instead: counter = Counter(1)
    return x
