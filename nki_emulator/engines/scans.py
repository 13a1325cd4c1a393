"""Vector Engine: scans along the free axis, where each result depends on the one before it."""

import numpy as np

from .. import rules
from ..access import read_float32, write_float32
from ..accumulators import accumulator, lanes_of, loaded_values, require_command
from ..enums import reduce_cmd
from ..operators import binary, reduction
from .alu import apply, arithmetic, rows, scalar_operand
from .operands import number_or_column

FLOAT32 = ("float32",)
# Stub, tensor_scalar_cumulative: "Operation constraints".
CUMULATIVE_OPERATORS = ("add", "subtract", "multiply", "maximum", "minimum")
CUMULATIVE_DTYPES = (
    "bfloat16", "float16", "float32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "uint8",
    "uint16", "int8", "int16",
)  # fmt: skip
COMMANDS = (reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.load_reduce)


def tensor_scalar_cumulative(session, dst, src, op0, op1, imm0, imm1, command, name):
    """dst = running reduction, by op1, of src <op0> imm0 over the flattened free dimensions."""
    rules.on_chip(dst, "dst")
    rules.on_chip(src, "src")
    rules.same_free_size(src, "src", dst, "dst")
    rules.dtype_in(dst, "dst", CUMULATIVE_DTYPES)
    rules.dtype_in(src, "src", CUMULATIVE_DTYPES)
    first = arithmetic(op0, "op0", session)
    folding = reduction(op1, "op1", session, names=CUMULATIVE_OPERATORS)
    require_command(command, COMMANDS)
    loaded = loaded_values(command, imm1, "imm1", src)
    scalar = scalar_operand(first, imm0, "imm0", src, False, FLOAT32)
    values = rows(apply(first, read_float32(src, "src"), scalar, False))
    registers, lanes = accumulator(session, "vector"), lanes_of(src)
    start = registers.start(lanes, command, folding, loaded)
    # The new element is the first operand: op1(src <op0> imm0, register).
    values[:, 0] = folding.compute(values[:, 0], start)
    if folding.name == "subtract":
        for column in range(1, values.shape[1]):
            values[:, column] -= values[:, column - 1]
    else:
        folding.fold.accumulate(values, axis=1, out=values)
    registers.load(lanes, values[:, -1])
    write_float32(dst, values)
    return session.finish(
        "tensor_scalar_cumulative", "vector", (dst,), (src, imm0, imm1), name,
        alu=f"{first.name},{folding.name}",
    )  # fmt: skip


def tensor_tensor_scan(session, dst, data0, data1, initial, op0, op1, reverse0, reverse1, name):
    """dst[i] = (data0[i] <op0> dst[i - 1]) <op1> data1[i], starting from ``initial``."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data0, "data0")
    rules.on_chip(data1, "data1")
    rules.same_free_size(data0, "data0", dst, "dst")
    rules.same_free_size(data1, "data1", dst, "dst")
    rules.not_both_psum(data0, data1, "data0", "data1")
    for operand, role in ((dst, "dst"), (data0, "data0"), (data1, "data1")):
        rules.not_packed(operand, role)
    rules.flag(reverse0, "reverse0")
    rules.flag(reverse1, "reverse1")
    first = binary(op0, "op0", session)
    second = binary(op1, "op1", session)
    start = number_or_column(initial, "initial", data0)
    left, right = _columns(data0, "data0"), _columns(data1, "data1")
    result = np.empty_like(left)
    running = np.broadcast_to(start.reshape(-1), left.shape[1:])
    for a, b, out in zip(left, right, result):
        step = first.compute(running, a) if reverse0 else first.compute(a, running)
        running = second.compute(b, step, out=out) if reverse1 else second.compute(step, b, out=out)
    write_float32(dst, result.T)
    return session.finish(
        "tensor_tensor_scan", "vector", (dst,), (data0, data1, initial), name,
        alu=f"{first.name},{second.name}",
    )  # fmt: skip


def _columns(tensor, role):
    """The operand in float32, one row an element of the free axis."""
    return np.ascontiguousarray(rows(read_float32(tensor, role)).T)
