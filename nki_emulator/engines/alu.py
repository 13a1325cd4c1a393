"""Applying ALU operators to tiles: in float32, or on bit patterns."""

import numpy as np

from .. import rules
from ..access import float32_target, read_raw, require_writable, write_float32, write_raw
from ..errors import NkiValidationError
from ..operators import BITVEC, UNARY, alu
from ..registers import is_integer
from ..tensor import NkiTensor
from .operands import number_or_column


def arithmetic(op, role, session):
    """A binary or unary arithmetic operator of an instruction that runs on VectorE only."""
    operator = alu(op, role, session)
    if operator.kind is BITVEC:
        raise NkiValidationError(
            "operator-kind", f"{role}=nl.{operator.name}; only arithmetic operators are allowed."
        )
    if operator.name == "rsqrt":
        raise NkiValidationError(
            "operator-engine",
            f"{role}=nl.rsqrt: the Vector engine does not have it; use nisa.tensor_scalar "
            f"(GpSimd engine) or nisa.activation (Scalar engine).",
        )
    return operator


def scalar_operand(operator, value, role, data, reverse, dtypes=None):
    """The float32 value of a number or column operand; None for a unary operator."""
    if operator.kind is UNARY:
        if type(value) is NkiTensor or not (value is None or value == 0):
            raise NkiValidationError(
                "operand-unused",
                f"nl.{operator.name} is unary: its {role} must be None or 0, found {value!r}.",
            )
        if reverse:
            raise NkiValidationError("reverse", f"nl.{operator.name} is unary: nothing to reverse.")
        return None
    return number_or_column(value, role, data, dtypes)


def shaped(values, like):
    """``values`` in the shape of the tensor ``like``."""
    return values if values.shape == like.shape else values.reshape(like.shape)


def rows(values):
    """``values`` with the free dimensions flattened: (partitions, elements of a partition)."""
    return values if values.ndim == 2 else values.reshape(values.shape[0], -1)


def apply(operator, values, scalar, reverse):
    """values <op> scalar, or scalar <op> values; a new array."""
    if scalar is None:
        return operator.compute(values)
    if reverse:
        return operator.compute(scalar, values)
    return operator.compute(values, scalar)


def apply_into(dst, operator, values, scalar, reverse):
    """Store values <op> scalar, or scalar <op> values."""
    if scalar is None:
        compute_into(dst, operator, values)
    elif reverse:
        compute_into(dst, operator, scalar, values)
    else:
        compute_into(dst, operator, values, scalar)


def compute_into(dst, operator, *inputs):
    """Compute straight into a float32 tile of the same shape, else compute and store."""
    target = float32_target(dst)
    if target is not None and all(np.ndim(one) == 0 or one.ndim == target.ndim for one in inputs):
        shape = max((one.shape for one in inputs if np.ndim(one)), key=lambda s: s[1:])
        if shape == target.shape:
            require_writable(dst)
            operator.compute(*inputs, out=target)
            dst.storage.mark_written(dst)
            return
    write_float32(dst, operator.compute(*inputs))


# Bit patterns.


def require_bit_patterns(operands, roles, operator):
    """Operands of a bitvec operator: integers of one width.

    The documentation's table of dtypes lists Boolean beside Integer, not within it.
    """
    for operand, role in zip(operands, roles):
        rules.integers(operand, role, f"nl.{operator.name}")
        if operand.dtype == "bool":
            raise NkiValidationError(
                "integer-dtype",
                f"{role} is bool; nl.{operator.name} needs an integer dtype. A bool tile can be "
                f"seen as one with .view(nl.uint8).",
            )
    if len({operand.info.itemsize for operand in operands}) != 1:
        found = ", ".join(f"{role} is {one.dtype}" for one, role in zip(operands, roles))
        raise NkiValidationError(
            "bitvec-width",
            f"nl.{operator.name} treats elements as bit patterns; {found}, which differ in width.",
        )


def bits(tensor, role, like):
    """The operand's elements as unsigned integers, in the shape of ``like``."""
    return shaped(read_raw(tensor, role).view(tensor.info.raw), like)


def write_bits(dst, values):
    """Store unsigned integers as bit patterns."""
    write_raw(dst, np.ascontiguousarray(values).view(dst.info.storage))


def apply_bits(operator, values, data, operand, role, reverse):
    """values <op> operand on the bits of the tensor ``data``, with an integer or (P, 1) tile."""
    if operator.name == "invert":
        if type(operand) is NkiTensor or operand not in (None, 0):
            raise NkiValidationError("operand-unused", f"nl.invert takes no {role}.")
        if reverse:
            raise NkiValidationError("reverse", "nl.invert is unary: nothing to reverse.")
        return np.invert(values)
    scalar = _bit_operand(operator, data, operand, role)
    return operator.compute(scalar, values) if reverse else operator.compute(values, scalar)


def _bit_operand(operator, data, operand, role):
    if type(operand) is NkiTensor:
        rules.column(operand, role, data.shape[0], "data")
        # The stub asks for float32 operands of arithmetic operators only; a bitvec operator casts
        # nothing, so its operand has the width of the data.
        require_bit_patterns((data, operand), ("data", role), operator)
        column = read_raw(operand, role).view(operand.info.raw)
        return column.reshape((data.shape[0],) + (1,) * (len(data.shape) - 1))
    if not is_integer(operand):
        raise NkiValidationError("operand-type", f"{role} is {operand!r}; expected an integer.")
    value, width = int(operand), 8 * data.info.itemsize
    if not -(1 << (width - 1)) <= value < 1 << width:
        raise NkiValidationError(
            "bitvec-range", f"{role}={value} does not fit in the {width} bits of {data.dtype}."
        )
    return data.info.raw.type(value & ((1 << width) - 1))
