"""Sine, cosine and tangent of any argument.

The Scalar Engine's sine is valid within [-pi, pi] and reduces nothing; `nl.sin` is documented to
reduce the range first with instructions of its own (nki.api.shared.rst, "Supported Activation
Functions"), and cosine and tangent are not activation functions at all. The reference does not say
which instructions, so these are the emulator's: multiples of 2 pi are subtracted in three steps
(Cody and Waite) so that arguments up to 25000 (4096 periods) lose nothing but the last bit.
Arguments so large that no reduction is left (beyond 2^31 periods) give the engine's range warning.
The result is a new SBUF tile; its dtype is that of x unless ``dtype`` is given.
"""

import math

from .. import isa
from .binary import add, greater, less, multiply
from .tiles import require_tile, tile_like

# 2 pi = the sum of these three: 8 bits, 12 bits and the rest, so that the first two times a number
# of periods below 2^12 are exact in float32.
_PERIOD = (6.28125, 4059 * 2.0**-21, 2 * math.pi - 6.28125 - 4059 * 2.0**-21)


def _reduced(x):
    """x minus the nearest multiple of 2 pi, a float32 tile within [-pi, pi]."""
    require_tile(x, "x")
    periods = tile_like(x, "int32")
    isa.tensor_scalar(periods, x, multiply, 1 / (2 * math.pi))
    result = tile_like(x, "float32")
    rest = x
    for part in _PERIOD:
        isa.scalar_tensor_tensor(result, periods, multiply, -part, add, rest)
        rest = result
    _wrap(result, greater, math.pi, -2 * math.pi)
    # What rounding leaves just below -pi.
    _wrap(result, less, -math.pi, 2 * math.pi)
    return result


def _wrap(angle, comparison, bound, period):
    """angle += period where it compares true with bound."""
    offset = tile_like(angle)
    isa.tensor_scalar(offset, angle, comparison, bound, op1=multiply, operand1=period)
    isa.tensor_tensor(angle, angle, offset, add)


def sin(x, dtype=None):
    """Sine."""
    angle = _reduced(x)
    result = tile_like(x, dtype)
    isa.activation(result, sin, angle)
    return result


def cos(x, dtype=None):
    """Cosine: the sine of x + pi / 2."""
    angle = _reduced(x)
    isa.tensor_scalar(angle, angle, add, math.pi / 2)
    _wrap(angle, greater, math.pi, -2 * math.pi)
    result = tile_like(x, dtype)
    isa.activation(result, sin, angle)
    return result


def tan(x, dtype=None):
    """Tangent: sine times the reciprocal of cosine."""
    inverse = cos(x, "float32")
    isa.reciprocal(inverse, inverse)
    result = tile_like(x, dtype)
    isa.tensor_tensor(result, sin(x, "float32"), inverse, multiply)
    return result
