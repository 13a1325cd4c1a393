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

    __slots__ = ("rivals", "lost", "taken_by", "empty")

    def __init__(self):
        self.rivals = {}  # weak references to the storages on the same bytes, by number
        self.empty = False  # whether all of this tile's cells were taken
        self.lost = None  # flags of this tile's cells
        self.taken_by = ""

    def written(self, storage, tensor):
        """The view ``tensor`` of ``storage``, whose overlaps these are, has been written."""
        self.empty = False
        if self.lost is not None:
            storage.cells(tensor, lost=True)[...] = False
        covered = None
        for reference in list(self.rivals.values()):
            rival = reference()
            if rival is None or rival.shadow is None or rival.overlaps.empty:
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
        rivals, number = storage.overlaps.rivals, rival.number
        rivals[number] = weakref.ref(rival, lambda _, r=rivals, n=number: r.pop(n, None))


def _bytes_of(storage, tensor):
    """Which bytes of each partition the view covers: booleans [partitions, bytes]."""
    itemsize, nbytes = tensor.info.itemsize, tensor.info.nbytes
    flags = np.zeros(storage.nbytes // itemsize, np.bool_)
    np.ndarray(tensor.shape, np.bool_, flags, tensor.offset, tensor.strides)[...] = True
    return np.repeat(flags, nbytes).reshape(storage.shape[0], -1)


def _take(storage, covered, rival):
    """Take the bytes that ``covered`` marks in ``storage`` away from ``rival``."""
    # With NKI_PRECISE_FP=0 an element is wider here than on the chip, and a cell is an element.
    cell = rival.unit * rival.info.nbytes // rival.info.itemsize
    rows, rival_rows = _common(storage.partition, storage.shape[0], rival.partition, rival.shape[0])
    columns, rival_columns = _common(
        storage.address, covered.shape[1], rival.address, _row_bytes(rival)
    )
    first, last = rival_columns.start // cell, -(-rival_columns.stop // cell)
    box = (rival_rows, slice(first, last))
    shadow = rival.shadow.reshape(rival.shape[0], -1)
    if not shadow[box].any():
        return
    taken = np.zeros((rival_rows.stop - rival_rows.start, (last - first) * cell), np.bool_)
    start = rival_columns.start - first * cell
    taken[:, start : start + columns.stop - columns.start] = covered[rows, columns]
    cells = taken[:, 0::cell]
    for byte in range(1, cell):
        cells = cells | taken[:, byte::cell]
    cells = cells & shadow[box]
    if cells.any():
        overlaps = rival.overlaps
        if overlaps.lost is None:
            overlaps.lost = np.zeros(rival.shadow.size, np.bool_)
        overlaps.lost.reshape(shadow.shape)[box] |= cells
        overlaps.taken_by = f"{storage.describe()} was written at {kernel_line()}"
        shadow[box] &= ~cells
        overlaps.empty = not shadow.any()
        rival.known.clear()


def _row_bytes(storage):
    return storage.pitch * storage.info.nbytes


def _common(start, size, other_start, other_size):
    """The common part of two ranges, as a slice of each."""
    low, high = max(start, other_start), min(start + size, other_start + other_size)
    return slice(low - start, high - start), slice(low - other_start, high - other_start)
