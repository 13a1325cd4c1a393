"""Tensor Engine: matrix multiplication and transposition, SBUF to PSUM.

Partition p of SBUF feeds row p of the array of processing elements, so an operand that starts at
partition 64 uses the rows from 64 on. The documentation gives the rows through ``tile_position``
and says that the default is ``(0, 0)`` with the full array; it does not say that the start
partition of the operands selects them. The emulator therefore requires ``tile_position`` to name
the row at which both operands start. A tile of up to 64 partitions that the kernel did not give an
address may be placed by the compiler at another quadrant, so it fits any row that its size allows.
Results leave through column m of the array into partition m of PSUM; column tiling is not part of
NKI 0.6 (``start_column`` must be 0), so dst starts at partition 0.
"""

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, require_writable, write_raw
from ..dtypes import store_float32, to_float32
from ..enums import engine as engines
from ..enums import matmul_perf_mode
from ..errors import NkiNotImplemented, NkiValidationError
from ..regions import MemoryRegion

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum

WIDE = ("float32", "tfloat32")
FP8 = ("float8_e4m3", "float8_e5m2")
FP8_OCP = "float8_e4m3fn"
MATMUL_DTYPES = ("bfloat16", "float16", *WIDE, *FP8)


def nc_matmul(
    session, dst, stationary, moving, is_stationary_onezero, is_moving_onezero, is_transpose,
    accumulate, tile_position, tile_size, perf_mode, name,
):  # fmt: skip
    """dst (+)= stationary.T @ moving, float32 accumulation."""
    rules.on_chip(dst, "dst")
    rules.on_chip(stationary, "stationary")
    rules.on_chip(moving, "moving")
    if dst.buffer is not PSUM:
        raise NkiValidationError(
            "matmul-dst-buffer", f"dst is in {dst.buffer.value}; the tensor engine writes PSUM."
        )
    rules.sbuf_only(stationary, "stationary", "the tensor engine")
    rules.sbuf_only(moving, "moving", "the tensor engine")
    double_row = perf_mode is matmul_perf_mode.double_row
    if not double_row:
        rules.one_of(perf_mode, "perf_mode", tuple(matmul_perf_mode))
    if accumulate is not None:
        if not isinstance(accumulate, (bool, np.bool_)):
            raise NkiValidationError(
                "matmul-accumulate", f"accumulate={accumulate!r}; allowed: True, False, None."
            )
        accumulate = bool(accumulate)
    rows = _check_operands(session, stationary, moving, double_row)
    row = _check_tile(session, tile_position, tile_size, stationary, moving)
    columns, width = _check_sizes(session, dst, stationary, moving, double_row)
    if is_transpose:
        _transpose(session, dst, stationary, moving, accumulate, double_row)
    else:
        _check_dst(session, dst)
        left = _matrix(stationary, "stationary", rows, columns)
        right = _matrix(moving, "moving", rows, width)
        _multiply(session, dst, left, right, accumulate)
    return session.finish(
        "nc_matmul", "tensor", (dst,), (stationary, moving), name, row=row,
        transpose=is_transpose, perf_mode=perf_mode.value, accumulate=accumulate,
    )  # fmt: skip


def _check_operands(session, stationary, moving, double_row):
    """Contraction and dtype rules; returns the length of the contraction."""
    partitions = stationary.shape[0]
    if moving.shape[0] != partitions:
        raise NkiValidationError(
            "matmul-contraction",
            f"stationary has {partitions} partitions and moving {moving.shape[0]}; the contraction "
            f"runs over the partitions of both, which must be equal.",
        )
    allowed = MATMUL_DTYPES + ((FP8_OCP,) if session.target.generation >= 4 else ())
    first, second = stationary.dtype, moving.dtype
    for dtype, role in ((first, "stationary"), (second, "moving")):
        if dtype not in allowed:
            raise NkiValidationError(
                "matmul-dtype",
                f"{role} is {dtype}; nc_matmul on {session.target.name} takes "
                f"{', '.join(allowed)}.",
            )
    if (first in WIDE) != (second in WIDE):
        raise NkiValidationError(
            "matmul-dtype-mix",
            f"stationary is {first} and moving {second}; float32 and tfloat32 go only with "
            f"float32 and tfloat32.",
        )
    if {first, second} == {"float8_e4m3", FP8_OCP}:
        raise NkiValidationError(
            "matmul-dtype-mix", "float8_e4m3 and float8_e4m3fn cannot be mixed in one matmul."
        )
    if not double_row:
        return partitions
    rules.from_generation(session, 3, "perf_mode double_row")
    for operand, role in ((stationary, "stationary"), (moving, "moving")):
        if operand.dtype not in (*FP8, FP8_OCP) or len(operand.shape) < 3 or operand.shape[1] != 2:
            raise NkiValidationError(
                "matmul-double-row",
                f"{role} is {operand.dtype}{list(operand.shape)}; double_row takes float8 operands "
                f"of shape [K, 2, ...].",
            )
    return 2 * partitions


