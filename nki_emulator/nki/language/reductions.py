"""Reductions over free axes, and what is built from them: softmax and rms_norm.

``axis`` is an integer or a tuple or list of integers: the last dimensions of the tile, never the
partition (0); negative ones count from the end. `nisa.tensor_reduce` on the Vector Engine reduces,
in float32. The result is a new SBUF tile; its dtype is that of x unless ``dtype`` is given. The
reduced dimensions are dropped, or kept with size 1 if ``keepdims``; a tile has two dimensions at
least, so reducing all free axes gives (P, 1) either way.
"""

import math

from ...errors import NkiValidationError
from ...views import integer, integers
from .. import isa
from .binary import add, logical_and, maximum, minimum, multiply, subtract
from .tiles import new_tile, repeated, require_same_shape, require_tile, tile_like
from .unary import exp, rsqrt, square


def _first_reduced(x, axis):
    require_tile(x, "x")
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = x.ndim
    first = rank - len(axes)
    axes = integers(axes) or ()
    reduced = {a % rank if a >= -rank else None for a in axes}
    if not 1 <= first < rank or reduced != set(range(first, rank)):
        raise NkiValidationError(
            "reduce-axis",
            f"axis={axis!r} of x {list(x.shape)}; the reduced axes must be the last free "
            f"dimensions, e.g. {tuple(range(1, rank))} or {rank - 1}.",
        )
    return first


def _reduce(op, x, axis, dtype, keepdims):
    first = _first_reduced(x, axis)
    kept = x.shape[:first]
    if keepdims or first == 1:
        shape = kept + (1,) * (x.ndim - first if keepdims else 1)
    else:
        shape = kept
    result = new_tile(shape, x.dtype if dtype is None else dtype)
    isa.tensor_reduce(result, op, x, tuple(range(first, x.ndim)), keepdims=keepdims)
    return result


def _count(x, axis):
    return math.prod(x.shape[_first_reduced(x, axis) :])


def sum(x, axis, dtype=None, keepdims=False):
    """Sum."""
    return _reduce(add, x, axis, dtype, keepdims)


def max(x, axis, dtype=None, keepdims=False):
    """Maximum."""
    return _reduce(maximum, x, axis, dtype, keepdims)


def min(x, axis, dtype=None, keepdims=False):
    """Minimum."""
    return _reduce(minimum, x, axis, dtype, keepdims)


def mean(x, axis, dtype=None, keepdims=False):
    """Mean, with float32 sums."""
    total = _reduce(add, x, axis, "float32", keepdims)
    result = tile_like(total, x.dtype if dtype is None else dtype)
    isa.tensor_scalar(result, total, multiply, 1 / _count(x, axis))
    return result


def prod(x, axis, dtype=None, keepdims=False):
    """Product."""
    return _reduce(multiply, x, axis, dtype, keepdims)


def var(x, axis, dtype=None, keepdims=False):
    """Population variance, float32 inside; dimensions are kept whatever ``keepdims`` says."""
    centred = _shifted(x, mean(x, axis, "float32", keepdims=True), subtract)
    isa.tensor_tensor(centred, centred, centred, multiply)
    return mean(centred, axis, x.dtype if dtype is None else dtype, keepdims=True)


def all(x, axis, dtype=None):
    """1 where all elements are true, else 0."""
    return _reduce(logical_and, x, axis, dtype, False)


def _shifted(x, rows, op, dtype="float32"):
    """x <op> the reduced tile ``rows``, repeated; a new tile."""
    result = tile_like(x, dtype)
    isa.tensor_tensor(result, x, repeated(rows, x.shape), op)
    return result


def softmax(x, axis=-1, dtype=None):
    """exp(x - max(x)) divided by its sum, float32 inside."""
    powers = _shifted(x, max(x, axis, "float32", keepdims=True), subtract)
    isa.activation(powers, exp, powers)
    total = sum(powers, axis, keepdims=True)
    isa.reciprocal(total, total)
    return _shifted(powers, total, multiply, x.dtype if dtype is None else dtype)


def rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None):
    """x / sqrt(sum(x^2) / n + epsilon) * w.

    ``w`` is a tile of the shape of x. ``n`` is the number of values that count for the mean, a
    positive integer. Intermediate tiles are of ``compute_dtype``, by default float32.
    """
    require_tile(x, "x")
    require_tile(w, "w")
    require_same_shape(x, w, "x", "w")
    count = integer(n)
    if count is None or count < 1:
        raise NkiValidationError("rms-norm-count", f"n={n!r}; it must be a positive integer.")
    computing = "float32" if compute_dtype is None else compute_dtype
    squares = tile_like(x, computing)
    isa.activation(squares, square, x)
    scale = sum(squares, axis, keepdims=True)
    isa.tensor_scalar(scale, scale, multiply, 1 / count, op1=add, operand1=epsilon)
    isa.tensor_scalar(scale, scale, rsqrt, 0.0)
    normal = _shifted(x, scale, multiply, computing)
    result = tile_like(x, dtype)
    isa.tensor_tensor(result, normal, w, multiply)
    return result
