"""MX formats and instructions, written from the documentation alone.

Numbers are Python floats and float64; nothing here uses the emulator, and rounding does not use
ml_dtypes. Sources: the NKI stub (`quantize_mx`, `nc_matmul_mx`), mxfp-matmul.rst, and the OCP
Microscaling formats (E5M2, E4M3, E2M1 elements, E8M0 scales).
"""

import math

import numpy as np

# name: (exponent bits, mantissa bits, bias, largest exponent, bits of an element).
FORMATS = {
    "float8_e5m2_x4": (5, 2, 15, 15, 8),
    "float8_e4m3fn_x4": (4, 3, 7, 8, 8),
    "float4_e2m1fn_x4": (2, 1, 1, 2, 4),
}


def value(code, name):
    """The number that an element's bits stand for."""
    exponent_bits, mantissa_bits, bias, _, bits = FORMATS[name]
    sign = -1.0 if code >> (bits - 1) else 1.0
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    if name == "float8_e5m2_x4" and exponent == 31:
        return math.nan if mantissa else sign * math.inf
    if name == "float8_e4m3fn_x4" and exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def code_of(number, name):
    """The bits of the element nearest to ``number`` (ties to even); it must be in range."""
    exponent_bits, mantissa_bits, bias, largest, bits = FORMATS[name]
    sign = (1 << (bits - 1)) if math.copysign(1.0, number) < 0 else 0
    magnitude = abs(number)
    if magnitude == 0:
        return sign
    exponent = max(math.frexp(magnitude)[1] - 1, 1 - bias)
    steps = round(magnitude / 2.0 ** (exponent - mantissa_bits))  # Python rounds ties to even
    # Counted in steps, the codes above a power of two continue those below it.
    code = steps + ((exponent + bias - 1) << mantissa_bits)
    assert value(code, name) < 2.0 ** (largest + 1), "saturated"
    return sign | code


def pack(codes, name):
    """[..., 4] element codes as packed integers, the first element in the lowest bits."""
    bits = FORMATS[name][4]
    dtype = np.uint32 if bits == 8 else np.uint16
    shifts = (np.arange(4) * bits).astype(np.uint64)
    return (codes.astype(np.uint64) << shifts).sum(axis=-1).astype(dtype)


def unpack(packed, name):
    """Float64 values of packed integers, with a new last axis of 4."""
    bits = FORMATS[name][4]
    codes = (packed[..., None].astype(np.int64) >> (np.arange(4) * bits)) & ((1 << bits) - 1)
    table = np.array([value(code, name) for code in range(1 << bits)])
    return table[codes]


def scale_partition(group):
    """Partition of a scale tile where the scales of group row ``group`` (8 partitions) are."""
    return 32 * (group // 4) + group % 4


def quantize(x, name):
    """([P, F/4] packed, [P/8, F/4] scale bytes) of finite x [P, F]."""
    partitions, width = x.shape
    x = x.astype(np.float64)
    codes = np.zeros((partitions, width // 4, 4), np.int64)
    scales = np.zeros((partitions // 8, width // 4), np.uint8)
    for group in range(partitions // 8):
        for column in range(width // 4):
            block = x[8 * group : 8 * group + 8, 4 * column : 4 * column + 4]
            largest = np.abs(block).max()
            exponent = -127
            if largest > 0:
                exponent = math.frexp(largest)[1] - 1 - (FORMATS[name][3] - 1)
            exponent = max(exponent, -127)
            scales[group, column] = exponent + 127
            for p, e in np.ndindex(8, 4):
                scaled = math.ldexp(block[p, e], -exponent)
                codes[8 * group + p, column, e] = code_of(scaled, name)
    return pack(codes, name), scales


def dequantize(packed, scales, name):
    """[P, F, 4] float64 of packed [P, F] and scale bytes [P/8, F]."""
    factors = np.where(scales == 255, np.nan, np.exp2(scales.astype(np.float64) - 127))
    return unpack(packed, name) * np.repeat(factors, 8, axis=0)[:, :, None]


def spread(scales, offset=0, fill=0):
    """Scale bytes [P/8, F] in a tile [P, F]: four partitions of each quadrant, from ``offset``."""
    tile = np.full((8 * len(scales), scales.shape[1]), fill, np.uint8)
    for group, row in enumerate(scales):
        tile[scale_partition(group) + offset] = row
    return tile
