"""Transposes of the Tensor and Vector engines: partition axis and flattened free axis swapped.

From v3 on the tensor engine has a transpose mode that moves bits; on v2 it multiplies by the
identity, so a NaN or infinity spreads over the results of its row.
"""

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, require_writable, write_raw
from ..enums import engine as engines
from ..errors import NkiValidationError
from ..regions import MemoryRegion
from . import array

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum


ENGINES = (engines.unknown, engines.tensor, engines.vector)


def nc_transpose(session, dst, data, engine, name):
    """dst = data with partition and flattened free axis swapped."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.one_of(engine, "engine", ENGINES)
    if engine is engines.unknown:
        fits = dst.buffer is PSUM and data.buffer is SBUF
        engine = engines.tensor if fits else engines.vector
    multiplies = engine is engines.tensor
    # What depends on shapes and dtypes alone is checked once a session.
    key = "nc_transpose", dst.shape, dst.strides, dst.dtype, data.shape, data.dtype, multiplies
    if key not in session.checked:
        _check(session, dst, data, multiplies)
        session.checked[key] = True
    if multiplies:
        _on_tensor_engine(session, dst, data)
    else:
        bits = read_raw(data, "data").reshape(data.shape[0], -1)
        write_raw(dst, bits.T.reshape(dst.shape))
    return session.finish("nc_transpose", engine.name, (dst,), (data,), name)


def _check(session, dst, data, multiplies):
    partitions, width = data.shape[0], data.size // data.shape[0]
    if dst.shape[0] != width or dst.size != data.size:
        raise NkiValidationError(
            "transpose-shape",
            f"dst is {list(dst.shape)}; transposing data {list(data.shape)} gives {width} "
            f"partitions of {partitions} elements.",
        )
    _same_dtype(dst, data, "data")
    if multiplies:
        array.distinct(dst)
        _sixteen_bits(data, "data")
        if session.target.generation < 3 and data.dtype not in array.DTYPES:
            raise NkiValidationError(
                "matmul-dtype",
                f"data is {data.dtype}; the tensor engine of {session.target.name} transposes by "
                f"multiplying, which takes {', '.join(array.DTYPES)}.",
            )
        return
    limit = session.target.vector_transpose
    if partitions > limit or width > limit:
        raise NkiValidationError(
            "transpose-size",
            f"data is {partitions} x {width}; the Vector engine transposes at most "
            f"{limit} x {limit}. The tensor engine (SBUF to PSUM) takes 128 x 128.",
        )


def _on_tensor_engine(session, dst, data):
    array.spaces(dst, (data, "data"))
    if not array.may_start_at(data, 0):
        raise NkiValidationError(
            "matmul-tile-position",
            f"data starts at partition {data.start_partition}; nc_transpose uses the array from "
            f"row 0. Use nc_matmul(is_transpose=True, tile_position=...) for data at another "
            f"partition.",
        )
    array.result_at_partition_zero(dst)
    if session.target.generation >= 3:
        move(dst, data, "data")
        return
    rows = data.shape[0]
    matrix = array.matrix(data, "data", rows, data.size // rows)
    array.store(dst, np.matmul(matrix.T, np.eye(rows, dtype=np.float32)), plan=False)


def check_mode(dst, stationary, double_row):
    """Rules of `nc_matmul(is_transpose=True)` where the array has a transpose mode."""
    if double_row:
        raise NkiValidationError(
            "matmul-transpose", "is_transpose=True cannot be combined with double_row."
        )
    _same_dtype(dst, stationary, "stationary")
    _sixteen_bits(stationary, "stationary")


def by_mode(session, dst, stationary, moving, accumulate):
    """dst = stationary transposed, bit for bit; moving is the identity."""
    if accumulate or dst.storage.accumulation(dst, accumulate, session.target) is not False:
        raise NkiValidationError(
            "matmul-transpose",
            f"accumulate={accumulate} on this PSUM location adds to what it holds; "
            f"is_transpose=True copies bits and cannot accumulate. Pass accumulate=False.",
        )
    require_identity(read_float32(moving, "moving"), stationary.shape[0])
    move(dst, stationary, "stationary")


def require_identity(moving, size):
    """The values of moving are the identity matrix."""
    moving = moving.reshape(size, -1)
    if not np.array_equal(moving, np.eye(size, dtype=np.float32)):
        raise NkiValidationError(
            "matmul-transpose-identity",
            f"is_transpose=True takes the [{size}, {size}] identity as moving operand; moving is "
            f"[{size}, {moving.shape[1]}]"
            f"{'' if moving.shape[1] != size else ' and holds other values'}.",
        )


def move(dst, data, role):
    """Write the bits of ``data`` transposed."""
    raw = data.info.raw
    bits = read_raw(data, role).view(raw).reshape(data.shape[0], -1)
    require_writable(dst)
    target = dst.array.view(raw)
    target[...] = bits.T.reshape(target.shape)
    dst.storage.mark_matmul(dst)


def _same_dtype(dst, data, role):
    if dst.dtype != data.dtype:
        raise NkiValidationError(
            "transpose-dtype",
            f"dst is {dst.dtype} and {role} {data.dtype}; a transpose keeps the dtype.",
        )


def _sixteen_bits(data, role):
    """The Trainium2 guide lets 8-bit data come out as 16-bit elements; the stub wants one dtype."""
    if data.info.nbytes == 1:
        raise NkiValidationError(
            "transpose-8-bit",
            f"{role} is {data.dtype}; the tensor engine writes transposed 8-bit data as 16-bit "
            f"elements, which a dst of the same dtype cannot hold. Convert it to bfloat16 first "
            f"(exact), or transpose up to 32 x 32 with engine=nisa.engine.vector.",
        )
