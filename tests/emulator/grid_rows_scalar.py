"""Rows of the grid: activation functions of the Scalar Engine, and the exponential of gen4.

The chip approximates the functions with polynomials that are not published; the emulator gives the
true function. The references are float64. A result in a dtype of at most 16 bits may be one step
off (the exact value can lie between two of them), a float32 one `STEPS` (what float32 library
functions give), plus the absolute error that functions.py states for erf.
"""

import math

import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import REPEATING, SOLID
from .grid_values import (
    COMPUTABLE,
    converted,
    eighths,
    f32,
    finite,
    normal,
    positive,
    special,
)
from .support import nisa, nl

CMD = nisa.reduce_cmd
F32 = ("float32",)
STEPS = 6
ROOT_TWO, ROOT_PI = math.sqrt(2), math.sqrt(math.pi)
erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def softplus(x):
    """log(1 + exp(x))."""
    return np.logaddexp(0, x)


def normal_below(x):
    """The normal distribution function."""
    return 0.5 * erfc(-x / ROOT_TWO)


def bell(x):
    """The normal density."""
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh(x):
    """GELU with the tanh approximation, as x * sigmoid, which does not cancel."""
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


def gelu_sigmoid_dx(x):
    """Derivative of x * sigmoid(1.702 x)."""
    s = sigmoid(1.702 * x)
    return s + 1.702 * x * s * (1 - s)


def silu_dx(x):
    """Derivative of x * sigmoid(x)."""
    return sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x))


FUNCTIONS = {
    "copy": lambda x: x,
    "square": np.square,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * normal_below(x),
    "gelu_dx": lambda x: normal_below(x) + x * bell(x),
    "gelu_apprx_tanh": gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": gelu_sigmoid_dx,
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": silu_dx,
    "tanh": np.tanh,
    "softplus": softplus,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "erf": erf,
    "erf_dx": lambda x: 2 / ROOT_PI * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": np.sign,
    "abs": np.abs,
}
EXACT = ("copy", "square", "relu", "reciprocal", "sign", "abs", "sqrt")
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal")
RANGED = (*POSITIVE, "sin", "arctan")  # Outside a range, the chip's results are invalid.
# float32 steps that end in a difference of nearly equal numbers (1 + tanh, 1 + erf, s + x s (1 -
# s)) are exact to a step at the size of those numbers, not of the difference.
CANCEL = ("gelu", "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid_dx", "silu_dx", "erf")
# The argument of the exponential, whose rounding to float32 the exponential magnifies.
EXPONENT = {
    "gelu_apprx_sigmoid": lambda x: 1.702 * np.abs(x), "erf_dx": np.square, "mish": np.abs,
    "gelu_dx": np.square,
}  # fmt: skip
SMALLEST = 2.0**-126  # Below, a float32 intermediate may overflow where its inverse is subnormal.


def _slack(name, x, result, dtype):
    """Absolute error that the float32 steps of a function explain."""
    size = np.maximum(np.abs(x), 1)
    slack = SMALLEST * size
    if name in CANCEL:
        slack = slack + 2.0**-22 * size
    if name in EXPONENT:
        slack = slack + np.abs(result) * EXPONENT[name](x) * 2.0**-23
    if dtype in ("int32", "uint32"):
        slack = slack + np.abs(result) * STEPS * 2.0**-23
    return slack


def _within(low, high):
    """Floats in a range, integers in it."""

    def values(generator, dtype, shape):
        if dtype == "float8_e8m0fnu":
            return converted(generator.choice([0.25, 0.5, 1], shape), dtype)
        return converted(low + (high - low) * generator.random(shape), dtype)

    return values


VALUES = {
    **dict.fromkeys(POSITIVE, positive), "sin": _within(-3.1, 3.1), "arctan": _within(-1.5, 1.5),
    # Below -87 the result is subnormal, and float8_e8m0fnu has nothing for a 0.
    "sigmoid": _within(-50, 50),
}  # fmt: skip


def _activated(name, values, dtype, parameter=None):
    """A function of float32 values in float64; (result, slack)."""
    wide = values.astype(np.float64)
    if name == "prelu":
        return np.where(wide > 0, wide, (values * parameter).astype(np.float64)), None
    result = FUNCTIONS[name](wide)
    return result, None if name in EXACT else _slack(name, wide, result, dtype)


def _steps(name):
    exact = name in (*EXACT, "prelu")
    return {"ulps": 0 if exact else 1, "ulps32": 0 if exact else STEPS}


