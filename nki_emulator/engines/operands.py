"""Operands that are a number or a column: what instructions broadcast along the free axis."""

import numpy as np

from .. import rules
from ..access import read_float32
from ..errors import NkiValidationError
from ..tensor import NkiTensor


def number(value, role):
    """A compile-time number as float32 (NKI floats are 32 bits wide)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise NkiValidationError(
            "operand-type", f"{role} is {value!r}; expected a number or a (P, 1) tensor."
        )
    return np.float32(value)


def number_or_column(value, role, data, dtypes=None):
    """A number, or a (P, 1) tile as an array that broadcasts against ``data``.

    ``dtypes`` limits the tile's dtype (names).
    """
    if type(value) is not NkiTensor:
        return number(value, role)
    rules.column(value, role, data.shape[0], "data")
    if dtypes is not None and value.dtype not in dtypes:
        raise NkiValidationError(
            "operand-dtype",
            f"{role} is {value.dtype}; a vector operand here must be {' or '.join(dtypes)}.",
        )
    values = read_float32(value, role)
    return values.reshape((data.shape[0],) + (1,) * (len(data.shape) - 1))


def row_result(tensor, role, data):
    """``reduce_res``: a (P, 1) tile that takes one value a partition."""
    rules.column(tensor, role, data.shape[0], "data")
    return tensor
