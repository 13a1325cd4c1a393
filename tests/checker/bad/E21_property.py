"""A property of a class that the kernel reads."""

import nki
import nki.language as nl


class Tile(nl.NKIObject):
    rows: int = 128

    @property  # expect: E21-decorator
    # instead:
    def half(self):
        return self.rows // 2


@nki.jit
def kernel(x):
    tile = Tile()
    print(tile.half)
    return x
