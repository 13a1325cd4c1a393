"""New tensors: uninitialised, filled, random, or with constant content."""

import os

import numpy as np

from ...dtypes import NAME_OF
from ...errors import NkiValidationError, warn
from ...regions import is_hbm, is_sbuf
from ...session import current_session
from ...tensor import NkiTensor
from ...views import integer
from .. import isa
from .binary import multiply
from .names import sbuf, shared_hbm, uint8
from .tiles import new_tile

# Stub, shared_constant: "Supported element types". bool and float8_e4m3 are not among them.
_CONSTANT_DTYPES = (
    "float32", "float16", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8",
    "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
)  # fmt: skip
# An HBM tensor is filled from SBUF tiles of at most this shape.
_BLOCK = (128, 512)


def ndarray(shape, dtype, buffer=sbuf, name="", address=None):
    """A new, uninitialised tensor; ``address`` is (partition, byte within the partition)."""
    return current_session("nl.ndarray").allocate(shape, dtype, buffer, name, address)


def full(shape, fill_value, dtype, buffer=sbuf, name=""):
    """A new tensor filled with ``fill_value``, an integer if the dtype is one (`nisa.memset`).

    One in HBM is written by DMA, from a tile of up to 128 x 512 elements. Of one in shared HBM,
    both programs of an LNC 2 launch would write every element, which is a race: fill it in one.
    """
    tensor = ndarray(shape, dtype, buffer, name)
    if not is_hbm(buffer):
        isa.memset(tensor, fill_value)
        return tensor
    constant = None
    for block in _blocks(tensor):
        if constant is None:  # The first block is the largest.
            constant = new_tile(block.shape, dtype)
            isa.memset(constant, fill_value)
        isa.dma_copy(block, constant[: block.shape[0], : block.shape[1]])
    return tensor


def _blocks(tensor):
    """Views of two dimensions, together all elements of a new HBM tensor; none larger than _BLOCK.

    No block has more rows or columns than the first.
    """
    flat = tensor.reshape((tensor.size,))
    start = 0
    while start < tensor.size:
        columns = min(tensor.size - start, _BLOCK[1])
        rows = min((tensor.size - start) // columns, _BLOCK[0])
        yield flat[start : start + rows * columns].reshape((rows, columns))
        start += rows * columns


def zeros(shape, dtype, buffer=sbuf, name=""):
    """A new tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape, dtype, buffer=sbuf, name=""):
    """A new tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def _like(x, dtype):
    if not isinstance(x, NkiTensor):
        raise NkiValidationError("operand-type", f"x is {x!r}; it must be a tensor.")
    return x.shape, x.dtype if dtype is None else dtype


def zeros_like(x, dtype=None, buffer=None, name=""):
    """A tensor of zeros of the shape of x, by default of its dtype and in SBUF."""
    shape, dtype = _like(x, dtype)
    return zeros(shape, dtype, sbuf if buffer is None else buffer, name)


def empty_like(x, dtype=None, buffer=None, name=""):
    """An uninitialised tensor of the shape of x, by default of its dtype and in its buffer."""
    shape, dtype = _like(x, dtype)
    return ndarray(shape, dtype, x.buffer if buffer is None else buffer, name)


def rand(shape, dtype, buffer=sbuf, name=""):
    """A new tensor of uniform random numbers from [0, 1), rounded to its dtype.

    `nisa.rand2` on gen4; before, 16 bits of `nisa.rng` divided by 2^16, on the Vector Engine.
    """
    tensor = ndarray(shape, dtype, buffer, name)
    if not is_hbm(buffer):
        _randomize(tensor)
        return tensor
    for block in _blocks(tensor):
        tile = new_tile(block.shape, dtype)
        _randomize(tile)
        isa.dma_copy(block, tile)
    return tensor


def _randomize(tile):
    if current_session("nl.rand").target.generation >= 4:
        isa.rand2(tile, 0.0, 1.0)
        return
    bits = new_tile(tile.shape, "uint16")
    isa.rng(bits)
    isa.tensor_scalar(tile, bits, multiply, 2.0**-16)


def random_seed(seed):
    """Seed the random numbers of `rand`: a [1, 1] tile of 32 bits (`nisa.set_rng_seed`)."""
    if not isinstance(seed, NkiTensor):
        raise NkiValidationError(
            "random-seed",
            f"seed is {seed!r}; it must be a [1, 1] tile, such as nl.full((1, 1), 42, "
            f"dtype=nl.int32).",
        )
    session = current_session("nl.random_seed")
    isa.set_rng_seed(seed)
    if session.target.generation < 4:
        # NKI 0.4 release notes, "Known Issues".
        warn(
            "random-seed-engine",
            f"on {session.target.name} nl.rand may run on another engine than the one that "
            f"nl.random_seed seeds, and not repeat its numbers. Use nisa.set_rng_seed with "
            f"nisa.rng(engine=nisa.engine.vector).",
        )


def shared_constant(constant):
    """An HBM tensor with constant content: a NumPy array, or the path of an .npy file."""
    session = current_session("nl.shared_constant")
    array = np.load(constant) if isinstance(constant, (str, os.PathLike)) else np.array(constant)
    dtype = NAME_OF.get(array.dtype)
    if dtype not in _CONSTANT_DTYPES or array.ndim == 0 or array.size == 0:
        raise NkiValidationError(
            "constant",
            f"a constant of dtype {array.dtype} and shape {list(array.shape)}; it needs at least "
            f"one element and dimension and a dtype among {', '.join(_CONSTANT_DTYPES)}.",
        )
    tensor = session.allocate(array.shape, dtype, shared_hbm, "constant")
    if tensor.storage.readonly:  # the other program of an LNC 2 launch has made it
        if tensor.array.tobytes() != array.astype(tensor.array.dtype).tobytes():
            raise NkiValidationError(
                "constant-diverges",
                f"the two programs give {tensor.storage.describe()} different values; both cores "
                f"share one constant.",
            )
        return tensor
    tensor.array[...] = array
    tensor.storage.mark_written(tensor)
    tensor.storage.readonly = True
    return tensor


def shared_identity_matrix(n, dtype=uint8, dst=None):
    """The n x n identity in SBUF; all uses of one size and dtype share a tile. ``dst`` takes it."""
    session = current_session("nl.shared_identity_matrix")
    tensor = dst
    if dst is not None and not isinstance(dst, NkiTensor):
        raise NkiValidationError("operand-type", f"dst is {dst!r}; it must be a tensor.")
    given, n = n, integer(n)
    if n is None or not isinstance(dtype, str):
        raise NkiValidationError(
            "operand-type", f"n={given!r}, dtype={dtype!r}; expected an integer and an NKI dtype."
        )
    if dst is None:
        tensor = session.identities.get((n, dtype))
        if tensor is not None:
            return tensor
        tensor = session.allocate_once((n, n), dtype, sbuf, f"identity{n}")
        session.identities[n, dtype] = tensor
    elif tuple(dst.shape) != (n, n) or dst.dtype != dtype or not is_sbuf(dst.buffer):
        raise NkiValidationError(
            "identity-dst", f"dst is {dst.describe()}; expected an SBUF tile {dtype}[{n}, {n}]."
        )
    tensor.array[...] = np.eye(n).astype(tensor.info.storage)
    tensor.storage.mark_written(tensor)
    tensor.storage.readonly = dst is None
    return tensor
