"""A shape given as several arguments."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    return out.reshape(64, 128)  # expect: E05-too-many-arguments
    # instead: return out.reshape((64, 128))
