"""Tiles loaded and stored, copied, transposed, repeated, and selected from.

New tiles are in SBUF and of the dtype of their source, unless a function says otherwise; ``dtype``
converts.
"""

from ...errors import NkiValidationError
from ...regions import is_hbm, is_psum
from ...tensor import NkiTensor
from ...views import integer, integers
from .. import isa
from .binary import not_equal
from .names import psum
from .tiles import (
    new_tile,
    repeated,
    require_same_shape,
    require_tile,
    result_dtype,
    tile_like,
)

# A matmul writes one PSUM bank: 512 float32.
_MATMUL_FREE = 512


def _require_hbm(tensor, role, instead):
    if not isinstance(tensor, NkiTensor):
        raise NkiValidationError("operand-type", f"{role} is {tensor!r}; it must be a tensor.")
    if not is_hbm(tensor.buffer):
        raise NkiValidationError(
            "buffer-hbm", f"{role} is in {tensor.buffer.value}; it must be in HBM. {instead}"
        )


def _converted(x, dtype):
    """x itself if it is of ``dtype`` already or that is None, else a copy."""
    same = dtype is None or (isinstance(dtype, str) and dtype == x.dtype)
    return x if same else copy(x, dtype)


def load(src, dtype=None):
    """A new SBUF tile with the values of an HBM tensor of its shape (`nisa.dma_copy`)."""
    _require_hbm(src, "src", "Use nl.copy or nisa.tensor_copy within the chip.")
    result = tile_like(src, dtype)
    isa.dma_copy(result, src)
    return result


def store(dst, value):
    """dst = value, from an SBUF tile to HBM (`nisa.dma_copy`); they have as many elements."""
    _require_hbm(dst, "dst", "Use nisa.tensor_copy within the chip.")
    require_tile(value, "value")
    if is_psum(value.buffer):
        raise NkiValidationError(
            "dma-psum",
            "value is in PSUM, which DMA cannot reach; store nl.copy(value), which is in SBUF.",
        )
    isa.dma_copy(dst, value)


def load_transpose2d(src, dtype=None):
    """A new SBUF tile with an HBM matrix transposed: [N, M] gives [M, N], M at most 128.

    `nisa.dma_transpose`, so the dtype has 2 or 4 bytes.
    """
    _require_hbm(src, "src", "Use nl.transpose or nisa.nc_transpose within the chip.")
    if src.ndim != 2:
        raise NkiValidationError("two-dims", f"src is {list(src.shape)}; it must be a matrix.")
    result = new_tile((src.shape[1], src.shape[0]), src.dtype)
    isa.dma_transpose(result, src)
    return _converted(result, dtype)


def copy(x, dtype=None):
    """x in a new SBUF tile (`nisa.tensor_copy`): bit for bit unless ``dtype`` is another."""
    require_tile(x, "x")
    result = tile_like(x, dtype)
    isa.tensor_copy(result, x, engine=isa.engine.vector)
    return result


def transpose(x, dtype=None):
    """A PSUM tile with the SBUF tile x, at most [128, 128], transposed (tensor engine)."""
    require_tile(x, "x")
    if x.ndim != 2:
        raise NkiValidationError("two-dims", f"x is {list(x.shape)}; it must have two dimensions.")
    source = _converted(x, dtype)
    result = new_tile((x.shape[1], x.shape[0]), source.dtype, psum)
    isa.nc_transpose(result, source, engine=isa.engine.tensor)
    return result


def expand_dims(x, axis):
    """A view of x with a dimension of size 1 at ``axis``, which may be negative but not 0."""
    require_tile(x, "x")
    place = integer(axis)
    if place is not None and place < 0:
        place += x.ndim + 1
    return x.expand_dim(axis if place is None else place)


def broadcast_to(x, shape, dtype=None):
    """A tile of ``shape`` that repeats x along dimensions of size 1.

    ``shape`` has the rank of x. x itself if nothing changes, else a new SBUF tile. The tensor
    engine repeats a partition (architecture guide of Trainium 1, "Alternative Use Cases of Tensor
    Engine"); `nisa.tensor_copy` does the rest.
    """
    require_tile(x, "x")
    given, shape = shape, integers(shape)
    if (
        shape is None
        or len(shape) != x.ndim
        or any(a not in (1, b) for a, b in zip(x.shape, shape))
    ):
        raise NkiValidationError(
            "broadcast-shape",
            f"x is {list(x.shape)} and shape {given!r}; they must have one rank, and each "
            f"dimension be equal or 1 in x.",
        )
    if shape == x.shape:
        return _converted(x, dtype)
    if shape[0] != x.shape[0]:
        x = _over_partitions(x, shape[0])
        if shape == x.shape:
            return _converted(x, dtype)
    result = new_tile(shape, x.dtype if dtype is None else dtype)
    isa.tensor_copy(result, repeated(x, shape))
    return result


