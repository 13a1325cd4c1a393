"""A NamedTuple that is built in a kernel."""

from typing import NamedTuple

import nki


class Range(NamedTuple):  # expect: E16-class-base
# instead: class Range(nki.language.NKIObject):
    first: int
    last: int


@nki.jit
def kernel(x):
    print(Range(0, 4))
    return x
