"""Vector Engine: element-wise operators, in float32 or on bit patterns.

Some of these instructions also run elsewhere: `tensor_tensor` on GpSimd, `tensor_scalar` on ScalarE
and GpSimd.
"""

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, write_raw
from ..enums import engine as engines
from ..errors import NkiValidationError
from ..operators import ALU, ARITHMETIC, BITVEC, alu, binary
from ..regions import MemoryRegion
from ..tensor import NkiTensor
from .alu import (
    apply,
    apply_bits,
    apply_into,
    arithmetic,
    bits,
    compute_into,
    require_bit_patterns,
    scalar_operand,
    shaped,
    write_bits,
)

PSUM = MemoryRegion.psum
FLOAT32 = ("float32",)
INT32 = ("int32", "uint32")


def tensor_tensor(session, dst, data1, data2, op, engine, name):
    """dst = data1 <op> data2."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data1, "data1")
    rules.on_chip(data2, "data2")
    rules.same_free_size(data1, "data1", dst, "dst")
    rules.same_free_size(data2, "data2", dst, "dst")
    rules.not_both_psum(data1, data2, "data1", "data2")
    operator = binary(op, "op", session, (ARITHMETIC, BITVEC))
    where = _tensor_tensor_engine(engine, operator, dst, data1, data2)
    operands = (dst, data1, data2)
    if operator.kind is BITVEC:
        require_bit_patterns(operands, ("dst", "data1", "data2"), operator)
        write_bits(dst, operator.compute(bits(data1, "data1", dst), bits(data2, "data2", dst)))
    elif where is engines.gpsimd and _all_int32(operands):
        first = shaped(read_raw(data1, "data1").astype(np.int64), dst)
        second = shaped(read_raw(data2, "data2").astype(np.int64), dst)
        _require_natural_exponent(operator, second)
        write_raw(dst, operator.compute(first, second).astype(dst.info.storage))
    else:
        for operand, role in zip(operands, ("dst", "data1", "data2")):
            rules.not_packed(operand, role)
        first = shaped(read_float32(data1, "data1"), dst)
        second = shaped(read_float32(data2, "data2"), dst)
        compute_into(dst, operator, first, second)
    return session.finish(
        "tensor_tensor", where.name, (dst,), (data1, data2), name, alu=operator.name
    )


def _all_int32(operands):
    return all(operand.dtype in INT32 for operand in operands)


def _require_natural_exponent(operator, exponent):
    if operator.name == "power" and (exponent < 0).any():
        raise NkiValidationError(
            "power-exponent",
            f"nl.power of 32-bit integers with exponent {int(exponent.min())}: integer arithmetic "
            f"has no result for it. Use a float dtype.",
        )


def _tensor_tensor_engine(engine, operator, dst, data1, data2):
    rules.one_of(engine, "engine", (engines.unknown, engines.vector, engines.gpsimd))
    psum = dst.buffer is PSUM or data1.buffer is PSUM or data2.buffer is PSUM
    if operator.name == "power":
        if engine is engines.vector:
            raise NkiValidationError(
                "operator-engine", "nl.power runs on the GpSimd engine; leave engine out."
            )
        engine = engines.gpsimd
    elif engine is engines.unknown:
        if operator.kind is ARITHMETIC and not psum and _all_int32((dst, data1, data2)):
            engine = engines.gpsimd
        else:
            engine = engines.vector
    if engine is engines.gpsimd and psum:
        raise NkiValidationError(
            "gpsimd-psum", "the GpSimd engine cannot reach PSUM; an operand is there."
        )
    return engine


def tensor_scalar(
    session, dst, data, op0, operand0, reverse0, op1, operand1, reverse1, engine, name
):
    """dst = (data <op0> operand0) <op1> operand1, operands broadcast along the free axis."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_free_size(data, "data", dst, "dst")
    rules.flag(reverse0, "reverse0")
    rules.flag(reverse1, "reverse1")
    first = alu(op0, "op0", session)
    second = None if op1 is None else alu(op1, "op1", session)
    if op1 is None:
        if operand1 is not None:
            raise NkiValidationError("operand-unused", "operand1 is given without op1.")
        if reverse1:
            raise NkiValidationError("reverse", "reverse1 is given without op1.")
    elif (first.kind is BITVEC) != (second.kind is BITVEC):
        raise NkiValidationError(
            "operator-mix",
            f"op0=nl.{first.name} and op1=nl.{second.name}: both must be bitvec operators or both "
            f"arithmetic.",
        )
    where = _tensor_scalar_engine(session, engine, first, second, (dst, data, operand0, operand1))
    if first.kind is BITVEC:
        require_bit_patterns((dst, data), ("dst", "data"), first)
        values = apply_bits(first, bits(data, "data", data), data, operand0, "operand0", reverse0)
        if second is not None:
            values = apply_bits(second, values, data, operand1, "operand1", reverse1)
        write_bits(dst, values)
    else:
        rules.not_packed(dst, "dst")
        rules.not_packed(data, "data")
        values = read_float32(data, "data")
        scalar0 = scalar_operand(first, operand0, "operand0", data, reverse0, FLOAT32)
        if second is None:
            apply_into(dst, first, values, scalar0, reverse0)
        else:
            scalar1 = scalar_operand(second, operand1, "operand1", data, reverse1, FLOAT32)
            values = apply(first, values, scalar0, reverse0)
            apply_into(dst, second, values, scalar1, reverse1)
    return session.finish(
        "tensor_scalar", where.name, (dst,), (data, operand0, operand1), name,
        alu=first.name if second is None else f"{first.name},{second.name}",
    )  # fmt: skip


