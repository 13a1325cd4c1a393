"""MX instructions of NeuronCore-v4: quantize_mx (Vector engine) and nc_matmul_mx (Tensor engine).

A group is 8 partitions x 4 consecutive elements and has one scale. The scales of the four groups
of a quadrant (32 partitions) lie in four partitions of the same quadrant, at the same column as the
packed element: the group of partitions 32 * q + 8 * g .. + 7 has its scale in partition
32 * q + g + offset, where offset is 0, 4, 8 or 12, so that the scales of four tensors can share a
tile (mxfp-matmul.rst, "Scale Tensor" and "Packing Scale Values"). A scale operand is the tile from
the first scale on: its partitions 0..3 belong to the first quadrant, 32..35 to the second, and the
others are neither read nor written.
"""

import numpy as np

from .. import mx_formats, rules
from ..access import read_float32, read_raw, write_raw
from ..errors import NkiValidationError
from . import array

QUADRANT = 32
GROUP_PARTITIONS, GROUP_WIDTH = 8, 4
GROUPS = QUADRANT // GROUP_PARTITIONS
SCALE_OFFSETS = (0, 4, 8, 12)
SCALE_DTYPES = ("float8_e8m0fnu", "uint8")
SOURCE_DTYPES = ("float16", "bfloat16")


