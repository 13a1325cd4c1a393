"""Tiles that a kernel put on the same bytes with ``address=``.

A kernel that places its tiles itself uses bytes again while the Python name of the old tile is
still around: the documentation's allocator page does so for a stack of scopes, and rotating buffers
do it all the time. That is sound as long as nobody reads the old tile's bytes after the new tile
has been written. So two such tiles may exist together; each write into one of them takes the bytes
it covers away from the other, and reading bytes that were taken away is the error.

The tiles keep separate memory here. What is tracked is one flag a cell (see `storage.py`) of a
tile, set where a write into another tile took the cell away.
"""

import weakref

import numpy as np

from .errors import NkiCapacityError, kernel_line


class Overlaps:
    """What one tile has to know about the tiles on its bytes."""

    __slots__ = ("rivals", "lost", "taken_by")

    def __init__(self):
        self.rivals = []  # weak references to the storages on the same bytes
        self.lost = None  # flags of this tile's cells
        self.taken_by = ""

    def written(self, storage, tensor):
        """The view ``tensor`` of ``storage``, whose overlaps these are, has been written."""
        if self.lost is not None:
            storage.cells(tensor, lost=True)[...] = False
        covered = None
        for reference in self.rivals:
            rival = reference()
            if rival is None or rival.shadow is None:
                continue
            if covered is None:
                covered = _bytes_of(storage, tensor)
            _take(storage, covered, rival)

    def require_intact(self, storage, tensor, role):
        """Raise if the view has an element whose bytes another tile took."""
        if self.lost is None:
            return
        lost = storage.cells(tensor, lost=True)
        if not lost.any():
            return
        index = [int(i) for i in np.argwhere(lost)[0][: tensor.ndim]]
        raise NkiCapacityError(
            "address-overlap",
            f"{role} is read at {index}, whose bytes were overwritten: {self.taken_by}. Tile that "
            f"is read: {storage.describe()}. The two tiles were given overlapping addresses; use "
            f"the older one no more after writing the newer one, or place them apart.",
        )

    def refine(self, parts):
        """Follow the storage's change to cells of a ``parts``-th of their size."""
        if self.lost is not None:
            self.lost = np.repeat(self.lost, parts)


def connect(first, second):
    """Two live storages were placed on common bytes."""
    for storage, rival in ((first, second), (second, first)):
        if storage.overlaps is None:
            storage.overlaps = Overlaps()
            if storage.complete:
                storage.complete = False
                storage.shadow = np.ones(storage.nbytes // storage.unit, np.bool_)
        rivals = storage.overlaps.rivals
        rivals[:] = [reference for reference in rivals if reference() is not None]
        rivals.append(weakref.ref(rival))


def _bytes_of(storage, tensor):
    """Which bytes of each partition the view covers: booleans [partitions, bytes]."""
    itemsize, nbytes = tensor.info.itemsize, tensor.info.nbytes
    flags = np.zeros(storage.nbytes // itemsize, np.bool_)
    np.ndarray(tensor.shape, np.bool_, flags, tensor.offset, tensor.strides)[...] = True
    return np.repeat(flags, nbytes).reshape(storage.shape[0], -1)


def _take(storage, covered, rival):
    """Take the bytes that ``covered`` marks in ``storage`` away from ``rival``."""
    partitions = _common(storage.partition, storage.shape[0], rival.partition, rival.shape[0])
    columns = _common(storage.address, covered.shape[1], rival.address, _row_bytes(rival))
    taken = np.zeros((rival.shape[0], _row_bytes(rival)), np.bool_)
    taken[partitions[1], columns[1]] = covered[partitions[0], columns[0]]
    # With NKI_PRECISE_FP=0 an element is wider here than on the chip, and a cell is an element.
    cell = rival.unit * rival.info.nbytes // rival.info.itemsize
    cells = taken.reshape(-1, cell).any(axis=1) & rival.shadow
    if cells.any():
        overlaps = rival.overlaps
        overlaps.lost = cells if overlaps.lost is None else overlaps.lost | cells
        overlaps.taken_by = f"{storage.describe()} was written at {kernel_line()}"
        rival.shadow &= ~cells
        rival.known.clear()


def _row_bytes(storage):
    return storage.pitch * storage.info.nbytes


def _common(start, size, other_start, other_size):
    """The common part of two ranges, as a slice of each."""
    low, high = max(start, other_start), min(start + size, other_start + other_size)
    return slice(low - start, high - start), slice(low - other_start, high - other_start)
