"""Copies and fills within the chip: tensor_copy, memset and the selecting copies."""

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, require_writable, write_float32, write_raw
from ..accumulators import accumulate, accumulator, lanes_of, require_command
from ..enums import engine as engines
from ..enums import reduce_cmd
from ..errors import NkiValidationError
from ..operators import reduction
from ..regions import MemoryRegion
from ..tensor import NkiTensor
from .operands import number, number_or_column, row_result

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
    elif info.name != "bool":
        limits = np.iinfo(info.storage)
        if not limits.min <= value <= limits.max:
            raise NkiValidationError(
                "memset-range", f"value {value} does not fit in {info.name}."
            )
    require_writable(dst)
    dst.array[...] = value
    dst.storage.mark_written(dst)


def tensor_copy_predicated(session, dst, src, predicate, reverse_pred, name):
    """Where predicate holds, dst = src; elsewhere dst keeps its value."""
    rules.on_chip(dst, "dst")
    rules.on_chip(predicate, "predicate")
    rules.same_free_size(predicate, "predicate", dst, "dst")
    if predicate.dtype not in ("uint8", "uint16", "uint32"):
        raise NkiValidationError(
            "predicate-dtype",
            f"predicate is {predicate.dtype}; allowed: uint8, uint16, uint32.",
        )
    chosen = _predicate(predicate, reverse_pred, dst)
    if type(src) is NkiTensor:
        rules.on_chip(src, "src")
        rules.same_free_size(src, "src", dst, "dst")
        rules.not_both_psum(src, predicate, "src", "predicate")
        if src.dtype != dst.dtype:
            raise NkiValidationError(
                "same-dtype", f"src is {src.dtype} and dst {dst.dtype}; they must be equal."
            )
        values = read_raw(src, "src").reshape(dst.shape)
    else:
        rules.not_packed(dst, "dst")
        values = number(src, "src").astype(dst.info.storage)
    require_writable(dst)
    written = True if dst.storage.complete else chosen | dst.storage.is_written(dst)
    np.copyto(dst.array, values, where=chosen)
    _mark_where(dst, written)
    return session.finish("tensor_copy_predicated", "vector", (dst,), (src, predicate), name)


def _mark_where(dst, written):
    """Mark the elements of dst that ``written`` (True for all) says; others stay unwritten."""
    if written is True or written.all():
        dst.storage.mark_written(dst)
        return
    rows = [dst[p : p + 1] for p in range(dst.shape[0])]
    flat = written.reshape(dst.shape[0], -1)
    for row, flags in zip(rows, flat):
        if flags.all():
            dst.storage.mark_written(row)
        else:
            for index in np.argwhere(flags.reshape(row.shape)):
                key = tuple(slice(int(i), int(i) + 1) for i in index)
                dst.storage.mark_written(row[key])


def _predicate(predicate, reverse, like):
    chosen = read_raw(predicate, "predicate").reshape(like.shape) != 0
    return ~chosen if reverse else chosen


def select_reduce(
    session, dst, predicate, on_true, on_false, reduce_res, command, reduce_op, reverse_pred, name
):
    """dst = on_true where predicate holds, else on_false; optionally the row maximum of dst."""
    rules.on_chip(dst, "dst")
    rules.on_chip(predicate, "predicate")
    rules.on_chip(on_true, "on_true")
    rules.same_free_size(predicate, "predicate", dst, "dst")
    rules.same_free_size(on_true, "on_true", dst, "dst")
    rules.not_both_psum(on_true, predicate, "on_true", "predicate")
    rules.not_packed(dst, "dst")
    rules.not_packed(on_true, "on_true")
    if on_true.dtype in ("tfloat32", "int32", "uint32"):
        raise NkiValidationError(
            "select-dtype", f"on_true is {on_true.dtype}; tfloat32, int32 and uint32 are excluded."
        )
    if predicate.dtype not in ("int8", "uint8", "int16", "uint16"):
        raise NkiValidationError(
            "predicate-dtype",
            f"predicate is {predicate.dtype}; allowed: int8, uint8, int16, uint16.",
        )
    require_command(command, (reduce_cmd.idle, reduce_cmd.reset_reduce, reduce_cmd.reduce))
    folding = reduction(reduce_op, "reduce_op", session, names=("maximum",))
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", on_true)
        if reduce_res.info.kind != "float":
            raise NkiValidationError(
                "reduce-dtype", f"reduce_res is {reduce_res.dtype}; it must be a float type."
            )
    chosen = _predicate(predicate, reverse_pred, dst)
    values = read_float32(on_true, "on_true").reshape(dst.shape)
    other = number_or_column(on_false, "on_false", dst)
    values = np.where(chosen, values, other)
    registers, lanes = accumulator(session, "vector"), lanes_of(on_true)
    if command is reduce_cmd.idle:
        # Stub: even when idle, the accumulator state may be modified.
        registers.forget(lanes)
    else:
        rows = values.reshape(values.shape[0], -1)
        accumulate(registers, lanes, command, folding, -np.inf, lambda: folding.reduce(rows))
    write_float32(dst, values)
    writes = (dst,)
    if reduce_res is not None:
        write_float32(reduce_res, registers.read(lanes))
        writes = (dst, reduce_res)
    return session.finish(
        "select_reduce", "vector", writes, (predicate, on_true, on_false), name
    )