def _over_partitions(x, partitions):
    """x, of one partition, in ``partitions`` of them: a column of ones times x.

    The tensor engine multiplies floats; others go through it byte by byte.
    """
    source = copy(x)
    flat = source.reshape((1, source.size))
    if source.info.kind != "float":
        flat = flat.view("uint8")
    moving = copy(flat, "float32")
    ones = new_tile((1, partitions), "float32")
    isa.memset(ones, 1.0)
    result = new_tile((partitions,) + flat.shape[1:], flat.dtype)
    for start in range(0, moving.shape[1], _MATMUL_FREE):
        part = moving[:, start : min(start + _MATMUL_FREE, moving.shape[1])]
        product = new_tile((partitions, part.shape[1]), "float32", psum)
        isa.nc_matmul(product, ones, part)
        isa.tensor_copy(result[:, start : start + part.shape[1]], product)
    return result.view(source.dtype).reshape((partitions,) + x.shape[1:])


def matmul(x, y, transpose_x=False):
    """x.T @ y as a float32 PSUM tile; x is [K, M] and y [K, N] in SBUF, K and M <= 128, N <= 512.

    Only ``transpose_x=True`` compiles (NKI 0.4 release notes, "Known Issues").
    """
    require_tile(x, "x")
    require_tile(y, "y")
    if transpose_x is not True:
        raise NkiValidationError(
            "matmul-transpose-x",
            f"transpose_x={transpose_x!r}; nl.matmul compiles with transpose_x=True only. Lay x "
            f"out as [K, M], the contraction on partitions, and pass transpose_x=True.",
        )
    for operand, role, free in ((x, "x", 128), (y, "y", _MATMUL_FREE)):
        if operand.ndim != 2 or operand.shape[1] > free:
            raise NkiValidationError(
                "nl-matmul-shape",
                f"{role} is {list(operand.shape)}; it must have two dimensions, and at most {free} "
                f"elements per partition. nisa.nc_matmul takes more dimensions.",
            )
    result = new_tile((x.shape[1], y.shape[1]), "float32", psum)
    isa.nc_matmul(result, x, y)
    return result


def where(condition, x, y, dtype=None):
    """x where condition is 1.0, y where it is 0.0; tiles of one shape.

    ``condition`` is of a float dtype: a comparison with ``dtype=nl.float32``, for instance.
    """
    for operand, role in ((condition, "condition"), (x, "x"), (y, "y")):
        require_tile(operand, role)
        require_same_shape(operand, condition, role, "condition")
    if condition.info.kind != "float":
        raise NkiValidationError(
            "where-condition",
            f"condition is {condition.dtype}; it must be a float tile of 1.0 and 0.0. Compare with "
            f"dtype=nl.float32, or use nisa.tensor_copy_predicated for an integer predicate.",
        )
    predicate = tile_like(condition, "uint8")
    isa.tensor_scalar(predicate, condition, not_equal, 0.0)
    result = copy(y, result_dtype(dtype, x, y))
    isa.tensor_copy_predicated(result, _converted(x, result.dtype), predicate)
    return result


def dropout(x, rate, dtype=None):
    """x with elements zeroed with probability ``rate``, not rescaled (`nisa.dropout`).

    ``rate`` is a number from 0 to 1 or a float tile (P, 1).
    """
    require_tile(x, "x")
    result = tile_like(x)
    isa.dropout(result, x, rate)
    return _converted(result, dtype)


def gather_flattened(data, indices, axis=0, dtype=None):
    """result[p, i...] = data[p].flatten()[indices[p, i...]]: a tile of the shape of ``indices``.

    Both are in SBUF; ``indices`` is uint32 (`nisa.nc_n_gather`). The reference says nothing of
    other values of ``axis``, so it is 0.
    """
    require_tile(data, "data")
    require_tile(indices, "indices")
    if integer(axis) != 0:
        raise NkiValidationError(
            "gather-axis", f"axis={axis!r}; only 0, the free dimensions flattened, is documented."
        )
    result = tile_like(indices, data.dtype)
    isa.nc_n_gather(result, data, indices)
    return _converted(result, dtype)