def quantize_mx(session, dst, src, dst_scale, name):
    """dst, dst_scale = src in MXFP8: each group of 32 divided by its scale and rounded."""
    rules.from_generation(session, 4, "quantize_mx")
    rules.on_chip(dst, "dst")
    rules.on_chip(src, "src")
    for operand, role in ((dst, "dst"), (src, "src")):
        rules.sbuf_only(operand, role, "quantize_mx")
    if src.dtype not in SOURCE_DTYPES:
        raise NkiValidationError(
            "mx-source-dtype", f"src is {src.dtype}; quantize_mx takes float16 or bfloat16."
        )
    if dst.dtype not in mx_formats.LARGEST_EXPONENT:
        raise NkiValidationError(
            "mx-dtype",
            f"dst is {dst.dtype}; quantize_mx writes {array.listed(mx_formats.LARGEST_EXPONENT)}.",
        )
    partitions = src.shape[0]
    width = src.size // partitions
    _whole_quadrants(partitions, "src")
    if width % GROUP_WIDTH:
        raise NkiValidationError(
            "mx-free-size",
            f"src has {width} elements per partition; it must be a multiple of {GROUP_WIDTH}.",
        )
    packed = width // GROUP_WIDTH
    if dst.shape[0] != partitions or dst.size != partitions * packed:
        raise NkiValidationError(
            "mx-dst-shape",
            f"dst is {list(dst.shape)}; src {list(src.shape)} gives {partitions} partitions of "
            f"{packed} packed elements.",
        )
    _check_scale(dst_scale, "dst_scale", src, "src", packed)
    values = read_float32(src, "src")
    groups = values.reshape(partitions // GROUP_PARTITIONS, GROUP_PARTITIONS, packed, GROUP_WIDTH)
    largest = np.abs(groups).max(axis=(1, 3))
    if not np.isfinite(largest).all():
        group, column = (int(index) for index in np.argwhere(~np.isfinite(largest))[0])
        raise NkiValidationError(
            "mx-nonfinite",
            f"src holds NaN or infinity in partitions {8 * group}..{8 * group + 7}, elements "
            f"{4 * column}..{4 * column + 3}; the scale of such a group is not documented.",
        )
    codes = mx_formats.scale_bytes(largest, dst.dtype)
    factors = mx_formats.scales(codes).astype(np.float32)
    write_raw(dst, mx_formats.pack(groups / factors[:, None, :, None], dst.dtype))
    for quadrant, rows in enumerate(_scale_rows(dst_scale, partitions)):
        write_raw(rows, codes[GROUPS * quadrant : GROUPS * (quadrant + 1)])
    return session.finish("quantize_mx", "vector", (dst, dst_scale), (src,), name)


def nc_matmul_mx(
    session, dst, stationary, moving, stationary_scale, moving_scale, tile_position, tile_size,
    accumulate, name,
):  # fmt: skip
    """dst (+)= stationary.T @ moving over partitions and the four floats of an element."""
    rules.from_generation(session, 4, "nc_matmul_mx")
    array.memory(dst, (stationary, "stationary"), (moving, "moving"))
    accumulate = array.command(accumulate)
    for operand, role in ((stationary, "stationary"), (moving, "moving")):
        if operand.dtype not in mx_formats.ELEMENTS:
            raise NkiValidationError(
                "mx-dtype",
                f"{role} is {operand.dtype}; nc_matmul_mx takes "
                f"{array.listed(mx_formats.ELEMENTS)}.",
            )
    target = session.target
    partitions = stationary.shape[0]
    if moving.shape[0] != partitions:
        raise NkiValidationError(
            "matmul-contraction",
            f"stationary has {partitions} partitions and moving {moving.shape[0]}; the contraction "
            f"runs over the partitions of both, which must be equal.",
        )
    _whole_quadrants(partitions, "stationary and moving")
    row = array.row_tile(target, array.tiling(tile_position, tile_size), partitions)
    array.at_row(target, stationary, "stationary", row)
    array.at_row(target, moving, "moving", row)
    array.result_at_partition_zero(dst)
    array.sums_dtype(target, dst)
    columns, width = stationary.size // partitions, moving.size // partitions
    if columns % 2:
        raise NkiValidationError(
            "mx-stationary-even",
            f"stationary has {columns} elements per partition; nc_matmul_mx takes an even number.",
        )
    # The MX guide gives 512 as the largest moving tile; the stub, newer, gives the whole PSUM.
    array.free_sizes(target, dst, columns, width, "nc_matmul_mx")
    array.distinct(dst)
    _check_scale(stationary_scale, "stationary_scale", stationary, "stationary", columns, row)
    _check_scale(moving_scale, "moving_scale", moving, "moving", width, row)
    left = _dequantized(stationary, "stationary", stationary_scale, columns)
    right = _dequantized(moving, "moving", moving_scale, width)
    plan = dst.storage.accumulation(dst, accumulate, target)
    array.store(dst, array.product(left, right), plan)
    return session.finish(
        "nc_matmul_mx", "tensor", (dst,), (stationary, moving, stationary_scale, moving_scale),
        name, row=row, accumulate=accumulate,
    )  # fmt: skip


def _whole_quadrants(partitions, role):
    if partitions % QUADRANT:
        raise NkiValidationError(
            "mx-partitions",
            f"{role} has {partitions} partitions; MX data covers 32, 64, 96 or 128 (pad with "
            f"zeros).",
        )


def _check_scale(scale, role, data, data_role, width, row=None):
    """Buffer, dtype, shape and place of a scale operand.

    ``row`` is the partition at which ``data`` is used, None for wherever it may start.
    """
    rules.tensor(scale, role)
    rules.sbuf_only(scale, role, "an MX instruction")
    if scale.dtype not in SCALE_DTYPES:
        raise NkiValidationError(
            "mx-scale-dtype",
            f"{role} is {scale.dtype}; scales are {array.listed(SCALE_DTYPES)}.",
        )
    partitions, found = data.shape[0], scale.shape[0]
    least = partitions - QUADRANT + GROUPS
    if not least <= found <= partitions or scale.size != found * width:
        raise NkiValidationError(
            "mx-scale-shape",
            f"{role} is {list(scale.shape)}; {data_role} {list(data.shape)} has scales in 4 "
            f"partitions of each quadrant of 32, so {role} covers {least} to {partitions} "
            f"partitions, with {width} elements in each.",
        )
    rules.free_dims(scale, role)
    starts = (0, 32, 64, 96) if row is None else (row,)
    for start in starts:
        if array.may_start_at(data, start) and any(
            array.may_start_at(scale, start + offset) for offset in SCALE_OFFSETS
        ):
            return
    raise NkiValidationError(
        "mx-scale-partition",
        f"{role} starts at partition {scale.start_partition} and {data_role} at "
        f"{data.start_partition}; scales lie in the quadrant of their data, at an offset of "
        f"{', '.join(map(str, SCALE_OFFSETS))} partitions.",
    )


def _scale_rows(scale, partitions):
    """The four partitions of each quadrant that hold scales, as views."""
    return [scale[first : first + GROUPS] for first in range(0, partitions, QUADRANT)]


def _dequantized(data, role, scale, width):
    """Float64 matrix [4 * partitions, width]."""
    partitions = data.shape[0]
    values = mx_formats.unpack(read_raw(data, role).reshape(partitions, width), data.dtype)
    codes = [
        read_raw(rows, f"{role}_scale").view(np.uint8).reshape(GROUPS, width)
        for rows in _scale_rows(scale, partitions)
    ]
    factors = mx_formats.scales(np.concatenate(codes)).repeat(GROUP_PARTITIONS, axis=0)
    values *= factors[:, :, None]
    return values.transpose(0, 2, 1).reshape(GROUP_WIDTH * partitions, width)
