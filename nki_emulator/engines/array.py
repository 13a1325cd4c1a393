"""The array of processing elements: its row tiles, where operands lie, how results reach PSUM.

Partition p of SBUF feeds row p of the array, so an operand that starts at partition 64 uses the
rows from 64 on. The documentation gives the rows through ``tile_position`` and says that the
default is ``(0, 0)`` with the full array; it does not say that the start partition of the operands
selects them. The emulator therefore requires ``tile_position`` to name the row at which both
operands start. A tile of up to 64 partitions that the kernel did not give an address may be placed
by the compiler at another quadrant, so it fits any row that its size allows.

Results leave through column m of the array into partition m of PSUM. The text of `nc_matmul`
describes column tiling and its parameters exclude it (``start_column`` must be 0, ``column_size``
128); the parameters are the stricter, so dst starts at partition 0.
"""

import numpy as np

from .. import rules
from ..access import read_float32, require_writable
from ..dtypes import round_tfloat32, store_float32, to_float32
from ..errors import NkiValidationError
from ..regions import MemoryRegion
from ..registers import is_integer

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum

# Stub, nc_matmul "Data types": what the array multiplies on every generation.
WIDE = ("float32", "tfloat32")
FP8 = ("float8_e4m3", "float8_e5m2")
DTYPES = ("bfloat16", "float16", *WIDE, *FP8)


def memory(dst, *inputs):
    """Operands of the tensor engine are on the chip, inputs in SBUF and dst in PSUM.

    ``inputs`` are (operand, role) pairs.
    """
    rules.on_chip(dst, "dst")
    for operand, role in inputs:
        rules.on_chip(operand, role)
    spaces(dst, *inputs)


def spaces(dst, *inputs):
    """The tensor engine reads SBUF and writes PSUM."""
    for operand, role in inputs:
        if operand.buffer is not SBUF:
            rules.sbuf_only(operand, role, "the tensor engine")
    if dst.buffer is not PSUM:
        raise NkiValidationError(
            "matmul-dst-buffer", f"dst is in {dst.buffer.value}; the tensor engine writes PSUM."
        )


def tiling(tile_position, tile_size):
    """The row tile as ((row, 0), (rows, 128)); None if the kernel leaves it out."""
    if _absent(tile_position) and _absent(tile_size):
        return None
    pairs = [
        tuple(pair) if isinstance(pair, (tuple, list)) and all(map(is_integer, pair)) else ()
        for pair in (tile_position, tile_size)
    ]
    position, size = pairs
    if len(position) != 2 or len(size) != 2 or position[1] != 0 or size[1] != 128:
        raise NkiValidationError(
            "matmul-tile",
            f"tile_position={tile_position!r}, tile_size={tile_size!r}; give both, as integers "
            f"(row, 0) and (rows, 128), or neither: NKI 0.6 tiles rows only.",
        )
    return position, size


def _absent(pair):
    return pair is None or (isinstance(pair, (tuple, list)) and not pair)


def rows(tile):
    """Rows of the array that a row tile takes; all of them without one."""
    return 128 if tile is None else tile[1][0]


def row_tile(target, tile, partitions):
    """First row of the array that a matmul of ``partitions`` rows uses; ``tile`` as above."""
    row, rows = 0, target.matmul_contraction
    if tile is not None:
        row, rows = tile[0][0], tile[1][0]
        if rows not in target.matmul_row_sizes or row % rows or not 0 <= row < 128:
            raise NkiValidationError(
                "matmul-tile",
                f"tile_position={tile[0]}, tile_size={tile[1]}; on {target.name} a row tile has "
                f"{listed(target.matmul_row_sizes)} rows and starts at a multiple of its size "
                f"below 128.",
            )
    if partitions > rows:
        raise NkiValidationError(
            "matmul-tile",
            f"the operands have {partitions} partitions; the row tile has {rows} rows.",
        )
    return row


def at_row(target, operand, role, row):
    """The operand starts at partition ``row`` or may be placed there."""
    if not may_start_at(operand, row):
        start = operand.start_partition
        raise NkiValidationError(
            "matmul-tile-position",
            f"{role} starts at partition {start} and the matmul at row {row} of the array; "
            f"partition p feeds row p. Pass tile_position=({start}, 0) with a tile_size of "
            f"{listed(target.matmul_row_sizes[:-1])} rows, or move the operand.",
        )


def may_start_at(operand, row):
    """Whether the operand's data can lie at partition ``row``."""
    start = operand.start_partition
    if start == row:
        return True
    storage = operand.storage
    if storage.explicit or storage.shape[0] > 64:
        return False
    return (row - start) % (32 if storage.shape[0] <= 32 else 64) == 0