def _column(role, **settings):
    return Operand(role, shape=lambda p, w: (p, 1), **settings)


BIAS = tuple(dtype for dtype in COMPUTABLE if dtype != "tfloat32")


def _activation(
    name, scale=1.0, bias=None, command=CMD.idle, result=False, instruction="activation"
):
    """activation or activation_reduce; scale and bias are numbers or "column"."""
    operands = [
        Operand("data", values=eighths if result else VALUES.get(name, normal),
                extremes=_extremes(name, scale, bias)),
        Operand("dst", output=True),
    ]  # fmt: skip
    options = {"op": getattr(nl, name)}
    if instruction == "activation":
        options["reduce_cmd"] = command
    if command is not CMD.idle:
        options["reduce_op"] = nl.add
    for role, value, dtypes in (("scale", scale, F32), ("bias", bias, BIAS)):
        if value == "column":
            operands.append(_column(role, dtypes=dtypes, values=eighths))
        else:
            options[role] = value
    if result:
        operands.append(_column("reduce_res", output=True))

    def reference(x, env):
        values = f32(x["data"]) * f32(x.get("scale", scale))
        if bias is not None:
            values = values + f32(x.get("bias", bias))
        activated, slack = _activated(name, values, env.dtypes["dst"])
        found = {"dst": Result(activated, slack=slack)}
        if result:
            total = activated.sum(axis=1, keepdims=True)
            found["reduce_res"] = total * (command is not CMD.reset)
        return found

    return Row(
        instruction, tuple(operands), reference, options,
        f"{name} scale {scale} bias {bias} {command.name}",
        in_place=() if result else ("data",),
        extremes=not result and scale == 1.0 and name not in RANGED,
        generation=2 if bias is None or bias == "column" else 3,
        widths=(24,) if bias is not None or result else (8,), **_steps(name),
    )  # fmt: skip


def _extremes(name, scale, bias):
    """NaN and infinities only where the function says what they give."""
    return special if name in ("copy", "square", "relu", "abs") else finite


ACTIVATIONS = [
    *(_activation(name) for name in FUNCTIONS),
    _activation("copy", 0.37, 1.25),
    _activation("exp", 0.5, "column"),
    _activation("tanh", "column", -0.5),
    _activation("gelu", "column", "column"),
    _activation("copy", "column", "column", CMD.reset_reduce, True),
    _activation("square", 2.0, None, CMD.reset_reduce, True),
    _activation("relu", 1.0, "column", CMD.reset, True),
    _activation("copy", 0.5, 1.0, CMD.reset_reduce, True, "activation_reduce"),
    _activation("abs", "column", "column", CMD.reset_reduce, True, "activation_reduce"),
]

ALU = {"multiply": np.multiply, "add": np.add, "subtract": np.subtract}
REDUCE = {
    "add": lambda v: v.sum(axis=1),
    "maximum": lambda v: v.max(axis=1),
    "minimum": lambda v: v.min(axis=1),
    "abs_max": lambda v: np.take_along_axis(v, _last(np.abs(v), np.max), 1)[:, 0],
    "abs_min": lambda v: np.take_along_axis(v, _last(np.abs(v), np.min), 1)[:, 0],
}


def _last(magnitudes, choose):
    """Column of the last element of the chosen magnitude: ties take the later one."""
    hits = magnitudes == choose(magnitudes, axis=1)[:, None]
    return hits.shape[1] - 1 - hits[:, ::-1].argmax(axis=1)[:, None]


