"""Copies and fills within the chip: tensor_copy and memset."""

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, require_writable, write_float32, write_raw
from ..enums import engine as engines
from ..errors import NkiValidationError
from ..regions import MemoryRegion
from .operands import number

PSUM = MemoryRegion.psum


def tensor_copy(session, dst, src, engine, name):
    """dst = src: bit for bit if the dtypes are equal, else through float32."""
    rules.on_chip(dst, "dst")
    rules.on_chip(src, "src")
    rules.same_free_size(src, "src", dst, "dst")
    where = _copy_engine(session, engine, dst, src)
    if dst.info is src.info:
        write_raw(dst, read_raw(src, "src"))
    else:
        rules.not_packed(dst, "dst")
        rules.not_packed(src, "src")
        write_float32(dst, read_float32(src, "src"))
    return session.finish("tensor_copy", where.name, (dst,), (src,), name)


def _copy_engine(session, engine, dst, src):
    rules.one_of(
        engine, "engine", (engines.unknown, engines.vector, engines.scalar, engines.gpsimd)
    )
    if engine is engines.unknown:
        return engines.vector
    if engine is engines.gpsimd and (dst.buffer is PSUM or src.buffer is PSUM):
        raise NkiValidationError(
            "gpsimd-psum", "the GpSimd engine cannot reach PSUM; use the Vector or Scalar engine."
        )
    if engine is engines.scalar:
        rules.from_generation(session, 3, "tensor_copy on the Scalar engine")
    return engine


def memset(session, dst, value, engine, name):
    """Fill dst with a compile-time constant of its dtype's class."""
    rules.on_chip(dst, "dst")
    rules.one_of(engine, "engine", (engines.unknown, engines.vector, engines.gpsimd))
    if engine is engines.gpsimd and dst.buffer is PSUM:
        raise NkiValidationError("gpsimd-psum", "the GpSimd engine cannot reach PSUM.")
    if dst.info.kind == "float":
        write_float32(dst, np.broadcast_to(number(value, "value"), dst.shape))
    else:
        _fill_integers(dst, value)
    where = engines.vector if engine is engines.unknown else engine
    return session.finish("memset", where.name, (dst,), (), name)


def _fill_integers(dst, value):
    info = dst.info
    is_integer = isinstance(value, (int, np.integer)) and (
        info.name == "bool" or not isinstance(value, bool)
    )
    if not is_integer:
        raise NkiValidationError(
            "memset-type",
            f"value {value!r} into {info.name}: the value must be an integer, as the dtype is.",
        )
    if info.kind == "packed":
        if value != 0:
            raise NkiValidationError(
                "memset-packed", f"value {value!r} into {info.name}: packed types take 0 only."
            )
    else:
        low, high = (0, 1) if info.name == "bool" else _limits(info.storage)
        if not low <= value <= high:
            raise NkiValidationError("memset-range", f"value {value} does not fit in {info.name}.")
    require_writable(dst)
    dst.array[...] = value
    dst.storage.mark_written(dst)


def _limits(storage):
    limits = np.iinfo(storage)
    return limits.min, limits.max
