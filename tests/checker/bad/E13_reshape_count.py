"""A reshape that loses elements."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((4, 128, 60), dtype=nl.float32, buffer=nl.shared_hbm)
    return out.reshape((512, 64))  # expect: E13-reshape-count
    # instead: return out.reshape((512, 60))
