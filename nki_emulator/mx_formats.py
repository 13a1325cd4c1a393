"""MX number formats: groups of small floats that share a power of two (OCP Microscaling 1.0).

A packed element holds four floats: for the 8-bit types the four bytes of a 32-bit word, for
float4_e2m1fn the four nibbles of a 16-bit word, the first float in the lowest bits. A scale byte b
means 2**(b - 127); 255 is NaN.
"""

import ml_dtypes
import numpy as np

from .dtypes import PRECISE

# Name: (float type, bits of a float).
ELEMENTS = {
    "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 8),
    "float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8),
    "float4_e2m1fn_x4": (ml_dtypes.float4_e2m1fn, 4),
}
# Stub, quantize_mx "Scale calculation": the largest exponent of the element type.
LARGEST_EXPONENT = {"float8_e5m2_x4": 15, "float8_e4m3fn_x4": 8}

SCALE_BIAS, SCALE_NAN = 127, 255
_SMALLEST_SCALE, _LARGEST_SCALE = 0, 254

_VALUES = {
    name: np.arange(1 << bits, dtype=np.uint8).view(element).astype(np.float64)
    for name, (element, bits) in ELEMENTS.items()
}
_SCALES = np.append(np.ldexp(1.0, np.arange(SCALE_NAN) - SCALE_BIAS), np.nan)


def unpack(array, name):
    """Float64 values of packed elements; a new last axis of 4."""
    bits = ELEMENTS[name][1]
    shifts = np.arange(4, dtype=array.dtype) * array.dtype.type(bits)
    codes = (array[..., None] >> shifts) & array.dtype.type((1 << bits) - 1)
    return _VALUES[name][codes]


def pack(values, name):
    """Packed 8-bit floats: float32 ``values``, whose last axis has 4 elements, rounded to even."""
    element = ELEMENTS[name][0]
    codes = np.ascontiguousarray(values.astype(element)).view(np.uint8)
    return codes.view(PRECISE[name].raw.newbyteorder("<"))[..., 0]


def scales(array):
    """Float64 scales of scale bytes."""
    return _SCALES[array]


def scale_bytes(largest, name):
    """Scale bytes for groups whose largest magnitude is ``largest`` (float32, finite).

    The exponent of the largest magnitude less the largest exponent of the element type less one:
    twice the scale of the OCP sample algorithm, so rounding never saturates. Groups too small for
    that, and groups of zeros, take the smallest scale, 2**-127.
    """
    exponents = (largest.view(np.uint32) >> np.uint32(23)).astype(np.int32) - 127
    exponents -= LARGEST_EXPONENT[name] - 1
    return np.clip(exponents + SCALE_BIAS, _SMALLEST_SCALE, _LARGEST_SCALE).astype(np.uint8)
