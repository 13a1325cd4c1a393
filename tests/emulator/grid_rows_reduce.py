"""Rows of the grid: reductions, scans and statistics of the Vector Engine.

Sums and products are over values that float32 adds and multiplies exactly, so that their order does
not matter.
"""

import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import LAST_FOUR, SOLID
from .grid_operators import ARITHMETIC, apply, column, one_width
from .grid_values import COMPUTABLE, INTEGERS, bits, eighths, f32, normal, powers, raw
from .support import nisa, nl

CMD = nisa.reduce_cmd
F32 = ("float32",)

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
        legal=lambda d, generation: not bitvec or one_width(d, ("data", "dst")),
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
        values = apply(op0, f32(x["data"]), f32(x.get("operand0", operand or 0)), False)
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
        column("reduce_res", output=True),
    ]
    if operand == "column":
        operands.append(column("operand0", dtypes=F32, values=exact))
    else:
        options["operand0"] = operand
    if init == "column":
        operands.append(column("reduce_init", dtypes=F32, values=exact))
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
        values = apply(op0, f32(x["src"]), f32(x.get("imm0", operand or 0)), False)
        register = np.broadcast_to(f32(IDENTITY[op1]), values.shape[:1])
        if command is CMD.load_reduce:
            register = f32(x["imm1"])[:, 0] if init == "column" else register * 0 + f32(init)
        found = np.empty_like(values)
        for at in range(values.shape[1]):
            found[:, at] = register = ARITHMETIC[op1](values[:, at], register)
        return {"dst": found}

    options = {"op0": getattr(nl, op0), "op1": getattr(nl, op1), "reduce_cmd": command}
    operands = [Operand("src", CUMULATIVE), Operand("dst", CUMULATIVE, output=True)]
    if operand == "column":
        operands.append(column("imm0", dtypes=F32))
    else:
        options["imm0"] = operand
    if init == "column":
        operands.append(column("imm1", dtypes=F32))
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
        for at in range(first.shape[1]):
            middle = apply(op0, first[:, at], running, reverse0)
            found[:, at] = running = apply(op1, middle, second[:, at], reverse1)
        return {"dst": found}

    options = {
        "op0": getattr(nl, op0), "op1": getattr(nl, op1), "reverse0": reverse0,
        "reverse1": reverse1,
    }  # fmt: skip
    operands = [Operand("data0"), Operand("data1"), Operand("dst", output=True)]
    if initial == "column":
        operands.append(column("initial"))
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
]  # fmt: skip

ROWS = [*TENSOR_REDUCE, *SCALAR_REDUCE, *SCANS, *STATISTICS]
