"""What the wrappers share: rules of their operands, and tiles for their results."""

from ...errors import NkiValidationError
from ...regions import is_on_chip
from ...session import current_session
from ...tensor import NkiTensor
from .names import sbuf


def is_tile(value):
    """Whether an operand is a tensor and not a number."""
    return isinstance(value, NkiTensor)


def require_tile(value, role):
    """``value`` is a tile: a tensor in SBUF or PSUM."""
    if not isinstance(value, NkiTensor):
        raise NkiValidationError(
            "operand-type", f"{role} is {value!r}; it must be a tile, a tensor in SBUF or PSUM."
        )
    if not is_on_chip(value.buffer):
        raise NkiValidationError(
            "buffer-on-chip",
            f"{role} is in {value.buffer.value}; it must be a tile in SBUF or PSUM. Load it with "
            f"nl.load or nisa.dma_copy first.",
        )


def require_same_shape(x, y, x_role, y_role):
    """Two tiles have one shape: the wrappers do not broadcast."""
    if x.shape != y.shape:
        raise NkiValidationError(
            "implicit-broadcast",
            f"{x_role} is {list(x.shape)} and {y_role} {list(y.shape)}; nki.language does not "
            f"broadcast, so they must be equal. Use nl.broadcast_to(tile, shape) or "
            f".broadcast(dim, size).",
        )


def result_dtype(dtype, x, y):
    """The dtype of a result: the one asked for, or that of both tiles."""
    if dtype is not None:
        return dtype
    if x.dtype != y.dtype:
        raise NkiValidationError(
            "result-dtype",
            f"the tiles are {x.dtype} and {y.dtype}, and nothing says which of them the result "
            f"has; pass dtype=.",
        )
    return x.dtype


def new_tile(shape, dtype, buffer=sbuf):
    """A tile for a result, uninitialised; errors outside a kernel."""
    return current_session("a wrapper of nki.language").allocate(shape, dtype, buffer)


def tile_like(x, dtype=None):
    """A new SBUF tile of the shape of ``x``, of its dtype unless ``dtype`` says otherwise."""
    return new_tile(x.shape, x.dtype if dtype is None else dtype)


def repeated(x, shape):
    """A view of ``x`` in which free dimensions of size 1 have the sizes of ``shape``."""
    for dim in range(1, len(shape)):
        if x.shape[dim] != shape[dim]:
            x = x.broadcast(dim, shape[dim])
    return x
