"""Element-wise operations of two tiles of one shape, or of a tile and a number.

Two tiles go to `nisa.tensor_tensor`, a tile and a number to `nisa.tensor_scalar`; which engine runs
them, what may be in PSUM and which dtypes they take is as documented there. At least one operand is
a tile. The result is a new SBUF tile of the tiles' shape. Its dtype is ``dtype``; without it, the
dtype of the tile or of both tiles. If those differ the reference does not say what the result is,
so ``dtype`` must be given; only the comparisons are documented to take the input's (here, that of
the first tile).

What does not work on the device is refused as the release notes say (NKI 0.4, "Known Issues",
carried forward): implicit broadcasting, `power` of numbers, `divide`, `mod` and `fmod`.
"""

from ...access import read_float32
from ...errors import NkiValidationError, warn
from ...tensor import NkiTensor
from .. import isa
from .tiles import is_tile, require_same_shape, require_tile, result_dtype, tile_like


def _tile_and_number(op, x, y, dtype):
    """The result of a tile and a number, in either order."""
    if not is_tile(x) and not is_tile(y):
        raise NkiValidationError(
            "wrapper-operands", f"x is {x!r} and y is {y!r}; at least one of them must be a tile."
        )
    tile, number, role = (x, y, "x") if is_tile(x) else (y, x, "y")
    require_tile(tile, role)
    result = tile_like(tile, dtype)
    isa.tensor_scalar(result, tile, op, number, reverse0=tile is y)
    return result


def _operation(op, x, y, dtype):
    if not (is_tile(x) and is_tile(y)):
        return _tile_and_number(op, x, y, dtype)
    require_tile(x, "x")
    require_tile(y, "y")
    require_same_shape(x, y, "x", "y")
    result = tile_like(x, result_dtype(dtype, x, y))
    isa.tensor_tensor(result, x, y, op)
    return result


def _comparison(op, x, y, dtype):
    if dtype is None and is_tile(x):
        dtype = x.dtype
    return _operation(op, x, y, dtype)


def _logical(op, name, x, y, dtype):
    result = _operation(op, x, y, dtype)
    warn_unless_boolean(name, x, "x")
    warn_unless_boolean(name, y, "y")
    return result


def warn_unless_boolean(name, operand, role):
    """The logical functions are documented for operands that hold 0 and 1 only."""
    if type(operand) is NkiTensor:
        values = read_float32(operand, role)
        others = values[(values != 0) & (values != 1)]
        if not others.size:
            return
        found = float(others[0])
    elif is_tile(operand) or operand in (0, 1):
        return
    else:
        found = operand
    warn(
        "boolean-values",
        f"nl.{name}: {role} holds {found!r}; the function is for 0 and 1 only. Compare first, e.g. "
        f"nl.not_equal({role}, 0).",
    )


def _by_magnitude(op, x, y, dtype):
    """abs_max and abs_min: one of two tiles may be a float32 column, (P, 1).

    The stub's examples pass one, which `nisa.tensor_scalar` takes as operand.
    """
    if is_tile(x) and is_tile(y) and x.shape != y.shape:
        for tile, column, reverse in ((x, y, False), (y, x, True)):
            if column.shape == (tile.shape[0], 1):
                require_tile(tile, "y" if reverse else "x")
                result = tile_like(tile, result_dtype(dtype, x, y))
                isa.tensor_scalar(result, tile, op, column, reverse0=reverse)
                return result
    return _operation(op, x, y, dtype)


def add(x, y, dtype=None):
    """x + y."""
    return _operation(add, x, y, dtype)


def subtract(x, y, dtype=None):
    """x - y."""
    return _operation(subtract, x, y, dtype)


def multiply(x, y, dtype=None):
    """x * y."""
    return _operation(multiply, x, y, dtype)


def divide(x, y, dtype=None):
    """Refused: no engine divides."""
    raise NkiValidationError(
        "no-device-function",
        "nl.divide does not compile for the device; use nl.multiply(x, nl.reciprocal(y)).",
    )


