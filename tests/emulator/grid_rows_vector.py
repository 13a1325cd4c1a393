"""Rows of the grid: operators of the Vector Engine (and of GpSimd and ScalarE where they share)."""

import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import LAST_FOUR, SOLID
from .grid_values import (
    COMPUTABLE,
    INTEGERS,
    NUMPY,
    bits,
    eighths,
    f32,
    normal,
    powers,
    raw,
    special,
)
from .support import nisa, nl

S = ("sbuf",)
E = nisa.engine
CMD = nisa.reduce_cmd
F32 = ("float32",)


def _truth(function):
    return lambda a, b: function(a, b).astype(np.float32)


def _larger(a, b):
    return np.where(np.abs(a) > np.abs(b), a, b)


def _smaller(a, b):
    return np.where(np.abs(a) < np.abs(b), a, b)


ARITHMETIC = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "equal": _truth(np.equal), "not_equal": _truth(np.not_equal),
    "greater_equal": _truth(np.greater_equal), "greater": _truth(np.greater),
    "less_equal": _truth(np.less_equal), "less": _truth(np.less),
    "logical_and": _truth(np.logical_and), "logical_or": _truth(np.logical_or),
    "logical_xor": _truth(np.logical_xor), "abs_max": _larger, "abs_min": _smaller,
}  # fmt: skip
FROM_V4 = ("abs_max", "abs_min", "square", "relu")
UNARY = {
    "abs": np.abs, "square": np.square, "relu": lambda a: np.maximum(a, np.float32(0)),
    "reciprocal": lambda a: np.float32(1) / a,
    "rsqrt": lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(np.float32),
}  # fmt: skip
BITVEC = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift, "right_shift": np.right_shift,
}  # fmt: skip


def _generation(*names):
    return 4 if any(name in FROM_V4 for name in names) else 2


def _one_width(dtypes, roles):
    return len({np.dtype(dtypes[role]).itemsize for role in roles}) == 1


def _column(role, **settings):
    return Operand(role, shape=lambda p, w: (p, 1), **settings)


# tensor_tensor.


def _exact_integers(env):
    """All operands are 32-bit integers: native integer arithmetic on GpSimd."""
    return all(env.dtypes[role] in ("int32", "uint32") for role in ("data1", "data2", "dst"))


def _wrapped(values, dtype):
    """An integer of any size in 32 bits."""
    return (values & 0xFFFFFFFF).astype(np.uint32).view(dtype)


def _tensor_tensor(name, engine=E.unknown):
    function = ARITHMETIC[name]

    def reference(x, env):
        if _exact_integers(env) and engine is not E.vector:
            exact = function(x["data1"].astype(np.int64), x["data2"].astype(np.int64))
            return {"dst": Result(_wrapped(exact.astype(np.int64), env.dtypes["dst"]), True)}
        return {"dst": function(f32(x["data1"]), f32(x["data2"]))}

    buffers = S if engine is E.gpsimd else ("sbuf", "psum")
    return Row(
        "tensor_tensor", (
            Operand("data1", buffers=buffers), Operand("data2", buffers=buffers),
            Operand("dst", output=True, buffers=buffers),
        ), reference, {"op": getattr(nl, name), "engine": engine}, f"{name} {engine.name}",
        in_place=("data1", "data2"), places_legal=lambda b: not b["data1"] == b["data2"] == "psum",
        generation=_generation(name), widths=(24,) if name == "add" else (8,),
    )  # fmt: skip


def _bitwise(name):
    shift = "shift" in name

    def reference(x, env):
        width = BITVEC[name](raw(x["data1"]), raw(x["data2"]))
        return {"dst": Result(width.view(env.dtypes["dst"]), True)}

    return Row(
        "tensor_tensor", (
            Operand("data1", INTEGERS, values=bits),
            Operand("data2", INTEGERS, values=_shifts if shift else bits,
                    extremes=_shifts if shift else special),
            Operand("dst", INTEGERS, output=True),
        ), reference, {"op": getattr(nl, name)}, name, in_place=("data1", "data2"),
        places_legal=lambda b: not b["data1"] == b["data2"] == "psum",
        legal=lambda dtypes, generation: _one_width(dtypes, ("data1", "data2", "dst")), widths=(8,),
    )  # fmt: skip