def _tensor_scalar_engine(session, engine, first, second, operands):
    rules.one_of(
        engine, "engine", (engines.unknown, engines.vector, engines.scalar, engines.gpsimd)
    )
    names = (first.name, None if second is None else second.name)
    if "rsqrt" in names:
        if engine not in (engines.unknown, engines.gpsimd):
            raise NkiValidationError(
                "operator-engine",
                "nl.rsqrt in tensor_scalar runs on the GpSimd engine; leave engine out, or use "
                "nisa.activation(op=nl.rsqrt) on the Scalar engine.",
            )
        if any(type(one) is NkiTensor and one.buffer is PSUM for one in operands):
            raise NkiValidationError(
                "gpsimd-psum", "nl.rsqrt runs on the GpSimd engine, which cannot reach PSUM."
            )
        return engines.gpsimd
    if engine is engines.gpsimd:
        raise NkiValidationError(
            "operator-engine", "tensor_scalar runs on the GpSimd engine only for nl.rsqrt."
        )
    if engine is engines.scalar:
        allowed = (("multiply", "add"), ("multiply", None), ("add", None))
        if first.kind is BITVEC or (session.target.generation < 4 and names not in allowed):
            raise NkiValidationError(
                "operator-engine",
                f"the Scalar engine of {session.target.name} runs tensor_scalar as multiply+add, "
                f"multiply or add; found {names[0]}{'' if second is None else '+' + names[1]}.",
            )
        return engine
    return engines.vector


def scalar_tensor_tensor(
    session, dst, data, op0, operand0, op1, operand1, reverse0, reverse1, name
):
    """dst = (data <op0> operand0) <op1> operand1 with a tile operand1."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.on_chip(operand1, "operand1")
    rules.same_free_size(data, "data", dst, "dst")
    rules.same_free_size(operand1, "operand1", dst, "dst")
    rules.not_both_psum(data, operand1, "data", "operand1")
    for operand, role in ((dst, "dst"), (data, "data"), (operand1, "operand1")):
        rules.not_packed(operand, role)
    rules.flag(reverse0, "reverse0")
    rules.flag(reverse1, "reverse1")
    first = arithmetic(op0, "op0", session)
    second = binary(op1, "op1", session)
    scalar = scalar_operand(first, operand0, "operand0", data, reverse0)
    values = apply(first, read_float32(data, "data"), scalar, reverse0)
    tile = shaped(read_float32(operand1, "operand1"), dst)
    apply_into(dst, second, shaped(values, dst), tile, reverse1)
    return session.finish(
        "scalar_tensor_tensor", "vector", (dst,), (data, operand0, operand1), name,
        alu=f"{first.name},{second.name}",
    )  # fmt: skip


def reciprocal(session, dst, data, name):
    """dst = 1 / data."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_free_size(data, "data", dst, "dst")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    compute_into(dst, ALU["reciprocal"], shaped(read_float32(data, "data"), dst))
    return session.finish("reciprocal", "vector", (dst,), (data,), name)
