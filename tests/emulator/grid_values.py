"""Values of the grid: every NKI dtype as NumPy, contents for tiles, conversions, comparisons."""

import ml_dtypes
import numpy as np

from .support import NUMPY as ENGINE_TYPES

# Storage of every dtype; packed ones are bit patterns, tfloat32 is float32 with a short mantissa.
NUMPY = {
    **ENGINE_TYPES, "tfloat32": np.float32, "float8_e5m2_x4": np.uint32,
    "float8_e4m3fn_x4": np.uint32, "float4_e2m1fn_x4": np.uint16,
}  # fmt: skip
PACKED = ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4")
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
FLOATS = (
    "float32", "bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2",
    "float8_e8m0fnu",
)  # fmt: skip
# "Any valid NKI data type" of an engine that computes: footnote 2 of the table of dtypes keeps the
# packed ones for the MX instructions.
COMPUTABLE = (*FLOATS, *INTEGERS, "bool")
ALL = (*COMPUTABLE, *PACKED)
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def kind(dtype):
    """ "float", "integer", "bool" or "packed"."""
    if dtype in PACKED:
        return "packed"
    if dtype == "bool":
        return "bool"
    return "integer" if dtype in INTEGERS else "float"


def raw(array):
    """The bits of an array."""
    return np.ascontiguousarray(array).view(BITS[array.dtype.itemsize])


def round_tfloat32(values):
    """float32 to a mantissa of 10 bits, ties to even."""
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    lowest = (bits >> np.uint64(13)) & np.uint64(1)
    bits = (bits + np.uint64(0xFFF) + lowest) & np.uint64(0xFFFFE000)
    rounded = bits.astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def converted(values, dtype):
    """Results of an engine, float32, in a dtype.

    Floats round to nearest even (ml_dtypes); integers round to nearest even and saturate (NKI 0.6
    release notes), NaN gives 0, which is the emulator's choice; bool says whether it is not 0.
    """
    values = np.asarray(values).astype(np.float32)
    if dtype == "bool":
        return values != 0
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY[dtype])
        wide = np.rint(values.astype(np.float64))
        wide = np.where(np.isnan(wide), 0, np.clip(wide, limits.min, limits.max))
        return wide.astype(NUMPY[dtype])
    if dtype == "tfloat32":
        return round_tfloat32(values)
    return values.astype(NUMPY[dtype])


def f32(array):
    """An operand as an engine reads it."""
    return np.asarray(array).astype(np.float32)


# Contents. Each function gives an array of a dtype and shape.


def bits(generator, dtype, shape):
    """Any bit pattern of the dtype: NaN with payload, infinities, subnormals, all integers."""
    if dtype == "bool":
        return generator.random(shape) < 0.5
    size = np.dtype(NUMPY[dtype]).itemsize
    found = generator.integers(0, 256, (*shape, size), dtype=np.uint8).view(BITS[size])[..., 0]
    if dtype == "tfloat32":
        found &= np.uint32(0xFFFFE000)
    return found.view(NUMPY[dtype])


def normal(generator, dtype, shape):
    """Floats around 0 and integers of at most three digits; powers of two for scales."""
    if kind(dtype) in ("bool", "packed"):
        return bits(generator, dtype, shape)
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY[dtype])
        low, high = max(limits.min, -100), min(limits.max, 100)
        return generator.integers(low, high, shape, NUMPY[dtype], endpoint=True)
    if dtype == "float8_e8m0fnu":
        return np.ldexp(1.0, generator.integers(-6, 7, shape)).astype(NUMPY[dtype])
    return converted(generator.standard_normal(shape) * 2, dtype)


def eighths(generator, dtype, shape):
    """Values whose sums are exact in float32 in any order, and which every dtype holds."""
    if kind(dtype) == "float":
        choice = [-2, -1.5, -1, -0.5, -0.25, 0, 0.125, 0.5, 0.75, 1, 1.75, 3]
        if dtype == "float8_e8m0fnu":
            choice = [0.5, 1, 2, 4]
        return generator.choice(np.array(choice, np.float32), shape).astype(NUMPY[dtype])
    if dtype in INTEGERS:
        low = 0 if dtype.startswith("u") else -5
        return generator.integers(low, 9, shape, NUMPY[dtype], endpoint=True)
    return normal(generator, dtype, shape)


