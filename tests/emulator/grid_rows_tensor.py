"""Rows of the grid: the Tensor Engine, transposes, and the MX formats."""

import ml_dtypes
import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import (
    COLUMNS,
    CUBE,
    CUBE_PERMUTED,
    CUBE_SLICED,
    FLAT,
    FOUR_PERMUTED,
    PAIRED,
    PAIRED_SLICED,
    PLAIN,
    REPEATED,
    SOLID,
    SOME_PARTITIONS,
    STRIDED,
)
from .grid_values import ALL, NUMPY, PACKED, bits, converted, eighths, f32, raw
from .support import nisa

S, P = ("sbuf",), ("psum",)
E = nisa.engine
WIDE = ("float32", "tfloat32")
FP8 = ("float8_e4m3", "float8_e5m2")
MATMUL = ("bfloat16", "float16", *WIDE, *FP8, "float8_e4m3fn")
ONE_START = (PLAIN, COLUMNS, SOME_PARTITIONS, STRIDED, CUBE, CUBE_PERMUTED, CUBE_SLICED)
# A moving operand may repeat elements; a result needs a place of its own for each.
INPUTS = (*ONE_START, FOUR_PERMUTED, REPEATED)
COLUMNS_OF_STATIONARY = 16


# nc_transpose.


def _swapped(x, env):
    return {"dst": Result(np.ascontiguousarray(x["data"].T), True)}


def _two_bytes(dtypes, generation):
    """The tensor engine writes transposed 8-bit data as 16-bit elements: not of the same dtype."""
    return np.dtype(NUMPY[dtypes["data"]]).itemsize > 1


TRANSPOSES = [
    Row(
        "nc_transpose", (
            Operand("data", ALL, base="float32", buffers=S, values=bits, layouts=ONE_START),
            Operand("dst", ALL, base="float32", buffers=P, output=True, shape=lambda p, w: (w, p),
                    layouts=(PLAIN, COLUMNS, SOME_PARTITIONS, STRIDED)),
        ), _swapped, {"engine": E.tensor}, "tensor", same=(("data", "dst"),), legal=_two_bytes,
        widths=(24, 100), generation=3, refused_before=False,
    ),
    Row(
        "nc_transpose", (
            Operand("data", ALL, base="float32", values=bits),
            Operand("dst", ALL, base="float32", output=True, shape=lambda p, w: (w, p),
                    layouts=FLAT),
        ), _swapped, {"engine": E.vector}, "vector", same=(("data", "dst"),),
        partitions=(7, 32, 1), widths=(24, 32),
    ),
]  # fmt: skip


# nc_matmul.


def _matmul_dtypes(dtypes, generation):
    """Stub, nc_matmul "Data types"."""
    first, second = dtypes["stationary"], dtypes["moving"]
    if (first in WIDE) != (second in WIDE):
        return False
    if "float8_e4m3fn" in (first, second):
        if generation < 4 or "float8_e4m3" in (first, second):
            return False
    return dtypes["dst"] == "float32" or generation >= 4


def _product(times):
    """stationary.T @ moving, accumulated ``times`` times; every sum is rounded to dst."""

    def reference(x, env):
        product = (f32(x["stationary"]).T.astype(np.float64) @ f32(x["moving"])).astype(np.float32)
        total = np.float32(0)
        for _ in range(times):
            total = f32(converted(total + product, env.dtypes["dst"]))
        return {"dst": total}

    return reference


def _zero_one(generator, dtype, shape):
    return (generator.random(shape) < 0.5).astype(np.float32).astype(NUMPY[dtype])


def _matmul(
    label, times=1, starts=0, fills=True, call=None, partitions=(7, 33, 100, 128), values=eighths,
    generation=2, **options,
):  # fmt: skip
    operands = (
        Operand("stationary", MATMUL, buffers=S, values=values, layouts=_start(starts, INPUTS),
                shape=lambda p, w: (p, COLUMNS_OF_STATIONARY)),
        Operand("moving", MATMUL, buffers=S, values=values, layouts=_start(starts, INPUTS)),
        Operand("dst", ("float32", "bfloat16"), buffers=P, output=True, layouts=ONE_START,
                shape=lambda p, w: (COLUMNS_OF_STATIONARY, w)),
    )  # fmt: skip
    return Row(
        "nc_matmul", operands, _product(times), options, label, legal=_matmul_dtypes, call=call,
        partitions=partitions, extremes=False, fills=fills, loose=("stationary", "moving"),
        generation=generation,
    )  # fmt: skip


def _start(start, places):
    if start == 0:
        return places
    return tuple(one for one in SOLID if one.start == start)


def _twice(first, second):
    """Two matmuls into one dst."""

    def call(views, options):
        nisa.nc_matmul(**views, accumulate=first)
        nisa.nc_matmul(**views, accumulate=second)

    return call


