"""An exception instead of an assertion, in a method of a class that the kernel uses."""

import nki
import nki.language as nl


class Tiles(nl.NKIObject):
    def __init__(self, count):
        if count > 4:
            raise ValueError(count)  # expect: E21-raise
            # instead: assert False, count
        self.count = count

    def to_json(self):
        return [str(size) for size in range(self.count)]


@nki.jit
def kernel(x):
    tiles = Tiles(x.shape[0])
    print(tiles.count)
    return x
