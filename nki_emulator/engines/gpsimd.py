"""GpSimd Engine: affine patterns, and the reduction over partitions. It reaches SBUF only."""

import math

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, write_float32, write_raw
from ..dtypes import FLOAT, store_float32
from ..errors import NkiValidationError
from ..operators import BITVEC, alu, binary, name_of
from ..registers import is_integer, scalar
from .alu import bits, require_bit_patterns, shaped, write_bits
from .operands import number

MAX_DIMS = 4
COMPARISONS = {
    "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "less": np.less, "less_equal": np.less_equal,
}  # fmt: skip
# Stub, tensor_partition_reduce: parameter op.
PARTITION_REDUCTIONS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")
INT32 = np.iinfo(np.int32)


def iota(session, dst, pattern, offset, channel_multiplier, name):
    """dst[p, ...] = offset + p * channel_multiplier + affine pattern, in int32.

    p counts from the first partition of dst. A dtype that cannot hold a value takes the nearest
    one that it can: the stub says that values are cast and not how.
    """
    require_sbuf(dst, "dst")
    rules.not_packed(dst, "dst")
    values = _affine(dst, pattern, offset, channel_multiplier)
    if dst.info.kind == FLOAT:
        write_float32(dst, values.astype(np.float32))
    else:
        write_raw(dst, _saturated(values, dst.info.storage))
    return session.finish("iota", "gpsimd", (dst,), (), name)


def _saturated(values, storage):
    if storage == np.int32:
        return values
    if storage == np.bool_:
        return values != 0
    limits = np.iinfo(storage)
    return np.clip(values.astype(np.int64), limits.min, limits.max).astype(storage)


def affine_select(
    session, dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op, offset, name
):
    """dst = on_true_tile where cmp_op(affine pattern, 0), else on_false_value."""
    require_sbuf(dst, "dst")
    require_sbuf(on_true_tile, "on_true_tile")
    rules.same_free_size(on_true_tile, "on_true_tile", dst, "dst")
    rules.not_packed(dst, "dst")
    rules.not_packed(on_true_tile, "on_true_tile")
    comparison = binary(cmp_op, "cmp_op", session)
    if comparison.name not in COMPARISONS:
        raise NkiValidationError(
            "operator-kind",
            f"cmp_op=nl.{comparison.name}; allowed: {', '.join('nl.' + n for n in COMPARISONS)}.",
        )
    affine = _affine(dst, pattern, offset, channel_multiplier)
    chosen = shaped(COMPARISONS[comparison.name](affine, np.int32(0)), dst)
    other = number(on_false_value, "on_false_value")
    if on_true_tile.info is dst.info:
        # Same dtype: the selected elements are not converted.
        kept = shaped(read_raw(on_true_tile, "on_true_tile"), dst).view(dst.info.raw)
        filler = np.empty((1,), dst.info.storage)
        store_float32(filler, dst.info, np.array([other], np.float32))
        write_raw(dst, np.where(chosen, kept, filler.view(dst.info.raw)))
    else:
        kept = shaped(read_float32(on_true_tile, "on_true_tile"), dst)
        write_float32(dst, np.where(chosen, kept, other))
    return session.finish("affine_select", "gpsimd", (dst,), (on_true_tile,), name)


def _affine(dst, pattern, offset, channel_multiplier):
    """The int32 values of an affine pattern, shape (partitions, counts...); they wrap around.

    The offset may come from a register (release notes of NKI 0.4, "Bug Fixes").
    """
    try:
        pairs = [(step, count) for step, count in pattern]
    except (TypeError, ValueError):
        pairs = [(None, None)]
    if not all(is_integer(number) for pair in pairs for number in pair):
        raise NkiValidationError(
            "affine-pattern", f"pattern={pattern!r}; expected [[step, count], ...] of integers."
        )
    if not 1 <= len(pairs) <= MAX_DIMS or any(count < 1 for _, count in pairs):
        raise NkiValidationError(
            "affine-pattern",
            f"pattern={pattern!r}; expected 1 to {MAX_DIMS} pairs with counts of at least 1.",
        )
    partitions = dst.shape[0]
    count = math.prod(count for _, count in pairs)
    if count * partitions != dst.size:
        raise NkiValidationError(
            "affine-pattern",
            f"pattern {pattern!r} makes {count} elements per partition; dst has "
            f"{dst.size // partitions}.",
        )
    start = int32(scalar(offset, "offset"), "offset")
    values = np.full((partitions,) + (1,) * len(pairs), start, np.int32)
    axes = [(int32(channel_multiplier, "channel_multiplier"), partitions), *pairs]
    for axis, (step, size) in enumerate(axes):
        ramp = np.arange(size, dtype=np.int32) * np.array([int32(step, "a step of pattern")], "i4")
        values = values + ramp.reshape((size,) + (1,) * (len(axes) - 1 - axis))
    return values


def tensor_partition_reduce(session, dst, op, data, name):
    """dst[0] = reduction of data over its partitions.

    Arithmetic is in float32; the bitwise operators work on integers of one width.
    """
    require_sbuf(dst, "dst")
    require_sbuf(data, "data")
    width = data.size // data.shape[0]
    if dst.shape[0] != 1 or dst.size != width:
        raise NkiValidationError(
            "partition-reduce-shape",
            f"data {list(data.shape)} is reduced to 1 partition of {width} elements; dst has "
            f"shape {list(dst.shape)}.",
        )
    named = name_of(op)
    operator = None if named == "average" else alu(op, "op", session)
    if operator is not None and operator.name not in PARTITION_REDUCTIONS:
        raise NkiValidationError(
            "operator-reduce",
            f"op=nl.{operator.name} cannot reduce over partitions; allowed: "
            f"{', '.join('nl.' + one for one in PARTITION_REDUCTIONS)}.",
        )
    if operator is not None and operator.kind is BITVEC:
        require_bit_patterns((dst, data), ("dst", "data"), operator)
        write_bits(dst, operator.fold.reduce(bits(data, "data", data), axis=0))
    else:
        rules.not_packed(dst, "dst")
        rules.not_packed(data, "data")
        values = read_float32(data, "data")
        if operator is None:
            write_float32(dst, np.add.reduce(values, axis=0) / np.float32(data.shape[0]))
        else:
            write_float32(dst, operator.fold.reduce(values, axis=0))
    return session.finish("tensor_partition_reduce", "gpsimd", (dst,), (data,), name, alu=named)


def require_sbuf(tensor, role):
    """An operand of the GpSimd engine."""
    rules.on_chip(tensor, role)
    rules.sbuf_only(tensor, role, "the GpSimd engine")


def int32(value, role):
    """An integer that 32 bits with a sign hold."""
    if not is_integer(value):
        raise NkiValidationError("operand-type", f"{role}={value!r}; expected an integer.")
    if not INT32.min <= value <= INT32.max:
        raise NkiValidationError(
            "int32-range", f"{role} is {value}; it must be an int32, {INT32.min} to {INT32.max}."
        )
    return int(value)
