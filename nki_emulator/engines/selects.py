"""Vector Engine: instructions that choose between two values, element by element."""

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, require_writable, write_float32
from ..accumulators import accumulate, accumulator, lanes_of, require_command
from ..dtypes import FLOAT, store_float32
from ..enums import reduce_cmd
from ..errors import NkiValidationError, warn
from ..operators import binary, reduction
from ..registers import is_integer
from ..tensor import NkiTensor
from .alu import rows
from .operands import number, number_or_column, row_result

COMMANDS = (reduce_cmd.idle, reduce_cmd.reset_reduce, reduce_cmd.reduce)
# Stub, range_select: "The comparison operators must be one of".
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
FP32_MIN = np.finfo(np.float32).min
# Integers up to here are exact in float32, in which range_select compares.
EXACT = 2**24


def tensor_copy_predicated(session, dst, src, predicate, reverse_pred, name):
    """Where predicate holds, dst = src; elsewhere dst keeps its value."""
    rules.on_chip(dst, "dst")
    rules.on_chip(predicate, "predicate")
    rules.same_free_size(predicate, "predicate", dst, "dst")
    _require_dtype(predicate, ("uint8", "uint16", "uint32"))
    rules.not_packed(dst, "dst")
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
        values = _constant(src, dst)
    require_writable(dst)
    np.copyto(dst.array, values, where=chosen)
    dst.storage.mark_where(dst, chosen)
    return session.finish("tensor_copy_predicated", "vector", (dst,), (src, predicate), name)


def _predicate(predicate, reverse, like):
    rules.flag(reverse, "reverse_pred")
    chosen = read_raw(predicate, "predicate").reshape(like.shape) != 0
    return ~chosen if reverse else chosen


def _constant(value, dst):
    """The number ``value`` as one element of dst's dtype, which it must have itself."""
    element = np.empty((1,), dst.info.storage)
    if dst.info.kind == FLOAT:
        store_float32(element, dst.info, number(value, "src").reshape(1))
        return element
    number(value, "src")
    limits = (0, 1) if dst.dtype == "bool" else _limits(dst.info.storage)
    if not isinstance(value, (int, np.integer)) or not limits[0] <= value <= limits[1]:
        raise NkiValidationError(
            "same-dtype", f"src {value!r} is not a value of dst's dtype {dst.dtype}."
        )
    element[0] = value
    return element


def _limits(storage):
    limits = np.iinfo(storage)
    return limits.min, limits.max


def _require_dtype(predicate, allowed):
    if predicate.dtype not in allowed:
        raise NkiValidationError(
            "predicate-dtype",
            f"predicate is {predicate.dtype}; allowed: {', '.join(allowed)}.",
        )


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
    _require_dtype(predicate, ("int8", "uint8", "int16", "uint16"))
    require_command(command, COMMANDS)
    folding = reduction(reduce_op, "reduce_op", session, names=("maximum",))
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", on_true)
        if reduce_res.info.kind != FLOAT:
            raise NkiValidationError(
                "reduce-dtype", f"reduce_res is {reduce_res.dtype}; it must be a float type."
            )
    chosen = _predicate(predicate, reverse_pred, dst)
    values = read_float32(on_true, "on_true").reshape(dst.shape)
    other = number_or_column(on_false, "on_false", dst)
    values = np.where(chosen, values, other)
    registers, lanes = accumulator(session, "vector"), lanes_of(on_true)
    accumulate(registers, lanes, command, folding, lambda: folding.reduce(rows(values)))
    write_float32(dst, values)
    writes = (dst,)
    if reduce_res is not None:
        write_float32(reduce_res, registers.read(lanes))
        writes = (dst, reduce_res)
    return session.finish("select_reduce", "vector", writes, (predicate, on_true, on_false), name)


