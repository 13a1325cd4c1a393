"""What the numeric tests compare with: conversions as the documentation describes them."""

import numpy as np

from .support import NUMPY

SMALL_FLOATS = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")
FLOATS = ("float32", "bfloat16", "float16", *SMALL_FLOATS)
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
# Every dtype that an engine computes with; float8_e8m0fnu holds scales, powers of two only.
DTYPES = (*FLOATS, *INTEGERS, "bool")


def f32(array):
    """What an engine makes of an operand: float32."""
    return np.asarray(array).astype(np.float32)


def converted(array, dtype):
    """float32 results in the dtype of dst.

    Floats round to nearest; integers round to nearest, ties to even, and saturate (NKI 0.6 release
    notes); bool says whether the value is not zero.
    """
    wide = np.asarray(array, np.float32)
    if dtype == "bool":
        return wide != 0
    if "int" in dtype:
        limits = np.iinfo(NUMPY[dtype])
        return np.clip(np.rint(wide.astype(np.float64)), limits.min, limits.max).astype(
            NUMPY[dtype]
        )
    with np.errstate(over="ignore"):
        return wide.astype(NUMPY[dtype])
