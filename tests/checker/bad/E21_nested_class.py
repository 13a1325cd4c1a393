"""A class inside the kernel."""

import nki
import nki.language as nl


class Tile(nl.NKIObject):
    rows: int = 128


@nki.jit
def kernel(x):
    class Wide(Tile):  # expect: E21-nested-class
        # instead: if x.ndim == 2:
        rows: int = 256

    print(Tile().rows)
    return x
