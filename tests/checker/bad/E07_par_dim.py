"""A block dimension before the partition axis."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    blocks = nl.ndarray((8, nl.par_dim(128), 512), dtype=nl.float32)  # expect: E07-beta-name
    # instead: blocks = nl.ndarray((128, 8, 512), dtype=nl.float32)
    print(blocks.shape)
    return x
