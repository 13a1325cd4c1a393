"""Reading and writing operands: the written check, conversion to float32, rounding on the way out.

Every instruction reads with one of the `read_` functions and writes with one of the `write_`
functions, so the memory rules cannot be forgotten. A float32 array that is read may be the tile's
own memory: instructions never write into what they read except through `write_`.
"""

import numpy as np

from .dtypes import store_float32, to_float32
from .errors import NkiValidationError


def read_float32(tensor, role):
    """The operand as a float32 array of its shape."""
    storage = tensor.storage
    if not storage.complete:
        storage.require_written(tensor, role)
    if storage.sharing is not None:
        storage.sharing.read(tensor)
    return to_float32(tensor.array, tensor.info)


def read_raw(tensor, role):
    """The operand in its own dtype, without conversion."""
    storage = tensor.storage
    if not storage.complete:
        storage.require_written(tensor, role)
    if storage.sharing is not None:
        storage.sharing.read(tensor)
    return tensor.array


def write_float32(tensor, values):
    """Store float32 ``values`` (any shape of the same size), rounded to the tensor's dtype."""
    target = tensor.array
    if values.shape != target.shape:
        values = values.reshape(target.shape)
    if values.dtype != np.float32:
        values = values.astype(np.float32)
    storage = tensor.storage
    if storage.readonly:
        require_writable(tensor)
    if storage.sharing is not None:
        storage.sharing.write(tensor)
    store_float32(target, tensor.info, values)
    storage.mark_written(tensor)


def write_raw(tensor, values):
    """Store ``values`` bit for bit; they have the tensor's storage dtype and size."""
    target = tensor.array
    if values.shape != target.shape:
        values = values.reshape(target.shape)
    storage = tensor.storage
    if storage.readonly:
        require_writable(tensor)
    if storage.sharing is not None:
        storage.sharing.write(tensor)
    raw = tensor.info.raw
    # NumPy copies its own integers much faster than the types of ml_dtypes.
    target.view(raw)[...] = values.view(raw)
    storage.mark_written(tensor)


def float32_target(tensor):
    """The tensor's own memory if results can be computed straight into it, else None."""
    return tensor.array if tensor.info.name == "float32" else None


def require_writable(tensor):
    """Refuse to write into a read-only argument."""
    if tensor.storage.readonly:
        raise NkiValidationError(
            "read-only",
            f"{tensor.storage.describe()} wraps a read-only array of the caller; pass a writable "
            f"array to a kernel that writes its argument.",
        )