def _activate2(name, steps, parameter=0.0, fold=None, command=CMD.idle):
    """activate2; each step is (operator, number or "column", reversed)."""
    operands = [
        Operand("data", values=eighths if fold else VALUES.get(name, normal), extremes=finite),
        Operand("dst", output=True),
    ]
    options = {"op": getattr(nl, name), "reduce_cmd": command}
    if fold:
        options["reduce_op"] = getattr(nl, fold)
        operands.append(_column("reduce_res", output=True))
    columns = []
    for position, (operator, operand, reverse) in enumerate(steps):
        options[f"op{position}"] = getattr(nl, operator)
        options[f"reverse{position}"] = reverse
        if operand == "column":
            columns.append(f"imm{position}")
            operands.append(_column(f"imm{position}", values=eighths))
        else:
            options[f"imm{position}"] = operand
    if parameter == "column":
        operands.append(_column("relu_param"))
    else:
        options["relu_param"] = parameter

    def reference(x, env):
        values = f32(x["data"])
        for position, (operator, operand, reverse) in enumerate(steps):
            if operator != "bypass":
                operand = f32(x.get(f"imm{position}", operand))
                pair = (operand, values) if reverse else (values, operand)
                values = ALU[operator](*pair)
        activated, slack = _activated(
            name, values, env.dtypes["dst"], f32(x.get("relu_param", parameter))
        )
        found = {"dst": Result(activated, slack=slack)}
        if fold:
            found["reduce_res"] = REDUCE[fold](activated.astype(np.float32))[:, None]
        return found

    words = " ".join(f"{'r' if r else ''}{operator} {operand}" for operator, operand, r in steps)
    return Row(
        "activate2", tuple(operands), reference, options, f"{name} {words} {fold or ''}",
        same=(tuple(columns),) if len(columns) == 2 else (), in_place=() if fold else ("data",),
        extremes=name != "prelu" and not fold, generation=4, **_steps(name),
    )  # fmt: skip


NOTHING = ("bypass", 0.0, False)
ACTIVATE2 = [
    _activate2("gelu", [("multiply", 2.0, False), ("add", 0.5, False)]),
    _activate2("copy", [("multiply", "column", True), ("subtract", "column", False)]),
    _activate2("copy", [("multiply", -0.5, False), ("subtract", "column", True)]),
    _activate2("relu", [("multiply", "column", False), NOTHING]),
    _activate2("square", [("add", "column", True), NOTHING]),
    _activate2("abs", [("subtract", 1.5, True), NOTHING]),
    _activate2("tanh", [("subtract", "column", False), NOTHING]),
    _activate2("sigmoid", [NOTHING, NOTHING]),
    _activate2("prelu", [NOTHING, NOTHING], 0.25),
    _activate2("prelu", [("add", 0.5, False), NOTHING], "column"),
    *(
        _activate2("copy", [("multiply", 2.0, False), NOTHING], 0.0, fold, CMD.reset_reduce)
        for fold in REDUCE
    ),
]


# exponential: its dtypes are listed by the stub.

SMALL_FLOATS = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32")
SMALL_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16")
UP_TO_4D = tuple(one for one in (*SOLID, *REPEATING) if one.rank <= 4)


def _exponential(maximum, command=CMD.idle, init=0.0):
    operands = [
        Operand("src", (*SMALL_FLOATS, *SMALL_INTEGERS, "uint32"), layouts=UP_TO_4D,
                extremes=finite),
        Operand("dst", (*SMALL_FLOATS, "tfloat32", *SMALL_INTEGERS), output=True,
                layouts=tuple(one for one in SOLID if one.rank <= 4)),
    ]  # fmt: skip
    options = {"reduce_cmd": command}
    if maximum == "column":
        operands.append(_column("max_value", dtypes=F32))
    else:
        options["max_value"] = maximum
    if init == "column":
        operands.append(_column("reduce_init", dtypes=F32, values=positive))
    else:
        options["reduce_init"] = init
    if command is not CMD.idle:
        operands.append(_column("reduce_res", dtypes=(*SMALL_FLOATS, "tfloat32"), output=True))

    def reference(x, env):
        shifted = f32(x["src"]) - f32(x.get("max_value", maximum))
        wide = shifted.astype(np.float64)
        values = np.exp(wide)
        found = {"dst": Result(values, slack=_slack("exp", wide, values, env.dtypes["dst"]))}
        if command is not CMD.idle:
            total = values.sum(axis=1, keepdims=True)
            slack = total * 2.0**-20 + SMALLEST
            if command is CMD.load_reduce:
                total = total + f32(x.get("reduce_init", init))
            found["reduce_res"] = Result(total, slack=slack)
        return found

    return Row(
        "exponential", tuple(operands), reference, options, f"{maximum} {command.name} {init}",
        in_place=("src",), generation=4, ulps=1, ulps32=STEPS, extremes=command is CMD.idle,
    )  # fmt: skip


EXPONENTIAL = [
    _exponential(0.0),
    _exponential("column"),
    _exponential(1.5, CMD.reset_reduce),
    _exponential("column", CMD.load_reduce, "column"),
    _exponential(-0.5, CMD.load_reduce, 2.0),
]

ROWS = [*ACTIVATIONS, *ACTIVATE2, *EXPONENTIAL]
