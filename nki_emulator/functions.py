"""Mathematics of the activation functions, on float32 arrays.

The Scalar Engine approximates these with piece-wise polynomials whose coefficients are not
published; the emulator evaluates the true function in float32. Outside a function's documented
input range the chip's result is invalid: the emulator warns, and only for `sin` is the wrong value
known (documentation: a cubic is extrapolated, and sin(9.0) gives 27.65).
"""

import numpy as np

from .errors import warn

ONE = np.float32(1.0)
HALF = np.float32(0.5)

# erf by cubic Hermite interpolation: values and derivatives are exact at the nodes, so the error is
# at most h^4 / 384 * max|erf''''| = 6e-10 with h = 1/64. Beyond 6, erf is 1 to 2e-17.
_ERF_STEPS = 64
_ERF_LIMIT = 6


def _erf_table():
    from math import erf as exact

    nodes = np.arange(_ERF_STEPS * _ERF_LIMIT + 1) / _ERF_STEPS
    value = np.array([exact(node) for node in nodes])
    slope = 2.0 / np.sqrt(np.pi) * np.exp(-nodes * nodes) / _ERF_STEPS
    rise = np.diff(value)
    return tuple(
        np.append(coefficients, last)
        for coefficients, last in (
            (value[:-1], value[-1]),
            (slope[:-1], 0.0),
            (3 * rise - 2 * slope[:-1] - slope[1:], 0.0),
            (slope[:-1] + slope[1:] - 2 * rise, 0.0),
        )
    )


_ERF = _erf_table()


def erf_float64(x):
    """erf of a float32 array, as float64; absolute error below 1e-9, relative error too near 0."""
    scaled = np.abs(x).astype(np.float64)
    scaled *= _ERF_STEPS
    nan = np.isnan(scaled)
    any_nan = bool(nan.any())
    if any_nan:
        scaled[nan] = 0.0
    np.minimum(scaled, float(_ERF_STEPS * _ERF_LIMIT), out=scaled)
    cell = scaled.astype(np.intp)
    scaled -= cell
    result = _ERF[3].take(cell)
    for coefficients in _ERF[2::-1]:
        result *= scaled
        result += coefficients.take(cell)
    np.copysign(result, x, out=result)
    if any_nan:
        result[nan] = np.nan
    return result


def erf(x):
    """Error function."""
    return erf_float64(x).astype(np.float32)


def sigmoid(x):
    """1 / (1 + exp(-x))."""
    result = np.exp(np.negative(x))
    result += ONE
    return np.reciprocal(result, out=result)


def gelu(x):
    """x * Phi(x), with the exact normal distribution function."""
    result = erf_float64(np.multiply(x, np.float32(np.sqrt(0.5))))
    result += 1.0
    result *= 0.5
    result *= x
    return result.astype(np.float32)


def gelu_dx(x):
    """Derivative of the exact GELU: Phi(x) + x phi(x)."""
    density = np.exp(x * x * np.float32(-0.5)) * np.float32(1.0 / np.sqrt(2.0 * np.pi))
    phi = (erf_float64(np.multiply(x, np.float32(np.sqrt(0.5)))) + 1.0) * 0.5
    return phi.astype(np.float32) + x * density


def gelu_apprx_tanh(x):
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    inner = np.multiply(x, x)
    inner *= np.float32(0.044715)
    inner += ONE
    inner *= x
    inner *= np.float32(np.sqrt(2.0 / np.pi))
    np.tanh(inner, out=inner)
    inner += ONE
    inner *= x
    inner *= HALF
    return inner


def gelu_apprx_sigmoid(x):
    """x * sigmoid(1.702 x)."""
    return x * sigmoid(np.multiply(x, np.float32(1.702)))


def gelu_apprx_sigmoid_dx(x):
    """Derivative of x * sigmoid(1.702 x)."""
    s = sigmoid(np.multiply(x, np.float32(1.702)))
    # x * s first: the largest x times 1.702 would be infinite, and infinity times 0 is NaN.
    return s + x * s * (ONE - s) * np.float32(1.702)


def silu(x):
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def silu_dx(x):
    """Derivative of x * sigmoid(x)."""
    s = sigmoid(x)
    return s * (ONE + x * (ONE - s))


def softplus(x):
    """log(1 + exp(x)), without overflow."""
    return np.logaddexp(np.float32(0.0), x)


def mish(x):
    """x * tanh(softplus(x))."""
    return x * np.tanh(softplus(x))


def erf_dx(x):
    """Derivative of erf: 2 / sqrt(pi) * exp(-x^2)."""
    return np.exp(-(x * x)) * np.float32(2.0 / np.sqrt(np.pi))


def rsqrt(x):
    """1 / sqrt(x)."""
    return np.reciprocal(np.sqrt(x))


def sin(x):
    """sin within [-pi, pi]; beyond, the cubic that the chip's polynomial continues with."""
    result = np.sin(x)
    outside = np.abs(x) > np.float32(np.pi)
    if outside.any():
        beyond = np.abs(x[outside]) - np.float32(np.pi)
        result[outside] = np.sign(x[outside]) * (beyond**3 / np.float32(6.0) - beyond)
    return result


def relu(x):
    """max(x, 0)."""
    return np.maximum(x, np.float32(0.0))


def copy(x):
    """x itself."""
    return x


def prelu(x, slope):
    """x where it is positive, else slope * x."""
    return np.where(x > 0, x, x * slope)


# name: function.
ACTIVATIONS = {
    "copy": copy, "square": np.square, "sigmoid": sigmoid, "relu": relu, "gelu": gelu,
    "gelu_dx": gelu_dx, "gelu_apprx_tanh": gelu_apprx_tanh,
    "gelu_apprx_sigmoid": gelu_apprx_sigmoid, "gelu_apprx_sigmoid_dx": gelu_apprx_sigmoid_dx,
    "silu": silu, "silu_dx": silu_dx, "tanh": np.tanh, "softplus": softplus, "mish": mish,
    "erf": erf, "erf_dx": erf_dx, "exp": np.exp, "log": np.log, "sin": sin, "arctan": np.arctan,
    "sqrt": np.sqrt, "rsqrt": rsqrt, "reciprocal": np.reciprocal, "sign": np.sign, "abs": np.abs,
}  # fmt: skip
# Functions of a value and a parameter, which only activate2 (relu_param) has.
PARAMETRIC = {"prelu": prelu}

# Valid input ranges, nki.api.shared.rst "Supported Activation Functions"; others take any value.
INPUT_RANGES = {
    "log": (2.0**-64, 2.0**64),
    "sin": (-np.pi, np.pi),
    "arctan": (-np.pi / 2, np.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
}
# Same table: reciprocal takes +-[2^-42, 2^42].
RECIPROCAL_RANGE = (2.0**-42, 2.0**42)


def warn_outside_range(function, values):
    """Warn if ``values`` are outside the documented input range of the function so called."""
    if function == "reciprocal":
        low, high = RECIPROCAL_RANGE
        magnitude = np.abs(values)
        outside = (magnitude < low) | (magnitude > high)
    elif function in INPUT_RANGES:
        low, high = INPUT_RANGES[function]
        # The bounds in float32, so that float32(pi) is inside.
        outside = (values < np.float32(low)) | (values > np.float32(high))
    else:
        return
    if outside.any():
        sign = "+-" if function == "reciprocal" else ""
        warn(
            "activation-range",
            f"nl.{function} of {float(values[outside].flat[0])!r}: the Scalar engine is valid in "
            f"{sign}[{low:g}, {high:g}]; outside, the chip gives an invalid result and the "
            f"emulator's value means nothing.",
        )
