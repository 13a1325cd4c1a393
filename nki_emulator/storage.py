"""Memory behind tensors: bytes, and which of them were written.

A :class:`Storage` is one allocation (an SBUF or PSUM tile, an HBM tensor). Every view of it shares
the storage. Beside the bytes it keeps a *shadow*, one flag an element: reading an element that
nothing wrote is an error whatever its value, and a NaN that was written is an ordinary value. Most
tiles are written as a whole, so the shadow exists only while a storage is partly written, and
regions found to be written are remembered by the view that addressed them.
"""

import math

import numpy as np

from .errors import NkiUninitializedRead

# What unwritten memory holds: all bits set is a NaN in every float type; integers hold 4, as in the
# official simulator ("Uninitialized Memory Detection").
NAN_BYTE = 0xFF
INTEGER_FILL = 4


class Storage:
    """One allocation.

    ``shape`` is in elements of ``info``; on the chip its first dimension is the partition and
    ``pitch`` is the number of elements of one partition. ``partition`` and ``address`` (first
    partition, byte within a partition) place it in SBUF or PSUM; ``explicit`` says that the kernel
    chose the address. ``site`` is the kernel line that allocated it.
    """

    __slots__ = (
        "buffer", "shape", "info", "pitch", "size", "nbytes", "memory", "name", "site", "partition",
        "address", "explicit", "complete", "shadow", "unit", "known", "marked", "version",
        "table", "on_chip", "readonly", "number", "sharing", "overlaps", "__weakref__",
    )  # fmt: skip

    def __init__(self, buffer, shape, info, table, memory=None, name="", site=None):
        self.buffer = buffer
        self.shape = shape
        self.info = info
        self.table = table
        self.size = math.prod(shape)
        self.pitch = math.prod(shape[1:])
        self.nbytes = self.size * info.itemsize
        self.name = name
        self.site = site
        self.on_chip = False
        self.partition = 0
        self.address = 0
        self.explicit = False
        self.readonly = False
        self.version = 0
        self.number = 0
        self.sharing = None  # how two programs of a launch share it (races.py)
        self.overlaps = None  # tiles that were given the same bytes (overlaps.py)
        self.unit = info.itemsize
        self.shadow = None
        self.known = set()
        self.marked = 0
        if memory is None:
            self.memory = np.empty(self.nbytes, np.uint8)
            if info.kind == "float":
                self.memory.fill(NAN_BYTE)
            else:
                self.memory.view(info.raw).fill(INTEGER_FILL)
            self.complete = False
        else:
            self.memory = memory
            self.complete = True
            self.readonly = not memory.flags.writeable

    def describe(self):
        """Name or, for an unnamed tile, its dtype and shape, with the line that allocated it."""
        where = f" allocated at {self.site}" if self.site else ""
        return f"{self.name or 'unnamed'} {self.info.name}{list(self.shape)}{where}"

    def mark_written(self, tensor):
        """Note that every element of the view ``tensor`` has been written."""
        self.version += 1
        if self.complete:
            return
        if self.overlaps is not None:
            self.overlaps.written(self, tensor)
        key = tensor.region
        if key in self.known:
            return
        if tensor.covers_storage:
            self._complete()
            return
        if self.shadow is None:
            self.shadow = np.zeros(self.nbytes // self.unit, np.bool_)
        self.cells(tensor)[...] = True
        self.known.add(key)
        self.marked += tensor.size * tensor.info.itemsize
        if self.marked >= self.nbytes and self.shadow.all():
            self._complete()

    def mark_where(self, tensor, flags):
        """Note that the elements of the view ``tensor`` where ``flags`` holds have been written.

        ``flags`` is a boolean array of the view's shape.
        """
        if flags.all():
            self.mark_written(tensor)
            return
        self.version += 1
        if self.complete:
            return
        if self.overlaps is not None:
            self.overlaps.written(self, tensor)
        if self.shadow is None:
            self.shadow = np.zeros(self.nbytes // self.unit, np.bool_)
        cells = self.cells(tensor)
        cells |= flags[..., None] if cells.ndim > tensor.ndim else flags

    def _complete(self):
        self.known = set()
        if self.overlaps is None:
            self.complete = True
            self.shadow = None
        else:  # another tile may take bytes away again
            self.shadow = np.ones(self.nbytes // self.unit, np.bool_)

    def require_written(self, tensor, role):
        """Raise :class:`NkiUninitializedRead` if the view has an element that nobody wrote."""
        if self.complete or tensor.region in self.known:
            return
        if self.shadow is not None:
            cells = self.cells(tensor)
            if cells.all():
                self.known.add(tensor.region)
                return
            if cells.ndim > tensor.ndim:
                cells = cells.all(axis=-1)
            index = tuple(int(i) for i in np.argwhere(~cells)[0])
            missing = int(cells.size - np.count_nonzero(cells))
        else:
            index = (0,) * tensor.ndim
            missing = tensor.size
        if self.overlaps is not None:
            self.overlaps.require_intact(self, tensor, role)
        hint = "Write it first, or read only the part that was written."
        if self.sharing is not None:
            hint += (
                " If the other core writes it, both must call nisa.core_barrier on it before it is "
                "read."
            )
        raise NkiUninitializedRead(
            "uninitialized-read",
            f"{role} is read at {list(index)}, which nothing has written ({missing} of "
            f"{tensor.size} elements are unwritten). Tile: {self.describe()}. {hint}",
        )

    def is_written(self, tensor):
        """Boolean array of the view's shape: which elements have been written."""
        if self.complete:
            return np.ones(tensor.shape, np.bool_)
        if self.shadow is None:
            return np.zeros(tensor.shape, np.bool_)
        cells = self.cells(tensor)
        return cells.all(axis=-1) if cells.ndim > tensor.ndim else cells

    def cells(self, tensor, lost=False):
        """The flags of a view's elements in the shadow, or in the flags of lost cells.

        A trailing axis is added if an element has several.
        """
        itemsize = tensor.info.itemsize
        if itemsize % self.unit:
            self._refine(math.gcd(itemsize, self.unit))
        ratio = itemsize // self.unit
        shape, strides = tensor.shape, tuple(stride * ratio for stride in tensor.strides)
        if ratio > 1:
            shape, strides = shape + (ratio,), strides + (1,)
        flags = self.overlaps.lost if lost else self.shadow
        return np.ndarray(shape, np.bool_, flags, tensor.offset * ratio, strides)

    def _refine(self, unit):
        """Track smaller cells, for a view of a narrower dtype than the storage's."""
        parts = self.unit // unit
        self.shadow = np.repeat(self.shadow, parts)
        if self.overlaps is not None:
            self.overlaps.refine(parts)
        self.unit = unit