def _shifts(generator, dtype, shape):
    """Shift distances within the width of the dtype."""
    stored = np.dtype(NUMPY[dtype])
    return generator.integers(0, 8 * stored.itemsize, shape).astype(stored)


def _power():
    def reference(x, env):
        base, exponent = x["data1"].astype(np.float64), x["data2"].astype(np.float64)
        return {"dst": np.power(base, exponent)}

    def exponents(generator, dtype, shape):
        return generator.integers(0, 4, shape).astype(np.float32).astype(NUMPY[dtype])

    return Row(
        "tensor_tensor", (
            Operand("data1", buffers=S, values=eighths),
            Operand("data2", buffers=S, values=exponents, extremes=exponents),
            Operand("dst", buffers=S, output=True),
        ), reference, {"op": nl.power}, "power", in_place=("data1",), widths=(8,), extremes=False,
        ulps=1, ulps32=1,
    )  # fmt: skip


TENSOR_TENSOR = [
    *(_tensor_tensor(name) for name in ARITHMETIC),
    _tensor_tensor("add", E.vector), _tensor_tensor("multiply", E.gpsimd),
    *(_bitwise(name) for name in BITVEC), _power(),
]  # fmt: skip


# tensor_scalar and scalar_tensor_tensor.


def _apply(name, values, operand, reverse):
    if name in UNARY:
        return UNARY[name](values)
    first, second = (operand, values) if reverse else (values, operand)
    return ARITHMETIC[name](first, second).astype(np.float32)


def _scalar(first, second=None, engine=E.unknown, **settings):
    """tensor_scalar; each step is (operator, number or "column", reversed)."""
    steps = [first] + ([second] if second else [])
    names = [step[0] for step in steps]
    gpsimd = "rsqrt" in names
    buffers = S if gpsimd else ("sbuf", "psum")
    operands = [Operand("data", buffers=buffers), Operand("dst", output=True, buffers=buffers)]
    options = {"engine": engine}
    for position, (name, operand, reverse) in enumerate(steps):
        options[f"op{position}"] = getattr(nl, name)
        options[f"reverse{position}"] = reverse
        if operand == "column":
            operands.append(_column(f"operand{position}", dtypes=F32))
        else:
            options[f"operand{position}"] = operand

    def reference(x, env):
        values = f32(x["data"])
        for position, (name, operand, reverse) in enumerate(steps):
            if operand == "column":
                operand = x[f"operand{position}"]
            values = _apply(name, values, None if operand is None else f32(operand), reverse)
        return {"dst": values}

    words = " ".join(
        f"{'reversed ' if reverse else ''}{name} {operand}" for name, operand, reverse in steps
    )
    settings = {"in_place": ("data",), "generation": _generation(*names), **settings}
    return Row(
        "tensor_scalar", tuple(operands), reference, options, f"{words} {engine.name}", **settings
    )


def _scalar_bits(first, second=None):
    """tensor_scalar with bitvec operators and integer operands, or columns of data's dtype."""
    steps = [first] + ([second] if second else [])
    operands = [Operand("data", INTEGERS, values=bits), Operand("dst", INTEGERS, output=True)]
    options = {}
    roles = ["data", "dst"]
    for position, (name, operand, reverse) in enumerate(steps):
        options[f"op{position}"] = getattr(nl, name)
        options[f"reverse{position}"] = reverse
        if operand == "column":
            operands.append(
                _column(f"operand{position}", dtypes=INTEGERS, values=_shifts, extremes=_shifts)
            )
            roles.append(f"operand{position}")
        else:
            options[f"operand{position}"] = operand

    def reference(x, env):
        values = raw(x["data"])
        for position, (name, operand, reverse) in enumerate(steps):
            if name == "invert":
                values = np.invert(values)
                continue
            if operand == "column":
                operand = raw(x[f"operand{position}"])
            else:
                operand = values.dtype.type(operand)
            pair = (operand, values) if reverse else (values, operand)
            values = BITVEC[name](*pair)
        return {"dst": Result(values.view(env.dtypes["dst"]), True)}

    return Row(
        "tensor_scalar", tuple(operands), reference, options,
        " ".join(f"{name} {operand}" for name, operand, _ in steps), in_place=("data",),
        legal=lambda dtypes, generation: _one_width(dtypes, roles), widths=(8,),
    )  # fmt: skip