def maximum(x, y, dtype=None):
    """The larger of x and y."""
    return _operation(maximum, x, y, dtype)


def minimum(x, y, dtype=None):
    """The smaller of x and y."""
    return _operation(minimum, x, y, dtype)


def abs_max(x, y, dtype=None):
    """Of x and y the one of larger magnitude, y if equal (gen4); one may be a column, (P, 1)."""
    return _by_magnitude(abs_max, x, y, dtype)


def abs_min(x, y, dtype=None):
    """Of x and y the one of smaller magnitude, y if equal (gen4); one may be a column, (P, 1)."""
    return _by_magnitude(abs_min, x, y, dtype)


def power(x, y, dtype=None):
    """x to the power y, of two tiles in SBUF (GpSimd engine)."""
    if is_tile(x) != is_tile(y):
        number = y if is_tile(x) else x
        raise NkiValidationError(
            "scalar-power",
            f"nl.power with the number {number!r}; both operands must be tiles. Use "
            f"nisa.tensor_scalar(op0=nl.power), nl.square, nl.sqrt, or a tile made with nl.full.",
        )
    return _operation(power, x, y, dtype)


def equal(x, y, dtype=None):
    """1 where x == y, else 0."""
    return _comparison(equal, x, y, dtype)


def not_equal(x, y, dtype=None):
    """1 where x != y, else 0."""
    return _comparison(not_equal, x, y, dtype)


def less(x, y, dtype=None):
    """1 where x < y, else 0."""
    return _comparison(less, x, y, dtype)


def less_equal(x, y, dtype=None):
    """1 where x <= y, else 0."""
    return _comparison(less_equal, x, y, dtype)


def greater(x, y, dtype=None):
    """1 where x > y, else 0."""
    return _comparison(greater, x, y, dtype)


def greater_equal(x, y, dtype=None):
    """1 where x >= y, else 0."""
    return _comparison(greater_equal, x, y, dtype)


def bitwise_and(x, y, dtype=None):
    """Bits of x and y; integers of one width."""
    return _operation(bitwise_and, x, y, dtype)


def bitwise_or(x, y, dtype=None):
    """Bits of x or y; integers of one width."""
    return _operation(bitwise_or, x, y, dtype)


def bitwise_xor(x, y, dtype=None):
    """Bits of x or else y; integers of one width."""
    return _operation(bitwise_xor, x, y, dtype)


def left_shift(x, y, dtype=None):
    """x shifted left by y bits; integers of one width."""
    return _operation(left_shift, x, y, dtype)


def right_shift(x, y, dtype=None):
    """x shifted right by y bits, zeros shifted in; integers of one width."""
    return _operation(right_shift, x, y, dtype)


def logical_and(x, y, dtype=None):
    """1 where x and y, else 0; a warning if they hold other values than 0 and 1."""
    return _logical(logical_and, "logical_and", x, y, dtype)


def logical_or(x, y, dtype=None):
    """1 where x or y, else 0; a warning if they hold other values than 0 and 1."""
    return _logical(logical_or, "logical_or", x, y, dtype)


def logical_xor(x, y, dtype=None):
    """1 where one of x and y, else 0; a warning if they hold other values than 0 and 1."""
    return _logical(logical_xor, "logical_xor", x, y, dtype)


def fmod(x, y, dtype=None):
    """Refused: no engine computes remainders."""
    raise NkiValidationError(
        "no-device-function",
        "nl.fmod does not compile for the device; use nl.trunc(nl.multiply(x, nl.reciprocal(y))) "
        "as the quotient and subtract it times y from x.",
    )


def mod(x, y, dtype=None):
    """Refused: no engine computes remainders."""
    raise NkiValidationError(
        "no-device-function",
        "nl.mod does not compile for the device; use nl.floor(nl.multiply(x, nl.reciprocal(y))) "
        "as the quotient and subtract it times y from x.",
    )
