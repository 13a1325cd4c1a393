"""A class that inherits from another class of the kernel."""

import nki
import nki.language as nl


class Shape(nl.NKIObject):
    rows: int = 128


class Tile(Shape):  # expect: E16-class-base
# instead: class Tile(nl.NKIObject):
    columns: int = 512


@nki.jit
def kernel(x):
    tile = Tile()
    print(tile.columns)
    return x