TENSOR_SCALAR = [
    _scalar(("multiply", 0.37, False), ("add", "column", False)),
    _scalar(("subtract", "column", True), ("multiply", -3, False)),
    _scalar(("subtract", 1.1, False), ("subtract", 0.3, True)),
    *(_scalar((name, 0.5, False), widths=(8,)) for name in ARITHMETIC),
    *(
        _scalar((name, "column", True), widths=(8,))
        for name in ("greater", "less_equal", "abs_min")
    ),
    *(
        _scalar((name, None, False), widths=(8,))
        for name in ("abs", "square", "relu", "reciprocal")
    ),
    _scalar(("abs", 0, False), ("maximum", "column", False)),
    _scalar(("add", 2.0, False), ("reciprocal", None, False)),
    _scalar(("rsqrt", 0.0, False), widths=(8,), ulps=1, ulps32=1),
    _scalar(("multiply", 2.5, False), ("add", -1.0, False), E.scalar),
    _scalar(("multiply", "column", False), None, E.scalar),
    _scalar(("add", "column", False), None, E.scalar),
    _scalar(("maximum", 0.0, False), None, E.vector),
    _scalar_bits(("bitwise_and", 0x55, False)),
    _scalar_bits(("bitwise_xor", 7, False), ("left_shift", 2, False)),
    _scalar_bits(("invert", None, False), ("right_shift", "column", False)),
    _scalar_bits(("left_shift", 1, True), ("bitwise_or", 1, False)),
]


def _three(op0, operand, op1, reverse0, reverse1):
    def reference(x, env):
        middle = _apply(op0, f32(x["data"]), f32(x.get("operand0", operand or 0)), reverse0)
        return {"dst": _apply(op1, middle, f32(x["operand1"]), reverse1)}

    options = {
        "op0": getattr(nl, op0), "op1": getattr(nl, op1), "reverse0": reverse0,
        "reverse1": reverse1,
    }  # fmt: skip
    operands = [Operand("data"), Operand("operand1"), Operand("dst", output=True)]
    if operand == "column":
        operands.append(_column("operand0"))
    else:
        options["operand0"] = operand
    return Row(
        "scalar_tensor_tensor",
        tuple(operands),
        reference,
        options,
        f"{op0} {operand} {op1}",
        places_legal=lambda b: not b["data"] == b["operand1"] == "psum",
        in_place=("data", "operand1"),
    )


SCALAR_TENSOR_TENSOR = [
    _three("multiply", 0.37, "add", False, False),
    _three("subtract", "column", "subtract", True, False),
    _three("add", "column", "subtract", False, True),
    _three("abs", None, "maximum", False, False),
]


# Reductions.

FOLD = {
    "add": np.add.reduce, "multiply": np.multiply.reduce, "maximum": np.maximum.reduce,
    "minimum": np.minimum.reduce, "subtract": np.subtract.reduce,
    "logical_and": np.logical_and.reduce, "logical_or": np.logical_or.reduce,
    "logical_xor": np.logical_xor.reduce, "bitwise_and": np.bitwise_and.reduce,
    "bitwise_or": np.bitwise_or.reduce, "bitwise_xor": np.bitwise_xor.reduce,
}  # fmt: skip
# What is exact in float32 in whatever order it is folded.
EXACT = {"add": eighths, "subtract": eighths, "multiply": powers}


def _folded(name, values):
    return FOLD[name](values, axis=-1).astype(np.float32)


