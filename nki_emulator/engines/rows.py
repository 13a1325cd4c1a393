"""Rows of an HBM tensor chosen at run time: the gather and scatter of DMA instructions.

A vector view has one index for each of its rows, dimension 0. Rows may repeat when they are read.
An index outside the tensor is an error, or its row is skipped (``oob_mode.skip``).
"""

import numpy as np

from ..access import require_writable, write_raw
from ..addresses import require_inside
from ..dtypes import store_float32, to_float32
from ..errors import NkiValidationError
from ..tensor import NkiTensor


class Rows:
    """The rows that a vector view addresses now.

    ``kept`` is a boolean array: which rows of the view are in bounds; ``indices`` their indices.
    """

    def __init__(self, view, role, indices, skip):
        """``indices`` is a flat integer array with one index for each row of the view."""
        self.view = view
        self.role = role
        self.kept = (indices >= 0) & (indices < view.limit)
        if not skip and not self.kept.all():
            row = int(np.argmin(self.kept))
            raise NkiValidationError(
                "dynamic-out-of-bounds",
                f"the index of row {row} of {role} is {int(indices[row])}; "
                f"{view.storage.describe()} has rows 0..{view.limit - 1} "
                f"there. Pass oob_mode=nisa.oob_mode.skip to skip such rows.",
            )
        self.indices = indices[self.kept]
        if self.indices.size:
            for index in (int(self.indices.min()), int(self.indices.max())):
                require_inside(self._row(index), role, index, index * view.scale)

    def read(self):
        """The rows that are in bounds, in the view's own dtype."""
        storage = self.view.storage
        if not self.indices.size:
            return np.empty((0, *self.view.shape[1:]), self.view.info.storage)
        if not storage.complete:
            for index in np.unique(self.indices):
                storage.require_written(self._row(int(index)), f"row {index} of {self.role}")
        if storage.sharing is not None:
            storage.sharing.read_elements(self._elements())
        window, first = self._window()
        return window.array[self.indices - first]

    def write(self, values):
        """Store ``values``, one for each row in bounds, in the view's own dtype."""
        if not self.indices.size:
            return
        storage = self.view.storage
        window, first = self._window()
        require_writable(window)
        places = self.indices - first
        self._require_same(places, values)
        if storage.sharing is not None:
            storage.sharing.write_elements(self._elements())
        raw = window.info.raw
        window.array.view(raw)[places] = values.view(raw)
        if storage.complete:
            storage.mark_written(window)
        else:
            for index in np.unique(self.indices):
                storage.mark_written(self._row(int(index)))

    def repeated(self):
        """An index that two rows share, or None."""
        found, counts = np.unique(self.indices, return_counts=True)
        return int(found[counts > 1][0]) if (counts > 1).any() else None

    def _require_same(self, places, values):
        """The order of the rows of a transfer is not documented, so it may not matter."""
        if self.repeated() is None:
            return
        values = values.view(self.view.info.raw).reshape(len(places), -1)
        _, first, inverse = np.unique(places, return_index=True, return_inverse=True)
        if (values != values[first[inverse]]).any():
            raise NkiValidationError(
                "dma-duplicate-rows",
                f"{self.role} is written at row {self.repeated()} twice, with different values; "
                f"which one stays is not defined. Make the indices unique.",
            )

    def _row(self, index):
        """One row as a static view."""
        view = self.view
        return NkiTensor._view(
            view, view.offset + index * view.scale, (1, *view.shape[1:]), view.strides, exact=False
        )

    def _window(self):
        """All rows from the lowest index to the highest as a static view, and the lowest."""
        view, first = self.view, int(self.indices.min())
        count = int(self.indices.max()) - first + 1
        strides = (view.scale, *view.strides[1:])
        shape = (count, *view.shape[1:])
        offset = view.offset + first * view.scale
        return NkiTensor._view(view, offset, shape, strides, exact=False), first

    def _elements(self):
        """Flat numbers, in elements of the storage, of everything that the rows cover."""
        view = self.view
        flat = view.offset + self.indices * view.scale
        for stride, size in zip(view.strides[1:], view.shape[1:]):
            flat = flat[..., None] + stride * np.arange(size)
        mine, unit = view.info.itemsize, view.storage.info.itemsize
        flat = np.unique(flat)
        if mine > unit:
            flat = flat[:, None] * (mine // unit) + np.arange(mine // unit)
        return np.unique(flat * mine // unit if mine < unit else flat)


def converted(values, source, target):
    """``values`` of dtype ``source`` in the storage of dtype ``target``; through float32."""
    return values if source is target else narrowed(to_float32(values, source), target)


def narrowed(values, target):
    """float32 ``values`` in the storage of dtype ``target``."""
    result = np.empty(values.shape, target.storage)
    if values.size:
        store_float32(result, target, values)
    return result


def write_rows(dst, values, kept, permutation=None):
    """Store rows in a static view; what belongs to rows that are not ``kept`` stays as it is.

    ``values`` has dst's dtype and one entry for each row that is kept. All rows, the others
    included, make up dst in row-major order, after ``permutation`` of their dimensions if given.
    """
    flags = kept
    if not kept.all():
        everything = np.zeros((kept.size, *values.shape[1:]), values.dtype)
        everything[kept] = values
        values = everything
        flags = np.broadcast_to(kept.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    if permutation is not None:
        values = values.transpose(permutation)
        flags = flags.transpose(permutation) if flags.ndim > 1 else flags
    if flags is kept:
        write_raw(dst, values)
        return
    require_writable(dst)
    if dst.storage.sharing is not None:
        dst.storage.sharing.write(dst)
    raw, flags = dst.info.raw, flags.reshape(dst.shape)
    np.copyto(dst.array.view(raw), values.reshape(dst.shape).view(raw), where=flags)
    dst.storage.mark_where(dst, flags)
