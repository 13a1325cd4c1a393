"""Vector Engine: element-wise operators, reductions and statistics in float32."""

import numpy as np

from .. import rules
from ..access import (
    float32_target,
    read_float32,
    read_raw,
    require_writable,
    write_float32,
    write_raw,
)
from ..accumulators import accumulate, accumulator, lanes_of, require_command
from ..enums import engine as engines
from ..enums import reduce_cmd
from ..errors import NkiNotImplemented, NkiValidationError
from ..operators import ALU, ARITHMETIC, BITVEC, UNARY, alu, binary, reduction
from ..regions import MemoryRegion
from ..tensor import NkiTensor
from .operands import number_or_column, row_result

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
        _require_bit_patterns(operands, ("dst", "data1", "data2"), operator)
        _write_bits(dst, operator.compute(_bits(data1, "data1", dst), _bits(data2, "data2", dst)))
    elif where is engines.gpsimd and operator.name != "power" and _all_int32(operands):
        first = read_raw(data1, "data1").astype(np.int64).reshape(dst.shape)
        second = read_raw(data2, "data2").astype(np.int64).reshape(dst.shape)
        write_raw(dst, operator.compute(first, second).astype(dst.info.storage))
    else:
        for operand, role in zip(operands, ("dst", "data1", "data2")):
            rules.not_packed(operand, role)
        first = _shaped(read_float32(data1, "data1"), dst)
        second = _shaped(read_float32(data2, "data2"), dst)
        _compute_into(dst, operator, first, second)
    return session.finish(
        "tensor_tensor", where.name, (dst,), (data1, data2), name, alu=operator.name
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
    first = alu(op0, "op0", session)
    second = None if op1 is None else alu(op1, "op1", session)
    if op1 is None and operand1 is not None:
        raise NkiValidationError("operand-unused", "operand1 is given without op1.")
    if second is not None and (first.kind is BITVEC) != (second.kind is BITVEC):
        raise NkiValidationError(
            "operator-mix",
            f"op0=nl.{first.name} and op1=nl.{second.name}: both must be bitvec operators or both "
            f"arithmetic.",
        )
    where = _tensor_scalar_engine(session, engine, first, second, dst, data)
    if first.kind is BITVEC:
        _require_bit_patterns((dst, data), ("dst", "data"), first)
        bits = _apply_bits(first, _bits(data, "data", data), operand0, "operand0", reverse0)
        if second is not None:
            bits = _apply_bits(second, bits, operand1, "operand1", reverse1)
        _write_bits(dst, bits.reshape(dst.shape))
    else:
        rules.not_packed(dst, "dst")
        rules.not_packed(data, "data")
        values = read_float32(data, "data")
        scalar0 = _operand(first, operand0, "operand0", data, reverse0, FLOAT32)
        if second is None:
            _apply_into(dst, first, values, scalar0, reverse0)
        else:
            scalar1 = _operand(second, operand1, "operand1", data, reverse1, FLOAT32)
            values = _apply(first, values, scalar0, reverse0)
            _apply_into(dst, second, values, scalar1, reverse1)
    return session.finish(
        "tensor_scalar", where.name, (dst,), (data, operand0, operand1), name,
        alu=first.name if second is None else f"{first.name},{second.name}",
    )  # fmt: skip


def _tensor_scalar_engine(session, engine, first, second, dst, data):
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
        if dst.buffer is PSUM or data.buffer is PSUM:
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
    first = _arithmetic(op0, "op0", session)
    second = binary(op1, "op1", session)
    scalar = _operand(first, operand0, "operand0", data, reverse0)
    values = _apply(first, read_float32(data, "data"), scalar, reverse0)
    tile = _shaped(read_float32(operand1, "operand1"), dst)
    _apply_into(dst, second, _shaped(values, dst), tile, reverse1)
    return session.finish(
        "scalar_tensor_tensor", "vector", (dst,), (data, operand0, operand1), name,
        alu=f"{first.name},{second.name}",
    )  # fmt: skip


def tensor_reduce(session, dst, op, data, axis, negate, keepdims, name):
    """dst = reduction of data over its last free dimensions."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_partitions(dst, "dst", data.shape[0], "data")
    operator = reduction(op, "op", session, (ARITHMETIC, BITVEC))
    first = _first_reduced(axis, data)
    kept = data.shape[:first]
    rows = 1
    for size in kept:
        rows *= size
    if dst.size != rows:
        raise NkiValidationError(
            "reduce-shape",
            f"reducing axis {axis} of data {list(data.shape)} leaves {rows // kept[0]} elements "
            f"per partition; dst {list(dst.shape)} has {dst.size // kept[0]}.",
        )
    if operator.kind is BITVEC:
        if negate:
            raise NkiValidationError(
                "reduce-negate", f"negate=True with nl.{operator.name}; it needs an arithmetic op."
            )
        _require_bit_patterns((dst, data), ("dst", "data"), operator)
        _write_bits(dst, operator.reduce(_bits(data, "data", data).reshape(kept + (-1,))))
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
    if sorted(axes) != list(range(first, rank)) or first < 1:
        raise NkiValidationError(
            "reduce-axis",
            f"axis={axis!r} of data {list(data.shape)}; the reduced axes must be the last free "
            f"dimensions, e.g. {tuple(range(1, rank))} or ({rank - 1},).",
        )
    return first


# Neutral values of the accumulator, stub of tensor_scalar_reduce.
IDENTITIES = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


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
    first = _arithmetic(op0, "op0", session)
    folding = reduction(reduce_op, "reduce_op", session, names=tuple(IDENTITIES))
    if reverse0:
        raise NkiValidationError("reverse", "reverse0 is not supported by tensor_scalar_reduce.")
    require_command(
        command, (reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.load_reduce)
    )
    if (reduce_init is not None) != (command is reduce_cmd.load_reduce):
        raise NkiValidationError(
            "reduce-init", "reduce_init goes with reduce_cmd.load_reduce and only with it."
        )
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", data)
    scalar = _operand(first, operand0, "operand0", data, False, FLOAT32)
    values = _apply(first, read_float32(data, "data"), scalar, False)
    registers, lanes = accumulator(session, "vector"), lanes_of(data)
    partial = folding.reduce(values.reshape(values.shape[0], -1))
    if command is reduce_cmd.load_reduce:
        start = number_or_column(reduce_init, "reduce_init", data, FLOAT32)
        start = np.broadcast_to(start, data.shape[:1] + (1,) * (len(data.shape) - 1))
        registers.load(lanes, folding.compute(start.reshape(-1), partial))
    else:
        accumulate(
            registers, lanes, command, folding, IDENTITIES[folding.name], lambda: partial
        )
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


def reciprocal(session, dst, data, name):
    """dst = 1 / data."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_free_size(data, "data", dst, "dst")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    _compute_into(dst, ALU["reciprocal"], _shaped(read_float32(data, "data"), dst))
    return session.finish("reciprocal", "vector", (dst,), (data,), name)


def bn_stats(session, dst, data, name):
    """dst = (count, mean, variance * count) of the even and of the odd elements of each row."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_partitions(dst, "dst", data.shape[0], "data")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    partitions = data.shape[0]
    width = data.size // partitions
    if width > session.target.bn_stats_free:
        raise NkiValidationError(
            "bn-stats-free",
            f"data has {width} elements per partition; bn_stats takes at most "
            f"{session.target.bn_stats_free}. Split the row and combine with bn_aggr.",
        )
    _require_width(dst, "dst", 6, "bn_stats writes six values a partition")
    values = read_float32(data, "data").reshape(partitions, width)
    result = np.zeros((partitions, 6), np.float32)
    for first, part in ((0, values[:, 0::2]), (3, values[:, 1::2])):
        if part.shape[1]:
            mean = np.add.reduce(part, axis=1, keepdims=True) / np.float32(part.shape[1])
            deviation = part - mean
            result[:, first] = part.shape[1]
            result[:, first + 1] = mean[:, 0]
            result[:, first + 2] = np.add.reduce(deviation * deviation, axis=1)
    write_float32(dst, result)
    return session.finish("bn_stats", "vector", (dst,), (data,), name)


def bn_aggr(session, dst, data, name):
    """dst = (mean, population variance) from (count, mean, variance * count) tuples."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_partitions(dst, "dst", data.shape[0], "data")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    partitions = data.shape[0]
    width = data.size // partitions
    if width % 3:
        raise NkiValidationError(
            "bn-aggr-width",
            f"data has {width} elements per partition; bn_aggr takes (count, mean, variance*count) "
            f"tuples, so a multiple of 3.",
        )
    _require_width(dst, "dst", 2, "bn_aggr writes two values a partition")
    tuples = read_float32(data, "data").reshape(partitions, width // 3, 3)
    count, mean, spread = tuples[:, :, 0], tuples[:, :, 1], tuples[:, :, 2]
    total = np.add.reduce(count, axis=1)
    average = np.add.reduce(count * mean, axis=1) / total
    shift = mean - average[:, None]
    variance = np.add.reduce(spread + count * shift * shift, axis=1) / total
    write_float32(dst, np.stack([average, variance], axis=1))
    return session.finish("bn_aggr", "vector", (dst,), (data,), name)


def _require_width(tensor, role, width, why):
    found = tensor.size // tensor.shape[0]
    if found != width:
        raise NkiValidationError(
            "free-size", f"{role} has {found} elements per partition; {why}."
        )


# Applying operators.


def _arithmetic(op, role, session):
    operator = alu(op, role, session)
    if operator.kind is BITVEC:
        raise NkiValidationError(
            "operator-kind", f"{role}=nl.{operator.name}; only arithmetic operators are allowed."
        )
    return operator


def _operand(operator, value, role, data, reverse, dtypes=None):
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


def _shaped(values, like):
    return values if values.shape == like.shape else values.reshape(like.shape)


def _apply(operator, values, scalar, reverse):
    if scalar is None:
        return operator.compute(values)
    if reverse:
        return operator.compute(scalar, values)
    return operator.compute(values, scalar)


def _apply_into(dst, operator, values, scalar, reverse):
    if scalar is None:
        _compute_into(dst, operator, values)
    elif reverse:
        _compute_into(dst, operator, scalar, values)
    else:
        _compute_into(dst, operator, values, scalar)


def _compute_into(dst, operator, *inputs):
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


def _all_int32(operands):
    return all(operand.dtype in INT32 for operand in operands)


def _require_bit_patterns(operands, roles, operator):
    for operand, role in zip(operands, roles):
        rules.integers(operand, role, f"nl.{operator.name}")
    sizes = {operand.info.itemsize for operand in operands}
    if len(sizes) != 1:
        raise NkiValidationError(
            "bitvec-width",
            f"nl.{operator.name} treats elements as bit patterns; "
            f"{', '.join(f'{role} is {one.dtype}' for one, role in zip(operands, roles))}, which "
            f"differ in width.",
        )


def _bits(tensor, role, like):
    bits = read_raw(tensor, role).view(tensor.info.raw)
    return bits if bits.shape == like.shape else bits.reshape(like.shape)


def _apply_bits(operator, bits, operand, role, reverse):
    if operator.name == "invert":
        if operand not in (None, 0):
            raise NkiValidationError("operand-unused", f"nl.invert takes no {role}.")
        return np.invert(bits)
    if type(operand) is NkiTensor:
        raise NkiNotImplemented(f"tensor_scalar with a bitvec operator and a tensor {role}")
    if isinstance(operand, bool) or not hasattr(operand, "__index__"):
        raise NkiValidationError("operand-type", f"{role} is {operand!r}; expected an integer.")
    value = bits.dtype.type(operand.__index__() & (2 ** (8 * bits.dtype.itemsize) - 1))
    return operator.compute(value, bits) if reverse else operator.compute(bits, value)


def _write_bits(dst, bits):
    write_raw(dst, np.ascontiguousarray(bits).view(dst.info.storage))
