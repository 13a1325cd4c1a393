"""Scalar Engine: activation functions with a scale, a bias and a running sum."""

import numpy as np

from .. import rules
from ..access import read_float32, write_float32
from ..accumulators import accumulate, accumulator, lanes_of, require_command
from ..enums import reduce_cmd
from ..errors import NkiValidationError
from ..functions import ACTIVATIONS, warn_outside_range
from ..operators import ALU, reduction
from ..operators import activation as activation_name
from ..tensor import NkiTensor
from .alu import rows
from .operands import number_or_column, row_result

COMMANDS = (reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce)


def activation(
    session, dst, op, data, bias, scale, reduce_op, reduce_res, command, name,
    instruction="activation",
):  # fmt: skip
    """dst = op(data * scale + bias), with an optional sum over the free dimensions."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_free_size(data, "data", dst, "dst")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    function = activation_name(op, "op")
    require_command(command, COMMANDS)
    if reduce_op is not None:
        # The stub of activation_reduce limits this to NeuronCore-v2, that of activation does not.
        reduction(reduce_op, "reduce_op", session, names=("add",))
    elif command in (reduce_cmd.reduce, reduce_cmd.reset_reduce):
        raise NkiValidationError(
            "reduce-op", f"{command} without reduce_op; pass reduce_op=nl.add."
        )
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", data)
    values = read_float32(data, "data")
    values = _affine(session, values, data, scale, bias, function)
    warn_outside_range(function, values)
    result = ACTIVATIONS[function](values)
    registers, lanes = None, None
    if command is not reduce_cmd.idle or reduce_res is not None:
        registers, lanes = accumulator(session, "scalar"), lanes_of(data)
        accumulate(
            registers, lanes, command, ALU["add"], lambda: np.add.reduce(rows(result), axis=1)
        )
    write_float32(dst, result)
    writes = (dst,)
    if reduce_res is not None:
        # Last, so that a reduce_res within dst keeps the sum.
        write_float32(reduce_res, registers.read(lanes))
        writes = (dst, reduce_res)
    return session.finish(
        instruction, "scalar", writes, (data, scale, bias), name, function=function
    )


def activation_reduce(session, dst, op, data, reduce_op, reduce_res, bias, scale, name):
    """activation with reduce_cmd.reset_reduce."""
    return activation(
        session, dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd.reset_reduce, name,
        instruction="activation_reduce",
    )  # fmt: skip


def _affine(session, values, data, scale, bias, function):
    """data * scale + bias; the same array if scale is 1 and there is no bias."""
    factor = number_or_column(scale, "scale", data, ("float32",))
    if type(bias) is NkiTensor and bias.dtype == "tfloat32":
        raise NkiValidationError("operand-dtype", "bias is tfloat32; every other dtype is allowed.")
    if bias is not None and session.target.generation < 3:
        if type(bias) is not NkiTensor:
            raise NkiValidationError(
                "activation-bias",
                f"bias is a number; {session.target.name} takes a (P, 1) tile only.",
            )
        if function == "reciprocal":
            raise NkiValidationError(
                "activation-bias", f"nl.reciprocal takes no bias on {session.target.name}."
            )
    term = None if bias is None else number_or_column(bias, "bias", data)
    if type(scale) is NkiTensor or factor != 1:
        values = np.multiply(values, factor)
        if term is not None:
            np.add(values, term, out=values)
    elif term is not None:
        values = np.add(values, term)
    return values
