"""Element-wise functions of one tile.

The result is a new SBUF tile of the shape of x, of its dtype unless ``dtype`` is given. Activation
functions run on the Scalar Engine (`nisa.activation`), which is valid within each function's
documented input range; the others say what they run on.
"""

from ...errors import NkiValidationError
from ...regions import is_psum
from .. import isa
from .binary import bitwise_xor, logical_xor, multiply, warn_unless_boolean
from .tiles import require_tile, tile_like


def _activation(op, x, dtype):
    require_tile(x, "x")
    result = tile_like(x, dtype)
    isa.activation(result, op, x)
    return result


def _with_number(op, number, x, dtype):
    require_tile(x, "x")
    result = tile_like(x, dtype)
    isa.tensor_scalar(result, x, op, number)
    return result


def abs(x, dtype=None):
    """|x|."""
    return _activation(abs, x, dtype)


def square(x, dtype=None):
    """x * x."""
    return _activation(square, x, dtype)


def invert(x, dtype=None):
    """Complement of the bits of an integer tile: x xor all ones (Vector Engine)."""
    return _with_number(bitwise_xor, -1, x, dtype)


def logical_not(x, dtype=None):
    """x xor 1 (Vector Engine); a warning if x holds other values than 0 and 1."""
    result = _with_number(logical_xor, 1.0, x, dtype)
    warn_unless_boolean("logical_not", x, "x")
    return result


def exp(x, dtype=None):
    """Exponential."""
    return _activation(exp, x, dtype)


def log(x, dtype=None):
    """Natural logarithm, of 2^-64 to 2^64."""
    return _activation(log, x, dtype)


def sqrt(x, dtype=None):
    """Square root, of 2^-116 to 2^118."""
    return _activation(sqrt, x, dtype)


def rsqrt(x, dtype=None):
    """1 / sqrt(x) of an SBUF tile, on the GpSimd engine (NKI 0.5 release notes)."""
    require_tile(x, "x")
    if is_psum(x.buffer):
        raise NkiValidationError(
            "rsqrt-psum",
            "x is in PSUM; nl.rsqrt runs on the GpSimd engine, which reads SBUF only. Use "
            "nisa.activation(op=nl.rsqrt), or nl.rsqrt(nl.copy(x)).",
        )
    result = tile_like(x, dtype)
    isa.tensor_scalar(result, x, rsqrt, 0.0)
    return result


def tanh(x, dtype=None):
    """Hyperbolic tangent."""
    return _activation(tanh, x, dtype)


def sigmoid(x, dtype=None):
    """Logistic function."""
    return _activation(sigmoid, x, dtype)


def relu(x, dtype=None):
    """max(x, 0)."""
    return _activation(relu, x, dtype)


def gelu(x, dtype=None):
    """GELU with the exact normal distribution."""
    return _activation(gelu, x, dtype)


def gelu_apprx_sigmoid(x, dtype=None):
    """x * sigmoid(1.702 x)."""
    return _activation(gelu_apprx_sigmoid, x, dtype)


def gelu_apprx_tanh(x, dtype=None):
    """GELU, tanh approximation."""
    return _activation(gelu_apprx_tanh, x, dtype)


def gelu_dx(x, dtype=None):
    """Derivative of gelu."""
    return _activation(gelu_dx, x, dtype)


def gelu_apprx_sigmoid_dx(x, dtype=None):
    """Derivative of gelu_apprx_sigmoid."""
    return _activation(gelu_apprx_sigmoid_dx, x, dtype)


def silu(x, dtype=None):
    """x * sigmoid(x)."""
    return _activation(silu, x, dtype)


def silu_dx(x, dtype=None):
    """Derivative of silu."""
    return _activation(silu_dx, x, dtype)


def softplus(x, dtype=None):
    """log(1 + exp(x))."""
    return _activation(softplus, x, dtype)


def mish(x, dtype=None):
    """x * tanh(softplus(x))."""
    return _activation(mish, x, dtype)


def erf(x, dtype=None):
    """Error function."""
    return _activation(erf, x, dtype)


def erf_dx(x, dtype=None):
    """Derivative of erf."""
    return _activation(erf_dx, x, dtype)


def reciprocal(x, dtype=None):
    """1 / x (`nisa.reciprocal`, Vector Engine, which has no limited input range)."""
    require_tile(x, "x")
    result = tile_like(x, dtype)
    isa.reciprocal(result, x)
    return result


def arctan(x, dtype=None):
    """Arc tangent, of -pi/2 to pi/2: the Scalar Engine's range, which nothing extends."""
    return _activation(arctan, x, dtype)


def negative(x, dtype=None):
    """-x (Vector Engine)."""
    return _with_number(multiply, -1.0, x, dtype)


def sign(x, dtype=None):
    """-1, 0 or 1."""
    return _activation(sign, x, dtype)
