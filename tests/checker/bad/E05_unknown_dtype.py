"""A dtype that NKI does not have, imported by name."""

import nki
from nki.language import float64, ndarray, shared_hbm


@nki.jit
def kernel(x):
    return ndarray(x.shape, dtype=float64, buffer=shared_hbm)  # expect: E05-unknown-name
    # instead: return ndarray(x.shape, dtype=x.dtype, buffer=shared_hbm)
