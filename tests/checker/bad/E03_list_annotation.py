"""A kernel argument annotated as a list, under a decorator with arguments."""

from typing import List, Optional

from nki import jit


@jit(debug=True)
def kernel(
    x,
    order: Optional[List[int]] = None,  # expect: E03-list-argument
    # instead: order: Optional[tuple] = None,
):
    return x