def _reduce(name, last, negate, keepdims=False):
    """tensor_reduce of all free dimensions, or of the last one, which then has four elements."""
    bitvec = name.startswith("bitwise")
    dtypes = INTEGERS if bitvec else COMPUTABLE

    def reference(x, env):
        values = raw(x["data"]) if bitvec else f32(x["data"])
        if last:
            values = values.reshape(values.shape[0], -1, 4)
        else:
            values = values[:, None, :]
        if bitvec:
            return {"dst": Result(FOLD[name](values, axis=-1).view(env.dtypes["dst"]), True)}
        return {"dst": _folded(name, values) * np.float32(-1 if negate else 1)}

    def options(env):
        rank = len(env.shapes["data"])
        axis = (rank - 1,) if last else tuple(range(1, rank))
        axis = axis[0] if len(axis) == 1 and negate else axis
        return {"op": getattr(nl, name), "axis": axis, "negate": negate, "keepdims": keepdims}

    values = EXACT.get(name, bits if bitvec else normal)
    return Row(
        "tensor_reduce", (
            Operand("data", dtypes, values=values, layouts=LAST_FOUR if last else ()),
            Operand("dst", dtypes, output=True, shape=lambda p, w: (p, w // 4 if last else 1)),
        ), reference, options,
        f"{name} {'last' if last else 'all'}{' negated' if negate else ''}",
        legal=lambda d, generation: not bitvec or _one_width(d, ("data", "dst")),
        extremes=name not in EXACT and not name.startswith("m"), loose=() if last else ("data",),
    )  # fmt: skip


TENSOR_REDUCE = [
    *(_reduce(name, False, False) for name in FOLD),
    *(_reduce(name, True, True) for name in ("add", "maximum", "minimum", "multiply")),
    _reduce("add", True, False, True), _reduce("bitwise_xor", True, False),
]  # fmt: skip

IDENTITY = {"add": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf, "subtract": 0}


def _scalar_reduce(op0, operand, fold, command, negate, init=None):
    def reference(x, env):
        values = _apply(op0, f32(x["data"]), f32(x.get("operand0", operand or 0)), False)
        total = FOLD[fold](values, axis=1)[:, None]
        if command is CMD.load_reduce:
            total = ARITHMETIC[fold](f32(x.get("reduce_init", init)), total)
        total = (-total if negate else total).astype(np.float32)
        return {"dst": values, "reduce_res": total}

    options = {
        "op0": getattr(nl, op0), "reduce_op": getattr(nl, fold), "reduce_cmd": command,
        "reduce_res_negate": negate,
    }  # fmt: skip
    exact = EXACT.get(fold, normal)
    operands = [
        Operand("data", values=exact),
        Operand("dst", output=True),
        _column("reduce_res", output=True),
    ]
    if operand == "column":
        operands.append(_column("operand0", dtypes=F32, values=exact))
    else:
        options["operand0"] = operand
    if init == "column":
        operands.append(_column("reduce_init", dtypes=F32, values=exact))
    elif init is not None:
        options["reduce_init"] = init
    return Row(
        "tensor_scalar_reduce", tuple(operands), reference, options,
        f"{op0} {operand} {fold} {command.name}", in_place=("data",), extremes=False,
    )  # fmt: skip


SCALAR_REDUCE = [
    _scalar_reduce("multiply", 0.5, "add", CMD.reset_reduce, False),
    _scalar_reduce("multiply", "column", "maximum", CMD.reset_reduce, True),
    _scalar_reduce("abs", None, "minimum", CMD.reset_reduce, False),
    _scalar_reduce("multiply", 2, "multiply", CMD.reset_reduce, False),
    _scalar_reduce("add", 1, "add", CMD.load_reduce, False, 2.5),
    _scalar_reduce("subtract", "column", "minimum", CMD.load_reduce, True, "column"),
]


# Scans.

CUMULATIVE = (
    "bfloat16", "float16", "float32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "uint8",
    "uint16", "int8", "int16",
)  # fmt: skip


def _cumulative(op0, operand, op1, command=CMD.reset_reduce, init=None):
    def reference(x, env):
        values = _apply(op0, f32(x["src"]), f32(x.get("imm0", operand or 0)), False)
        register = np.broadcast_to(f32(IDENTITY[op1]), values.shape[:1])
        if command is CMD.load_reduce:
            register = f32(x["imm1"])[:, 0] if init == "column" else register * 0 + f32(init)
        found = np.empty_like(values)
        for column in range(values.shape[1]):
            found[:, column] = register = ARITHMETIC[op1](values[:, column], register)
        return {"dst": found}

    options = {"op0": getattr(nl, op0), "op1": getattr(nl, op1), "reduce_cmd": command}
    operands = [Operand("src", CUMULATIVE), Operand("dst", CUMULATIVE, output=True)]
    if operand == "column":
        operands.append(_column("imm0", dtypes=F32))
    else:
        options["imm0"] = operand
    if init == "column":
        operands.append(_column("imm1", dtypes=F32))
    elif init is not None:
        options["imm1"] = init
    return Row(
        "tensor_scalar_cumulative",
        tuple(operands),
        reference,
        options,
        f"{op0} {operand} {op1}",
        in_place=("src",),
        extremes=op1 in ("maximum", "minimum"),
    )


def _scan(op0, op1, reverse0, reverse1, initial):
    def reference(x, env):
        first, second = f32(x["data0"]), f32(x["data1"])
        running = f32(x["initial"])[:, 0] if initial == "column" else f32(initial)
        found = np.empty_like(first)
        for column in range(first.shape[1]):
            middle = _apply(op0, first[:, column], running, reverse0)
            found[:, column] = running = _apply(op1, middle, second[:, column], reverse1)
        return {"dst": found}

    options = {
        "op0": getattr(nl, op0), "op1": getattr(nl, op1), "reverse0": reverse0,
        "reverse1": reverse1,
    }  # fmt: skip
    operands = [Operand("data0"), Operand("data1"), Operand("dst", output=True)]
    if initial == "column":
        operands.append(_column("initial"))
    else:
        options["initial"] = initial
    return Row(
        "tensor_tensor_scan",
        tuple(operands),
        reference,
        options,
        f"{op0} {op1} {initial}",
        in_place=("data0", "data1"),
        extremes=op0 != "multiply",
        places_legal=lambda b: not b["data0"] == b["data1"] == "psum",
        widths=(8,),
    )


SCANS = [
    _cumulative("multiply", 0.37, "add"), _cumulative("subtract", "column", "subtract"),
    _cumulative("add", 0.0, "maximum"), _cumulative("abs", None, "minimum"),
    _cumulative("multiply", 1.0, "multiply", CMD.load_reduce, 0.5),
    _cumulative("add", "column", "add", CMD.load_reduce, "column"),
    _scan("multiply", "add", False, False, 0.0), _scan("add", "maximum", False, False, "column"),
    _scan("subtract", "subtract", True, False, 1.5),
    _scan("minimum", "subtract", False, True, "column"),
]  # fmt: skip


# Statistics.


def _statistics(x, env):
    values = x["data"].astype(np.float64)
    found = []
    for part in (values[:, 0::2], values[:, 1::2]):
        mean = part.mean(axis=1)
        spread = ((part - mean[:, None]) ** 2).sum(axis=1)
        found += [np.full_like(mean, part.shape[1]), mean, spread]
    return {"dst": np.stack(found, axis=1)}


def _aggregate(x, env):
    triples = x["data"].astype(np.float64).reshape(env.partitions, -1, 3)
    count, mean, spread = triples[..., 0], triples[..., 1], triples[..., 2]
    total = count.sum(axis=1)
    average = (count * mean).sum(axis=1) / total
    variance = (spread + count * (mean - average[:, None]) ** 2).sum(axis=1) / total
    return {"dst": np.stack([average, variance], axis=1)}


def _counts(x, env):
    """Four elements in each tuple, so that the quotients are exact; no spread is negative."""
    triples = x["data"].reshape(env.partitions, -1, 3).copy()
    triples[..., 0] = 4
    triples[..., 2] = np.abs(f32(triples[..., 2])).astype(triples.dtype)
    return {"data": triples.reshape(x["data"].shape)}


STATISTICS = [
    Row(
        "bn_stats",
        (Operand("data", values=eighths), Operand("dst", output=True, shape=lambda p, w: (p, 6))),
        _statistics, widths=(8, 16), extremes=False, loose=("data",),
    ),
    Row(
        "bn_aggr",
        (
            Operand("data", values=eighths, shape=lambda p, w: (p, 3 * w), layouts=SOLID),
            Operand("dst", output=True, shape=lambda p, w: (p, 2)),
        ),
        _aggregate, prepare=_counts, widths=(1, 4, 8), extremes=False,
    ),
    Row(
        "reciprocal", (Operand("data"), Operand("dst", output=True)),
        lambda x, env: {"dst": np.float32(1) / f32(x["data"])}, in_place=("data",),
    ),
]  # fmt: skip

ROWS = [
    *TENSOR_TENSOR, *TENSOR_SCALAR, *SCALAR_TENSOR_TENSOR, *TENSOR_REDUCE, *SCALAR_REDUCE, *SCANS,
    *STATISTICS,
]  # fmt: skip
