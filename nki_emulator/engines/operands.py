"""Operands that are a number or a column: what instructions broadcast along the free axis."""

import math

import numpy as np

from .. import rules
from ..access import read_float32
from ..errors import NkiValidationError
from ..tensor import NkiTensor

INFINITY = np.float32(np.inf)


def number(value, role):
    """A compile-time number as float32 (NKI floats are 32 bits wide)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise NkiValidationError(
            "operand-type", f"{role} is {value!r}; expected a number or a (P, 1) tensor."
        )
    try:
        converted = np.float32(value)
        fits = abs(converted) != INFINITY or math.isinf(value)
    except OverflowError:
        fits = False
    if not fits:
        raise NkiValidationError(
            "number-range",
            f"{role} is {value}, which float32 cannot hold; numbers in NKI have 32 bits.",
        )
    return converted


def number_or_column(value, role, data, dtypes=None):
    """A number, or a (P, 1) tile as an array that broadcasts against ``data``.

    ``dtypes`` limits the tile's dtype (names).
    """
    if type(value) is not NkiTensor:
        return number(value, role)
    rules.column(value, role, data.shape[0], "data")
    if dtypes is None:
        rules.not_packed(value, role)
    elif value.dtype not in dtypes:
        raise NkiValidationError(
            "operand-dtype",
            f"{role} is {value.dtype}; a vector operand here must be {' or '.join(dtypes)}.",
        )
    values = read_float32(value, role)
    return values.reshape((data.shape[0],) + (1,) * (len(data.shape) - 1))


def row_result(tensor, role, data):
    """``reduce_res``: a (P, 1) tile that takes one value a partition."""
    rules.column(tensor, role, data.shape[0], "data")
    rules.not_packed(tensor, role)
    return tensor