def _identity(x, env):
    return {"moving": np.eye(env.partitions).astype(x["moving"].dtype)}


def _transposed(x, env):
    return {"dst": Result(np.ascontiguousarray(x["stationary"].T), True)}


def _transpose_dtypes(dtypes, generation):
    wide = dtypes["stationary"] in WIDE, dtypes["moving"] in WIDE
    if wide[0] != wide[1] or ("float8_e4m3fn" == dtypes["moving"] and generation < 4):
        return False
    return dtypes["stationary"] not in (*FP8, "float8_e4m3fn")


def _double_row(x, env):
    """[K, 2, M] and [K, 2, N]: the contraction runs over K and the 2."""
    left = f32(x["stationary"]).reshape(2 * env.partitions, -1)
    right = f32(x["moving"]).reshape(2 * env.partitions, -1)
    return {"dst": left.T.astype(np.float64) @ right}


PAIRS = (PAIRED, PAIRED_SLICED)
MATMULS = [
    _matmul("", fills=False),
    _matmul("overwriting", accumulate=False),
    _matmul("accumulated", 2, call=_twice(False, True)),
    _matmul("accumulated by itself", 2, fills=False, call=_twice(None, None)),
    _matmul("overwritten", 1, call=_twice(False, False)),
    _matmul("of ones and zeros", values=_zero_one, is_stationary_onezero=True,
            is_moving_onezero=True, accumulate=False),
    *(
        _matmul(f"rows {row} to {row + size - 1}", 1, row, False, None, (size, 7),
                generation=3 if size == 32 else 2, tile_position=(row, 0), tile_size=(size, 128))
        for row, size in ((32, 32), (64, 32), (96, 32), (64, 64))
    ),
    Row(
        "nc_matmul", (
            Operand("stationary", MATMUL, buffers=S, values=bits, layouts=ONE_START),
            Operand("moving", MATMUL, buffers=S, layouts=(PLAIN, COLUMNS),
                    shape=lambda p, w: (p, p)),
            Operand("dst", MATMUL, buffers=P, output=True, shape=lambda p, w: (w, p),
                    layouts=(PLAIN, COLUMNS, SOME_PARTITIONS, STRIDED)),
        ), _transposed, {"is_transpose": True}, "transposing", same=(("stationary", "dst"),),
        legal=_transpose_dtypes, prepare=_identity, fills=False, generation=3, extremes=False,
        refused_before=False,
    ),
    Row(
        "nc_matmul", (
            Operand("stationary", (*FP8, "float8_e4m3fn"), buffers=S, values=eighths,
                    layouts=PAIRS, shape=lambda p, w: (p, 2 * COLUMNS_OF_STATIONARY)),
            Operand("moving", (*FP8, "float8_e4m3fn"), buffers=S, values=eighths, layouts=PAIRS,
                    shape=lambda p, w: (p, 2 * w)),
            Operand("dst", ("float32", "bfloat16"), buffers=P, output=True, layouts=ONE_START,
                    shape=lambda p, w: (COLUMNS_OF_STATIONARY, w)),
        ), _double_row, {"perf_mode": nisa.matmul_perf_mode.double_row}, "double row",
        legal=_matmul_dtypes, fills=False, generation=3, extremes=False,
        loose=("stationary", "moving"),
    ),
]  # fmt: skip


# MX formats: groups of 8 partitions x 4 elements, scales in partitions 0..3 of each quadrant.

ELEMENT = {
    "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 8), "float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8),
    "float4_e2m1fn_x4": (ml_dtypes.float4_e2m1fn, 4),
}  # fmt: skip
LARGEST_EXPONENT = {"float8_e5m2_x4": 15, "float8_e4m3fn_x4": 8}
SCALES = ("float8_e8m0fnu", "uint8")


def _unpacked(array, dtype):
    """Four floats of each packed element, lowest bits first; a last axis of 4."""
    element, width = ELEMENT[dtype]
    codes = np.stack([(array >> (width * i)) & ((1 << width) - 1) for i in range(4)], axis=-1)
    return codes.astype(np.uint8).view(element).astype(np.float64)


def _scale_partition(partition):
    """Where the scale of a partition's group is."""
    return partition // 32 * 32 + partition % 32 // 8


def _dequantized(packed, dtype, scale):
    """[partitions * 4, width] in float64."""
    values = _unpacked(packed, dtype)
    exponents = raw(scale).astype(np.int64) - 127
    rows = [_scale_partition(partition) for partition in range(len(packed))]
    values *= np.ldexp(1.0, exponents[rows])[..., None]
    return values.transpose(0, 2, 1).reshape(-1, packed.shape[1])


