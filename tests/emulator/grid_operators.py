"""The operators of the element-wise engines in NumPy, from the tables of nki.api.shared.rst."""

import numpy as np

from .grid import Operand


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


def generation_of(*names):
    """The first NeuronCore that has all these operators."""
    return 4 if any(name in FROM_V4 for name in names) else 2


def one_width(dtypes, roles):
    """Whether the dtypes of these roles, NumPy's own, have one size."""
    return len({np.dtype(dtypes[role]).itemsize for role in roles}) == 1


def column(role, **settings):
    """A (P, 1) operand."""
    return Operand(role, shape=lambda p, w: (p, 1), **settings)


def apply(name, values, operand, reverse):
    """values <name> operand in float32, or operand <name> values."""
    if name in UNARY:
        return UNARY[name](values)
    first, second = (operand, values) if reverse else (values, operand)
    return ARITHMETIC[name](first, second).astype(np.float32)