def powers(generator, dtype, shape):
    """Powers of two near 1, whose products are exact: 1, 2 and, of floats, 1/2 and -1."""
    if kind(dtype) == "float":
        choice = [0.5, 1, 1, 2] + ([-1, -2] if dtype != "float8_e8m0fnu" else [])
        return generator.choice(np.array(choice, np.float32), shape).astype(NUMPY[dtype])
    if dtype in INTEGERS:
        return generator.choice([1, 1, 1, 1, 2], shape).astype(NUMPY[dtype])
    return bits(generator, dtype, shape)


def positive(generator, dtype, shape):
    """Values in [1/4, 4], or positive integers."""
    if dtype in INTEGERS:
        return generator.integers(1, 100, shape, NUMPY[dtype])
    if kind(dtype) != "float":
        return bits(generator, dtype, shape)
    return converted(2.0 ** (4 * generator.random(shape) - 2), dtype)


def distinct(generator, dtype, shape):
    """A few repeated values and no NaN: what is searched."""
    if dtype in INTEGERS:
        return normal(generator, dtype, shape)
    return eighths(generator, dtype, shape)


_SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.1e-38, 3.4028235e38, -3.4028235e38, 1.0,
     -1.0, 0.5, 1.5, 2.5, 65504.0, 65520.0, 448.0, 464.0, 2.0**31, -(2.0**31), 2.0**-133, 1e4, -1e4,
     87.0, -87.5, 12.0, -13.0],
    np.float32,
)  # fmt: skip


def special(generator, dtype, shape):
    """NaN, infinities, both zeros, subnormals, the largest values; the ends of the integers."""
    if kind(dtype) in ("bool", "packed"):
        return bits(generator, dtype, shape)
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY[dtype])
        ends = np.array([limits.min, limits.max, limits.max - 1, limits.max // 2 + 1, 0, 1])
        return generator.choice(ends, shape).astype(NUMPY[dtype])
    return converted(generator.choice(_SPECIAL, shape), dtype)


def finite(generator, dtype, shape):
    """`special` without NaN and infinities."""
    found = special(generator, dtype, shape)
    if kind(dtype) == "float":
        found[~np.isfinite(f32(found))] = 1
    return found


# Comparison.


def steps(left, right):
    """How many representable values apart two arrays of one dtype are; NaN equals NaN."""
    if left.dtype == np.bool_ or np.issubdtype(left.dtype, np.integer):
        return np.abs(left.astype(np.int64) - right.astype(np.int64))
    if left.dtype == ml_dtypes.float8_e8m0fnu:
        ordered = [raw(side).astype(np.int64) for side in (left, right)]
        return np.abs(ordered[0] - ordered[1])
    half = 1 << (8 * left.dtype.itemsize - 1)
    ordered = []
    for side in (left, right):
        code = raw(side).astype(np.int64)
        ordered.append(np.where(code >= half, half - code, code))
    distance = np.abs(ordered[0] - ordered[1])
    nan = np.isnan(f32(left)), np.isnan(f32(right))
    distance[nan[0] != nan[1]] = half
    distance[nan[0] & nan[1]] = 0
    # The largest finite value and infinity are neighbours; that they differ matters.
    unlike = np.isinf(f32(left)) != np.isinf(f32(right))
    distance[unlike & ~nan[0] & ~nan[1] & (distance > 1)] = half
    return distance


def require_equal(found, expected, ulps, what, dtype=None):
    """Equal within ``ulps`` steps of ``dtype``; with 0, bit for bit but for what a NaN carries."""
    assert found.dtype == expected.dtype, f"{what}: {found.dtype}, expected {expected.dtype}"
    assert found.shape == expected.shape, f"{what}: {found.shape}, expected {expected.shape}"
    if ulps:
        # The lowest 13 bits of a tfloat32 are not part of its mantissa.
        wrong = steps(found, expected) > (ulps << 13 if dtype == "tfloat32" else ulps)
    else:
        wrong = raw(found) != raw(expected)
        if wrong.any() and not (found.dtype == np.bool_ or np.issubdtype(found.dtype, np.integer)):
            wrong &= ~(np.isnan(f32(found)) & np.isnan(f32(expected)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {wrong.size} elements differ, first at {at}: found "
            f"{found[at]!r}, expected {expected[at]!r}"
        )
