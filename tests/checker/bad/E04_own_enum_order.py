"""Members of a user's Enum compared by order."""

from enum import Enum

import nki


class Layout(Enum):
    ROWS = 1
    COLUMNS = 2


@nki.jit
def kernel(x, layout):
    if layout > Layout.ROWS:  # expect: E04-enum-comparison
    # instead: if layout == Layout.COLUMNS:
        print("columns")
    return x