def result_at_partition_zero(dst):
    """dst starts at partition 0 or may be placed there."""
    if not may_start_at(dst, 0):
        raise NkiValidationError(
            "matmul-dst-partition",
            f"dst starts at partition {dst.start_partition}; results of column m go to partition "
            f"m, so dst must start at partition 0.",
        )


def free_sizes(target, dst, stationary_free, moving_free, instruction):
    """The columns fit in the array, the results in what one instruction may write, and in dst."""
    if stationary_free > target.matmul_stationary_free:
        raise NkiValidationError(
            "matmul-stationary-free",
            f"stationary has {stationary_free} elements per partition; the array has "
            f"{target.matmul_stationary_free} columns.",
        )
    limit = (
        target.matmul_moving_free_bfloat16 if dst.dtype == "bfloat16" else target.matmul_moving_free
    )
    if moving_free > limit:
        raise NkiValidationError(
            "matmul-moving-free",
            f"moving has {moving_free} elements per partition; {instruction} on {target.name} "
            f"takes at most {limit} into a {dst.dtype} dst.",
        )
    if dst.shape[0] != stationary_free or dst.size != stationary_free * moving_free:
        raise NkiValidationError(
            "matmul-dst-shape",
            f"dst is {list(dst.shape)}; stationary.T @ moving has {stationary_free} partitions "
            f"(free size of stationary) and {moving_free} elements per partition (free size of "
            f"moving).",
        )


def sums_dtype(target, dst):
    """dst holds sums in a dtype that the generation has."""
    if dst.dtype not in target.matmul_dst_dtypes:
        raise NkiValidationError(
            "matmul-dst-dtype",
            f"dst is {dst.dtype}; matmul results on {target.name} are "
            f"{listed(target.matmul_dst_dtypes)}.",
        )


def distinct(dst):
    """No element of dst is written twice by one instruction: which sum stays is not documented."""
    reach = 0
    for stride, count in sorted(zip(map(abs, dst.strides), dst.shape)):
        if count > 1:
            if stride <= reach:
                break
            reach += stride * (count - 1)
    else:
        return
    places = np.zeros((), np.int64)
    for stride, count in zip(dst.strides, dst.shape):
        places = places[..., None] + stride * np.arange(count)
    if np.unique(places).size < dst.size:
        raise NkiValidationError(
            "matmul-dst-overlap",
            f"dst {list(dst.shape)} with strides {list(dst.strides)} addresses an element more "
            f"than once; every result needs a place of its own.",
        )


def command(accumulate):
    """``accumulate`` as True, False or None."""
    if accumulate is None or accumulate is True or accumulate is False:
        return accumulate
    if isinstance(accumulate, np.bool_):
        return bool(accumulate)
    raise NkiValidationError(
        "matmul-accumulate", f"accumulate={accumulate!r}; allowed: True, False, None."
    )


def matrix(operand, role, rows, columns):
    """The operand as a float32 matrix that BLAS can read."""
    values = read_float32(operand, role)
    if operand.dtype == "tfloat32":
        # A float32 tile seen through .view may hold more bits than the type has.
        values = round_tfloat32(values)
    if values.ndim != 2:
        values = values.reshape(rows, columns)
    if values.strides[1] != 4 or values.strides[0] < 4 * columns:
        values = np.ascontiguousarray(values)
    return values


def product(left, right):
    """left.T @ right of float32 or float64 (MX data, scaled, may leave float32) -> float32.

    Each value depends on its own operands alone, as on the chip: a kernel may be compared to the
    bit with one that shares out the same work otherwise. A BLAS sums float32 in an order that
    depends on the shape, on some processors visibly. Summed in float64, the orders differ by less
    than the one rounding to float32 can show, but for a value in some hundred million.
    """
    left, right = (operand.astype(np.float64, copy=False) for operand in (left, right))
    return np.matmul(left.T, right).astype(np.float32)


def store(dst, product, plan):
    """Overwrite (``plan`` False), add to (True) or, element by element, either.

    Trainium3 guide, "BF16 Matmul Results in PSUM": a bfloat16 element is widened, the sum is made
    in float32 and rounded to nearest even. (Stochastic rounding exists on the chip and not in NKI.)
    """
    target = dst.array
    require_writable(dst)
    if product.shape != target.shape:
        product = product.reshape(target.shape)
    if plan is True:
        if dst.dtype == "float32":
            target += product
        else:
            store_float32(target, dst.info, to_float32(target, dst.info) + product)
    elif plan is False:
        store_float32(target, dst.info, product)
    else:
        added = np.where(plan, to_float32(target, dst.info), np.float32(0.0)) + product
        store_float32(target, dst.info, added)
    dst.storage.mark_matmul(dst)


def listed(words):
    """``words`` for a message: a or b or c."""
    return " or ".join(str(word) for word in words)
