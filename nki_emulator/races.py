"""Which bytes of HBM each core of an LNC 2 launch touched, to find races.

The two cores run at the same time on one HBM. Two accesses of the same byte, one by each core and
at least one of them a write, are in no order unless both cores met in between in
``nisa.core_barrier(data, ...)`` and the byte belongs to ``data``. The stub of core_barrier says
that ``data`` "represents the shared data that all cores need to synchronize on" and that only the
engine which executes it waits, so nothing else is ordered by it; neither does the stub of sendrecv
promise any order for HBM. The emulator therefore orders exactly the elements of the view that was
passed as ``data``. A pair of unordered accesses is an error at the second of them, whatever the
values were.

Every access sets a flag in each *cell* (a few bytes, never more than an element) that it touches.
An access that repeats an earlier one costs a set lookup: had the other core interfered since, its
access would have been refused.
"""

import math

import numpy as np

from .errors import NkiValidationError, kernel_line

# Flags of a cell: program p read it (READ << p), program p wrote it (WRITE << p).
READ, WRITE = 1, 4


class _Region:
    """The cells of a strided view, in any array with one element a cell."""

    __slots__ = ("footprint", "base", "offset", "shape", "strides", "itemsize")

    def __init__(self, footprint, base, region):
        self.footprint = footprint
        self.base = base
        self.offset, shape, self.strides, self.itemsize = region
        # A broadcast dimension touches the same cells again and again.
        self.shape = tuple(1 if stride == 0 else size for size, stride in zip(shape, self.strides))

    def of(self, array):
        """The cells in ``array``, as a view."""
        unit, step = self.footprint.unit, array.itemsize
        ratio = self.itemsize // unit
        return np.ndarray(
            (*self.shape, ratio), array.dtype, array,
            (self.base // unit + self.offset * ratio) * step,
            (*(stride * ratio * step for stride in self.strides), step),
        )  # fmt: skip

    def mark(self, array, flag):
        """Set a flag in the cells of ``array``."""
        cells = self.of(array)
        cells |= flag


class _Elements:
    """The cells of single elements, given by sorted flat indices into a storage."""

    __slots__ = ("footprint", "base", "indices", "itemsize")

    def __init__(self, footprint, base, indices, itemsize):
        self.footprint = footprint
        self.base = base
        self.indices = indices
        self.itemsize = itemsize

    def of(self, array):
        """The cells in ``array``, as a copy."""
        return array[self._numbers()]

    def mark(self, array, flag):
        """Set a flag in the cells of ``array``."""
        array[self._numbers()] |= flag

    def _numbers(self):
        unit = self.footprint.unit
        ratio = self.itemsize // unit
        first = self.base // unit + self.indices * ratio
        return (first[:, None] + np.arange(ratio)).reshape(-1)


class Footprint:
    """The flags and accesses of some HBM memory: of one tensor, or of arguments that overlap."""

    def __init__(self, launch, nbytes, unit):
        self.launch = launch
        self.nbytes = nbytes
        self.unit = unit  # bytes of a cell
        self.flags = None
        self.known = (set(), set())
        self.accesses = ([], [])  # of each program: (whether it wrote, cells, kernel line)

    def touch(self, sharing, key, wrote, cells):
        """Note an access by the running program; an error if it races with the other program."""
        program = self.launch.running
        if self.flags is None:
            self.flags = np.zeros(self.nbytes // self.unit, np.uint8)
        other = 1 - program
        if self.accesses[other]:
            conflict = (WRITE << other) | ((READ << other) if wrote else 0)
            if (cells.of(self.flags) & conflict).any():
                self._refuse(sharing, program, wrote, cells, conflict)
        cells.mark(self.flags, (WRITE if wrote else READ) << program)
        self.known[program].add(key)
        self.accesses[program].append((wrote, cells, kernel_line()))

    def order(self, cells, everything):
        """Order what happened so far before what follows, for some cells or for all."""
        if self.flags is not None:
            cells.of(self.flags)[...] = 0
        for program in (0, 1):
            self.known[program].clear()
            if everything:
                self.accesses[program].clear()

    def refine(self, itemsize, base):
        """Make cells no larger than elements of ``itemsize`` bytes from byte ``base`` on."""
        unit = math.gcd(self.unit, itemsize, base)
        if unit != self.unit:
            if self.flags is not None:
                self.flags = np.repeat(self.flags, self.unit // unit)
            self.unit = unit

    def _refuse(self, sharing, program, wrote, cells, conflict):
        touched = np.unique(cells.of(np.arange(self.flags.size)))
        clashing = touched[(self.flags[touched] & conflict) != 0]
        storage = sharing.storage
        earlier_wrote, line = self._latest(1 - program, clashing[0], conflict)
        raise NkiValidationError(
            "hbm-race",
            f"program {program} {'writes' if wrote else 'reads'} {sharing.bytes_text(clashing)} of "
            f"{storage.describe()}. Program {1 - program} {'wrote' if earlier_wrote else 'read'} "
            f"there at {line}, with no barrier on these bytes in between:\n"
            f"      {line.text if line else ''}\n"
            f"    The two cores run at the same time, so the order of the two accesses is not "
            f"defined. Let each core keep to its own bytes, or have both call "
            f"nisa.core_barrier(data=<this tensor>, cores=(0, 1)) between the accesses; a barrier "
            f"on another tensor does not order them.",
        )

    def _latest(self, program, cell, conflict):
        """The program's last access that set one of the ``conflict`` flags of a cell."""
        for wrote, cells, line in reversed(self.accesses[program]):
            if conflict & ((WRITE if wrote else READ) << program):
                marks = np.zeros(self.flags.size, np.uint8)
                cells.mark(marks, 1)
                if marks[cell]:
                    return wrote, line
        raise AssertionError("a flag without the access that set it")


class Sharing:
    """How one HBM storage lies in its footprint: the hook that `access.py` calls."""

    __slots__ = ("storage", "footprint", "base")

    def __init__(self, storage, footprint, base=0):
        """``base`` is the first byte of the storage in the footprint."""
        self.storage = storage
        self.footprint = footprint
        self.base = base

    def read(self, tensor):
        """The running program reads the view."""
        self._touch(tensor.region, False)

    def write(self, tensor):
        """The running program writes the view."""
        self._touch(tensor.region, True)

    def read_elements(self, indices):
        """The running program reads elements of the storage, given by flat indices."""
        self._touch_elements(indices, False)

    def write_elements(self, indices):
        """The running program writes elements of the storage, given by flat indices."""
        self._touch_elements(indices, True)

    def order(self, tensor):
        """Both programs are at a barrier on the view."""
        footprint = self.footprint
        everything = tensor.covers_storage and footprint.nbytes == self.storage.nbytes
        footprint.order(self._cells(tensor.region), everything)

    def _touch(self, region, wrote):
        footprint = self.footprint
        key = (self.base, region, wrote)
        if key not in footprint.known[footprint.launch.running]:
            footprint.touch(self, key, wrote, self._cells(region))

    def _cells(self, region):
        self.footprint.refine(region[3], self.base)
        return _Region(self.footprint, self.base, region)

    def _touch_elements(self, indices, wrote):
        itemsize = self.storage.info.itemsize
        footprint = self.footprint
        footprint.refine(itemsize, self.base)
        indices = np.unique(np.asarray(indices, np.int64))
        key = (self.base, indices.tobytes(), wrote)
        if key not in footprint.known[footprint.launch.running]:
            footprint.touch(self, key, wrote, _Elements(footprint, self.base, indices, itemsize))

    def bytes_text(self, cells):
        """Sorted cells as bytes and first element of the tensor, for a message."""
        unit, info = self.footprint.unit, self.storage.info
        breaks = np.flatnonzero(np.diff(cells) != 1)
        last = int(cells[breaks[0]] if breaks.size else cells[-1])
        first, end = int(cells[0]) * unit - self.base, (last + 1) * unit - self.base
        element = [int(i) for i in np.unravel_index(first // info.itemsize, self.storage.shape)]
        # With NKI_PRECISE_FP=0 an element is wider here than on the chip.
        low, high, total = (
            number * info.nbytes // info.itemsize for number in (first, end, cells.size * unit)
        )
        text = f"bytes {low}..{high - 1} (element {element}"
        if breaks.size:
            text += f", the first of {breaks.size + 1} runs, {total} bytes in all"
        return text + ")"


def share(launch, storage):
    """Watch one tensor in shared HBM."""
    footprint = Footprint(launch, storage.nbytes, storage.info.itemsize)
    storage.sharing = Sharing(storage, footprint)


def share_arguments(launch, storages):
    """Watch the arguments. Arrays over the same memory of the caller share one footprint."""

    def address(storage):
        return storage.memory.__array_interface__["data"][0]

    groups, end = [], 0
    for storage in sorted(storages, key=address):
        start = address(storage)
        if not groups or start >= end:
            groups.append([])
        groups[-1].append(storage)
        end = max(end, start + storage.nbytes)
    for group in groups:
        first = address(group[0])
        size = max(address(storage) + storage.nbytes for storage in group) - first
        footprint = Footprint(launch, size, math.gcd(size, group[0].info.itemsize))
        for storage in group:
            storage.sharing = Sharing(storage, footprint, address(storage) - first)
