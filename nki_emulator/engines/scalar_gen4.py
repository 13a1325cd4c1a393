"""Scalar Engine of gen4: activation behind two configurable operators, with a reduction."""

from .. import rules
from ..access import read_float32, write_float32
from ..accumulators import accumulate, accumulator, lanes_of, require_command
from ..enums import reduce_cmd
from ..errors import NkiValidationError
from ..functions import ACTIVATIONS, PARAMETRIC, warn_outside_range
from ..operators import ALU, alu, name_of
from ..operators import activation as activation_name
from ..tensor import NkiTensor
from .alu import apply, rows, shaped
from .operands import number_or_column, row_result

COMMANDS = (reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce)
# Stub, activate2: "The tensor-scalar stage supports six (op0, op1) combinations".
COMBINATIONS = (
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"),
    ("subtract", "bypass"), ("bypass", "bypass"),
)  # fmt: skip
REDUCE_OPERATORS = ("add", "maximum", "minimum", "abs_max", "abs_min")


def activate2(
    session, dst, op, data, imm0, imm1, op0, op1, relu_param, reverse0, reverse1, reduce_op,
    reduce_res, command, name,
):  # fmt: skip
    """dst = op((data <op0> imm0) <op1> imm1), with an optional reduction of the free dimensions."""
    rules.from_generation(session, 4, "activate2")
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_free_size(data, "data", dst, "dst")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    function = activation_name(op, "op", parametric=True)
    steps = _steps(op0, op1, imm0, imm1, reverse0, reverse1, data)
    require_command(command, COMMANDS)
    folding = _folding(session, reduce_op, command)
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", data)
    slope = number_or_column(relu_param, "relu_param", data)
    values = read_float32(data, "data")
    for operator, operand, reverse in steps:
        values = apply(operator, values, operand, reverse)
    warn_outside_range(function, values)
    if function in PARAMETRIC:
        result = PARAMETRIC[function](values, slope)
    else:
        result = ACTIVATIONS[function](values)
    registers, lanes = accumulator(session, "scalar"), lanes_of(data)
    accumulate(registers, lanes, command, folding, lambda: _reduced(folding, rows(result)))
    write_float32(dst, shaped(result, dst))
    writes = (dst,)
    if reduce_res is not None:
        write_float32(reduce_res, registers.read(lanes))
        writes = (dst, reduce_res)
    return session.finish(
        "activate2", "scalar", writes, (data, imm0, imm1, relu_param), name,
        function=function, alu=f"{name_of(op0)},{name_of(op1)}",
    )  # fmt: skip


def _steps(op0, op1, imm0, imm1, reverse0, reverse1, data):
    """The operators that are not bypassed, each with its operand and whether it is reversed."""
    rules.flag(reverse0, "reverse0")
    rules.flag(reverse1, "reverse1")
    names = name_of(op0), name_of(op1)
    if names not in COMBINATIONS:
        allowed = ", ".join(f"({first}, {second})" for first, second in COMBINATIONS)
        raise NkiValidationError(
            "activate2-operators",
            f"(op0, op1) = ({names[0] or op0!r}, {names[1] or op1!r}); allowed: {allowed}.",
        )
    if type(imm0) is NkiTensor and type(imm1) is NkiTensor and imm0.dtype != imm1.dtype:
        raise NkiValidationError(
            "same-dtype", f"imm0 is {imm0.dtype} and imm1 {imm1.dtype}; they must be equal."
        )
    steps = []
    for position, (name, operand, reverse) in enumerate(
        zip(names, (imm0, imm1), (reverse0, reverse1))
    ):
        if name != "bypass":
            operand = number_or_column(operand, f"imm{position}", data)
            steps.append((ALU[name], operand, reverse))
        elif reverse:
            raise NkiValidationError(
                "reverse", f"reverse{position} with op{position}=nl.bypass: nothing to reverse."
            )
    return steps


def _folding(session, reduce_op, command):
    if reduce_op is None:
        if command is not reduce_cmd.idle:
            raise NkiValidationError(
                "reduce-op", f"{command} without reduce_op, which says what to accumulate with."
            )
        return None
    operator = alu(reduce_op, "reduce_op", session)
    if operator.name not in REDUCE_OPERATORS:
        raise NkiValidationError(
            "operator-reduce",
            f"reduce_op=nl.{operator.name} cannot reduce here; allowed: "
            f"{', '.join('nl.' + name for name in REDUCE_OPERATORS)}.",
        )
    return operator


def _reduced(operator, values):
    """One value a row. By magnitude: element after element, as the stub's pseudocode does."""
    if operator.fold is not None:
        return operator.reduce(values)
    columns = values.T.copy()
    total = columns[0]
    for column in columns[1:]:
        total = operator.compute(total, column)
    return total
