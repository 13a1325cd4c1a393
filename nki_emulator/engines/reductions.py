"""Vector Engine: reductions along the free axis, on their own or behind an operator."""

import numpy as np

from .. import rules
from ..access import read_float32, write_float32
from ..accumulators import accumulate, accumulator, lanes_of, loaded_values, require_command
from ..enums import reduce_cmd
from ..errors import NkiValidationError
from ..operators import ARITHMETIC, BITVEC, reduction
from ..registers import is_integer
from .alu import (
    apply,
    arithmetic,
    bits,
    require_bit_patterns,
    rows,
    scalar_operand,
    write_bits,
)
from .operands import row_result

FLOAT32 = ("float32",)
# Stub, tensor_scalar_reduce: "reduce_op".
REDUCE_OPERATORS = ("add", "multiply", "maximum", "minimum")
COMMANDS = (reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.load_reduce)


def tensor_reduce(session, dst, op, data, axis, negate, keepdims, name):
    """dst = reduction of data over its last free dimensions."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_partitions(dst, "dst", data.shape[0], "data")
    rules.flag(negate, "negate")
    rules.flag(keepdims, "keepdims")
    operator = reduction(op, "op", session, (ARITHMETIC, BITVEC))
    first = _first_reduced(axis, data)
    kept = data.shape[:first]
    outer = 1
    for size in kept:
        outer *= size
    if dst.size != outer:
        raise NkiValidationError(
            "reduce-shape",
            f"reducing axis {axis} of data {list(data.shape)} leaves {outer // kept[0]} elements "
            f"per partition; dst {list(dst.shape)} has {dst.size // kept[0]}.",
        )
    if operator.kind is BITVEC:
        if negate:
            raise NkiValidationError(
                "reduce-negate", f"negate=True with nl.{operator.name}; it needs an arithmetic op."
            )
        require_bit_patterns((dst, data), ("dst", "data"), operator)
        write_bits(dst, operator.reduce(bits(data, "data", data).reshape(kept + (-1,))))
    else:
        rules.not_packed(dst, "dst")
        rules.not_packed(data, "data")
        values = read_float32(data, "data")
        if first < len(data.shape) - 1:
            values = values.reshape(kept + (-1,))
        result = operator.reduce(values)
        if negate:
            np.negative(result, out=result)
        write_float32(dst, result)
    return session.finish("tensor_reduce", "vector", (dst,), (data,), name, alu=operator.name)


def _first_reduced(axis, data):
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(data.shape)
    first = rank - len(axes)
    legal = all(is_integer(one) for one in axes) and sorted(axes) == list(range(first, rank))
    if not legal or not 1 <= first < rank:
        raise NkiValidationError(
            "reduce-axis",
            f"axis={axis!r} of data {list(data.shape)}; the reduced axes must be the last free "
            f"dimensions, e.g. {tuple(range(1, rank))} or ({rank - 1},).",
        )
    return first


def tensor_scalar_reduce(
    session, dst, data, op0, operand0, reduce_op, reduce_res, reverse0, command, reduce_init,
    reduce_res_negate, name,
):  # fmt: skip
    """dst = data <op0> operand0, and its reduction over all free dimensions."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_free_size(data, "data", dst, "dst")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    first = arithmetic(op0, "op0", session)
    folding = reduction(reduce_op, "reduce_op", session, names=REDUCE_OPERATORS)
    rules.flag(reverse0, "reverse0")
    rules.flag(reduce_res_negate, "reduce_res_negate")
    if reverse0:
        raise NkiValidationError("reverse", "reverse0 is not supported by tensor_scalar_reduce.")
    require_command(command, COMMANDS)
    loaded = loaded_values(command, reduce_init, "reduce_init", data)
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", data)
    scalar = scalar_operand(first, operand0, "operand0", data, False, FLOAT32)
    values = apply(first, read_float32(data, "data"), scalar, False)
    registers, lanes = accumulator(session, "vector"), lanes_of(data)
    accumulate(registers, lanes, command, folding, lambda: folding.reduce(rows(values)), loaded)
    write_float32(dst, values)
    writes = (dst,)
    if reduce_res is not None:
        total = registers.read(lanes)
        write_float32(reduce_res, -total if reduce_res_negate else total)
        writes = (dst, reduce_res)
    return session.finish(
        "tensor_scalar_reduce", "vector", writes, (data, operand0, reduce_init), name,
        alu=f"{first.name},{folding.name}",
    )  # fmt: skip