def _check_tile(session, tile_position, tile_size, stationary, moving):
    """Row tiling; returns the first row of the array that is used."""
    position, size = tuple(tile_position or ()), tuple(tile_size or ())
    if bool(position) != bool(size):
        raise NkiValidationError(
            "matmul-tile", "tile_position and tile_size must both be given or both be left out."
        )
    row, rows = 0, session.target.matmul_contraction
    if position:
        if len(position) != 2 or len(size) != 2 or position[1] != 0 or size[1] != 128:
            raise NkiValidationError(
                "matmul-tile",
                f"tile_position={tile_position!r}, tile_size={tile_size!r}; expected (row, 0) and "
                f"(rows, 128): NKI 0.6 tiles rows only.",
            )
        row, rows = position[0], size[0]
        if rows not in session.target.matmul_row_sizes or row % rows or not 0 <= row < 128:
            raise NkiValidationError(
                "matmul-tile",
                f"tile_position={tile_position!r}, tile_size={tile_size!r}; on "
                f"{session.target.name} a row tile has {_listed(session.target.matmul_row_sizes)} "
                f"rows and starts at a multiple of its size below 128.",
            )
    if stationary.shape[0] > rows:
        raise NkiValidationError(
            "matmul-tile",
            f"the operands have {stationary.shape[0]} partitions; the row tile has {rows} rows.",
        )
    for operand, role in ((stationary, "stationary"), (moving, "moving")):
        if not _may_start_at(operand, row):
            start = operand.start_partition
            raise NkiValidationError(
                "matmul-tile-position",
                f"{role} starts at partition {start} and the matmul at row {row} of the array; "
                f"partition p feeds row p. Pass tile_position=({start}, 0) with a tile_size of "
                f"{_listed(session.target.matmul_row_sizes[:-1])} rows, or move the operand.",
            )
    return row


def _may_start_at(operand, row):
    """Whether the operand's data can lie at partition ``row``."""
    start = operand.start_partition
    storage = operand.storage
    if start == row:
        return True
    if storage.explicit or storage.shape[0] > 64:
        return False
    base = row - start
    return base >= 0 and base % (32 if storage.shape[0] <= 32 else 64) == 0


def _listed(sizes):
    return " or ".join(str(size) for size in sizes)


def _check_sizes(session, dst, stationary, moving, double_row):
    """Free sizes; returns (stationary columns, moving columns)."""
    target = session.target
    partitions = stationary.shape[0]
    share = 2 * partitions if double_row else partitions
    columns, width = stationary.size // share, moving.size // share
    if columns > target.matmul_stationary_free:
        raise NkiValidationError(
            "matmul-stationary-free",
            f"stationary has {columns} elements per partition; the array has "
            f"{target.matmul_stationary_free} columns.",
        )
    limit = (
        target.matmul_moving_free_bfloat16 if dst.dtype == "bfloat16" else target.matmul_moving_free
    )
    if width > limit:
        raise NkiValidationError(
            "matmul-moving-free",
            f"moving has {width} elements per partition; nc_matmul on {target.name} takes at most "
            f"{limit} into a {dst.dtype} dst.",
        )
    if dst.shape[0] != columns or dst.size != columns * width:
        raise NkiValidationError(
            "matmul-dst-shape",
            f"dst is {list(dst.shape)}; stationary.T @ moving has {columns} partitions (free size "
            f"of stationary) and {width} elements per partition (free size of moving).",
        )
    if not _may_start_at(dst, 0):
        raise NkiValidationError(
            "matmul-dst-partition",
            f"dst starts at partition {dst.start_partition}; results of column m go to partition "
            f"m, so dst must start at partition 0.",
        )
    return columns, width


def _check_dst(session, dst):
    if dst.dtype not in session.target.matmul_dst_dtypes:
        raise NkiValidationError(
            "matmul-dst-dtype",
            f"dst is {dst.dtype}; matmul results on {session.target.name} are "
            f"{' or '.join(session.target.matmul_dst_dtypes)}.",
        )


