"""Rows of the grid: operators of the Vector Engine (and of GpSimd and ScalarE where they share)."""

import numpy as np

from .grid import Operand, Result, Row
from .grid_operators import ARITHMETIC, BITVEC, apply, column, generation_of, one_width
from .grid_values import INTEGERS, NUMPY, bits, eighths, f32, raw, special
from .support import nisa, nl

S = ("sbuf",)
E = nisa.engine
F32 = ("float32",)


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
        generation=generation_of(name), widths=(24,) if name == "add" else (8,),
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
        legal=lambda dtypes, generation: one_width(dtypes, ("data1", "data2", "dst")), widths=(8,),
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
            operands.append(column(f"operand{position}", dtypes=F32))
        else:
            options[f"operand{position}"] = operand

    def reference(x, env):
        values = f32(x["data"])
        for position, (name, operand, reverse) in enumerate(steps):
            if operand == "column":
                operand = x[f"operand{position}"]
            values = apply(name, values, None if operand is None else f32(operand), reverse)
        return {"dst": values}

    words = " ".join(
        f"{'reversed ' if reverse else ''}{name} {operand}" for name, operand, reverse in steps
    )
    settings = {"in_place": ("data",), "generation": generation_of(*names), **settings}
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
                column(f"operand{position}", dtypes=INTEGERS, values=_shifts, extremes=_shifts)
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
        legal=lambda dtypes, generation: one_width(dtypes, roles), widths=(8,),
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
        middle = apply(op0, f32(x["data"]), f32(x.get("operand0", operand or 0)), reverse0)
        return {"dst": apply(op1, middle, f32(x["operand1"]), reverse1)}

    options = {
        "op0": getattr(nl, op0), "op1": getattr(nl, op1), "reverse0": reverse0,
        "reverse1": reverse1,
    }  # fmt: skip
    operands = [Operand("data"), Operand("operand1"), Operand("dst", output=True)]
    if operand == "column":
        operands.append(column("operand0"))
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

RECIPROCAL = [
    Row(
        "reciprocal", (Operand("data"), Operand("dst", output=True)),
        lambda x, env: {"dst": np.float32(1) / f32(x["data"])}, in_place=("data",),
    ),
]  # fmt: skip

ROWS = [*TENSOR_TENSOR, *TENSOR_SCALAR, *SCALAR_TENSOR_TENSOR, *RECIPROCAL]
