"""Rounding to integers.

No instruction rounds down or up: a conversion to int32 rounds to nearest, and a comparison with x
says by how much that is off. Values of 2^31 and beyond, which int32 cannot hold, are integers
already and stay, as NaN does. A result of zero is +0. The result is a new SBUF tile, its dtype that
of x unless ``dtype`` is given; an integer tile is copied.
"""

from .. import isa
from .binary import add, greater, less, maximum, minimum, subtract
from .movement import copy
from .tiles import require_tile, tile_like
from .unary import abs


def _nearest(x):
    whole = tile_like(x, "int32")
    isa.tensor_copy(whole, x)
    return whole


def _corrected(x, whole, comparison, correction):
    """whole <correction> 1 where whole <comparison> x; a float32 tile."""
    off = tile_like(x, "float32")
    isa.tensor_tensor(off, whole, x, comparison)
    isa.tensor_tensor(off, whole, off, correction)
    return off


def _with_large_values(x, rounded, dtype):
    """The result: ``rounded`` where int32 holds it, else x."""
    result = copy(x, dtype)
    small = tile_like(x, "uint8")
    isa.tensor_scalar(small, x, abs, None, op1=less, operand1=2.0**31)
    isa.tensor_copy_predicated(result, copy(rounded, result.dtype), small)
    return result


def ceil(x, dtype=None):
    """The smallest integer that is not below x."""
    require_tile(x, "x")
    if x.info.kind == "integer":
        return copy(x, dtype)
    return _with_large_values(x, _corrected(x, _nearest(x), less, add), dtype)


def floor(x, dtype=None):
    """The largest integer that is not above x."""
    require_tile(x, "x")
    if x.info.kind == "integer":
        return copy(x, dtype)
    return _with_large_values(x, _corrected(x, _nearest(x), greater, subtract), dtype)


def trunc(x, dtype=None):
    """x without its fraction: the floor of positive values, the ceiling of negative ones."""
    require_tile(x, "x")
    if x.info.kind == "integer":
        return copy(x, dtype)
    whole = _nearest(x)
    below = _corrected(x, whole, greater, subtract)
    above = _corrected(x, whole, less, add)
    isa.tensor_scalar(above, above, minimum, 0.0)
    isa.scalar_tensor_tensor(below, below, maximum, 0.0, add, above)
    return _with_large_values(x, below, dtype)