def _matrix(operand, role, rows, columns):
    """The operand as a float32 matrix that BLAS can read."""
    matrix = read_float32(operand, role)
    if matrix.ndim != 2:
        matrix = matrix.reshape(rows, columns)
    if matrix.strides[1] != 4 or matrix.strides[0] < 4 * columns:
        matrix = np.ascontiguousarray(matrix)
    return matrix


def _multiply(session, dst, left, right, accumulate):
    plan = dst.storage.accumulation(dst, accumulate, session.target)
    target = dst.array
    require_writable(dst)
    if plan is False and dst.dtype == "float32" and target.ndim == 2:
        np.matmul(left.T, right, out=target)
    else:
        product = np.matmul(left.T, right).reshape(target.shape)
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


def _transpose(session, dst, stationary, moving, accumulate, double_row):
    """is_transpose=True: dst = stationary transposed, bit for bit; moving is the identity."""
    if accumulate is True:
        raise NkiValidationError(
            "matmul-transpose", "is_transpose=True copies bits; it cannot accumulate."
        )
    if double_row:
        raise NkiValidationError(
            "matmul-transpose", "is_transpose=True cannot be combined with double_row."
        )
    if dst.dtype != stationary.dtype:
        raise NkiValidationError(
            "transpose-dtype",
            f"dst is {dst.dtype} and stationary {stationary.dtype}; a transpose keeps the dtype.",
        )
    size = stationary.shape[0]
    identity = read_float32(moving, "moving").reshape(size, -1)
    if identity.shape[1] != size or not np.array_equal(identity, np.eye(size, dtype=np.float32)):
        raise NkiValidationError(
            "matmul-transpose-identity",
            f"is_transpose=True takes the [{size}, {size}] identity as moving operand.",
        )
    _write_transposed(dst, stationary, "stationary")


def _write_transposed(dst, data, role):
    if data.info.nbytes == 1:
        raise NkiNotImplemented(
            "a tensor-engine transpose of 8-bit data",
            "The chip writes it as 16-bit elements with zero upper bytes.",
        )
    raw = data.info.raw
    bits = read_raw(data, role).view(raw).reshape(data.shape[0], -1)
    require_writable(dst)
    target = dst.array.view(raw)
    target[...] = bits.T.reshape(target.shape)
    dst.storage.mark_matmul(dst)


def nc_transpose(session, dst, data, engine, name):
    """dst = data with partition and flattened free axis swapped."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.one_of(engine, "engine", (engines.unknown, engines.tensor, engines.vector))
    if engine is engines.unknown:
        fits = dst.buffer is PSUM and data.buffer is SBUF
        engine = engines.tensor if fits else engines.vector
    if dst.dtype != data.dtype:
        raise NkiValidationError(
            "transpose-dtype",
            f"dst is {dst.dtype} and data {data.dtype}; nc_transpose keeps the dtype.",
        )
    partitions, width = data.shape[0], data.size // data.shape[0]
    if dst.shape[0] != width or dst.size != data.size:
        raise NkiValidationError(
            "transpose-shape",
            f"dst is {list(dst.shape)}; transposing data {list(data.shape)} gives {width} "
            f"partitions of {partitions} elements.",
        )
    if engine is engines.tensor:
        _check_tensor_transpose(dst, data)
        _write_transposed(dst, data, "data")
    else:
        limit = session.target.vector_transpose
        if partitions > limit or width > limit:
            raise NkiValidationError(
                "transpose-size",
                f"data is {partitions} x {width}; the Vector engine transposes at most "
                f"{limit} x {limit}. The tensor engine (SBUF to PSUM) takes 128 x 128.",
            )
        bits = read_raw(data, "data").reshape(partitions, width)
        write_raw(dst, bits.T.reshape(dst.shape))
    return session.finish("nc_transpose", engine.name, (dst,), (data,), name)


def _check_tensor_transpose(dst, data):
    if dst.buffer is not PSUM:
        raise NkiValidationError(
            "matmul-dst-buffer", f"dst is in {dst.buffer.value}; the tensor engine writes PSUM."
        )
    rules.sbuf_only(data, "data", "the tensor engine")
    for operand, role in ((data, "data"), (dst, "dst")):
        if not _may_start_at(operand, 0):
            raise NkiValidationError(
                "matmul-tile-position",
                f"{role} starts at partition {operand.start_partition}; nc_transpose uses the "
                f"array from row and column 0. Use nc_matmul(is_transpose=True, tile_position=...) "
                f"for data at another partition.",
            )