def range_select(
    session, dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, command, reduce_res, reduce_op,
    range_start, on_false_value, name,
):  # fmt: skip
    """dst = on_true_tile where the column index is within bounds, else the smallest float32."""
    rules.from_generation(session, 3, "range_select")
    rules.on_chip(dst, "dst")
    rules.on_chip(on_true_tile, "on_true_tile")
    rules.same_free_size(on_true_tile, "on_true_tile", dst, "dst")
    _require_range_dtypes(dst, on_true_tile)
    first = _comparison(comp_op0, "comp_op0", session)
    second = _comparison(comp_op1, "comp_op1", session)
    bounds = _bound(bound0, "bound0", on_true_tile), _bound(bound1, "bound1", on_true_tile)
    require_command(command, COMMANDS)
    folding = reduction(reduce_op, "reduce_op", session, names=("maximum",))
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", on_true_tile)
    if number(on_false_value, "on_false_value") != FP32_MIN:
        raise NkiValidationError(
            "range-select-fill",
            f"on_false_value={on_false_value!r}; the hardware fills with the smallest float32, "
            f"{FP32_MIN!r}, only.",
        )
    values = rows(read_float32(on_true_tile, "on_true_tile"))
    index = _column_index(range_start, values.shape[1])
    inside = first.compute(index, bounds[0]).astype(np.bool_)
    inside &= second.compute(index, bounds[1]).astype(np.bool_)
    values = np.where(inside, values, FP32_MIN)
    registers, lanes = accumulator(session, "vector"), lanes_of(on_true_tile)
    # The maximum is taken before the result is rounded to dst: the stub counts on a float32
    # reduce_res of FP32_MIN beside a bfloat16 dst of -inf.
    accumulate(registers, lanes, command, folding, lambda: folding.reduce(values))
    write_float32(dst, values)
    writes = (dst,)
    if reduce_res is not None:
        total = registers.read(lanes)
        _warn_infinite_maximum(dst, reduce_res, total)
        write_float32(reduce_res, total)
        writes = (dst, reduce_res)
    return session.finish("range_select", "vector", writes, (on_true_tile, bound0, bound1), name)


def _require_range_dtypes(dst, on_true_tile):
    rules.not_packed(dst, "dst")
    if on_true_tile.info.kind != FLOAT:
        raise NkiValidationError(
            "select-dtype", f"on_true_tile is {on_true_tile.dtype}; it must be a float type."
        )
    # The stub says that the fill becomes -inf in a narrow dst; these two have no -inf.
    if dst.dtype in ("float8_e4m3fn", "float8_e8m0fnu"):
        raise NkiValidationError(
            "range-select-dst",
            f"dst is {dst.dtype}, which has no -inf for the elements outside the range; use "
            f"float32, bfloat16, float16, float8_e4m3 or float8_e5m2.",
        )


def _comparison(op, role, session):
    operator = binary(op, role, session)
    if operator.name not in COMPARISONS:
        raise NkiValidationError(
            "operator-kind",
            f"{role}=nl.{operator.name}; allowed: {', '.join('nl.' + n for n in COMPARISONS)}.",
        )
    return operator


def _bound(bound, role, data):
    rules.tensor(bound, role)
    return number_or_column(bound, role, data, ("float32",)).reshape(-1, 1)


def _column_index(start, count):
    """range_start + column, as float32."""
    if not is_integer(start):
        raise NkiValidationError(
            "operand-type", f"range_start={start!r}; expected a compile-time integer."
        )
    first = int(start)
    last = first + count - 1
    if first < -EXACT or last > EXACT:
        raise NkiValidationError(
            "range-select-index",
            f"indices {first}..{last} (range_start + column) are compared in float32, which holds "
            f"integers up to 2^24 only.",
        )
    return np.arange(first, last + 1, dtype=np.float32)


def _warn_infinite_maximum(dst, reduce_res, total):
    """A row without any element in range: its maximum must stay FP32_MIN, not become -inf."""
    if dst.dtype != "float32" and reduce_res.dtype != "float32" and (total == FP32_MIN).any():
        warn(
            "range-select-maximum",
            f"a row has no element within its bounds, and reduce_res is {reduce_res.dtype}: dst "
            f"and the maximum are both -inf, so their difference is NaN. Use a float32 reduce_res.",
        )