def _small_elements(generator, dtype, shape):
    """Packed elements of small values, whose products and sums are exact."""
    element, width = ELEMENT.get(dtype, (None, 0))
    if element is None:
        return bits(generator, dtype, shape)
    choice = np.array([-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 3], np.float32).astype(element)
    codes = generator.choice(choice.view(np.uint8), (*shape, 4)).astype(np.uint32)
    packed = sum(codes[..., i] << np.uint32(width * i) for i in range(4))
    return packed.astype(NUMPY[dtype])


def _near_one(generator, dtype, shape):
    """Scales between 1/8 and 8."""
    if dtype not in SCALES:
        return bits(generator, dtype, shape)
    return generator.integers(124, 131, shape).astype(np.uint8).view(NUMPY[dtype])


def _mx_product(x, env):
    left, right = (
        _dequantized(x[role], env.dtypes[role], x[f"{role}_scale"])
        for role in ("stationary", "moving")
    )
    return {"dst": left.T @ right}


def _scale(role, **settings):
    """Scales in the first four partitions of each quadrant of a tile as tall as the data."""
    return Operand(role, SCALES, buffers=S, values=_near_one, layouts=MX_LAYOUTS, **settings)


MX_LAYOUTS = (PLAIN, COLUMNS, SOME_PARTITIONS, STRIDED)


def _quantized(x, env):
    dtype = env.dtypes["dst"]
    element, _ = ELEMENT[dtype]
    values = x["src"].astype(np.float64)
    partitions, width = values.shape
    groups = values.reshape(partitions // 8, 8, width // 4, 4)
    largest = np.abs(groups).max(axis=(1, 3))
    exponents = np.full(largest.shape, -127, np.int64)
    some = largest > 0
    exponents[some] = np.floor(np.log2(largest[some])) - (LARGEST_EXPONENT[dtype] - 1)
    exponents = np.clip(exponents, -127, 127)
    scaled = (groups / np.ldexp(1.0, exponents)[:, None, :, None]).astype(np.float32)
    codes = scaled.astype(element).view(np.uint8).astype(np.uint32).reshape(partitions, -1, 4)
    packed = sum(codes[..., i] << np.uint32(8 * i) for i in range(4))
    scales = np.zeros((partitions, width // 4), np.uint8)
    written = np.zeros(scales.shape, np.bool_)
    for group in range(partitions // 8):
        scales[_scale_partition(8 * group)] = exponents[group] + 127
        written[_scale_partition(8 * group)] = True
    return {
        "dst": Result(packed.astype(np.uint32), True),
        "dst_scale": Result(scales.view(NUMPY[env.dtypes["dst_scale"]]), True, written),
    }


def _groups(generator, dtype, shape):
    """Groups of very different sizes, some of zeros only."""
    sizes = generator.choice([0.0, 1e-3, 1, 100, 3e4], (shape[0] // 8 + 1, shape[1] // 4 + 1))
    sizes = np.repeat(np.repeat(sizes, 8, axis=0), 4, axis=1)[: shape[0], : shape[1]]
    values = generator.standard_normal(shape) * sizes
    if dtype in ("float16", "bfloat16"):
        return np.clip(values, -6e4, 6e4).astype(NUMPY[dtype])
    return bits(generator, dtype, shape)


MX = [
    Row(
        "nc_matmul_mx", (
            Operand("stationary", PACKED, buffers=S, values=_small_elements, layouts=ONE_START,
                    shape=lambda p, w: (p, COLUMNS_OF_STATIONARY)),
            Operand("moving", PACKED, buffers=S, values=_small_elements, layouts=ONE_START),
            _scale("stationary_scale", shape=lambda p, w: (p, COLUMNS_OF_STATIONARY)),
            _scale("moving_scale"),
            Operand("dst", ("float32", "bfloat16"), buffers=P, output=True, layouts=ONE_START,
                    shape=lambda p, w: (COLUMNS_OF_STATIONARY, w)),
        ), _mx_product, partitions=(32, 64, 96, 128), generation=4, fills=False, extremes=False,
        loose=("stationary", "moving", "stationary_scale", "moving_scale"),
    ),
    Row(
        "quantize_mx", (
            Operand("src", ("bfloat16", "float16"), buffers=S, values=_groups,
                    shape=lambda p, w: (p, 4 * w)),
            Operand("dst", ("float8_e5m2_x4", "float8_e4m3fn_x4"), buffers=S, output=True),
            Operand("dst_scale", SCALES, buffers=S, output=True, layouts=MX_LAYOUTS),
        ), _quantized, partitions=(32, 64, 128), generation=4, extremes=False, widths=(8,),
        layouts_legal=lambda places: len({one.start for one in places.values()}) == 1,
        loose=("dst_scale",),
    ),
]  # fmt: skip

ROWS = [*TRANSPOSES, *MATMULS, *MX]
