"""Memory behind tensors: bytes, which of them were written, and what a matmul left in PSUM.

A :class:`Storage` is one allocation (an SBUF or PSUM tile, an HBM tensor). Every view of it shares
the storage. Beside the bytes it keeps a *shadow*, one flag an element: reading an element that
nothing wrote is an error whatever its value, and a NaN that was written is an ordinary value. Most
tiles are written as a whole, so the shadow exists only while a storage is partly written, and
regions found to be written are remembered by the view that addressed them.

PSUM also keeps, per element, whether a matmul wrote it last, because that decides what the next
matmul does there. The usual case, one region written again and again, is kept as a single
``(region, state)`` pair; an array is made only when regions differ.
"""

import math

import numpy as np

from .errors import NkiUninitializedRead, NkiValidationError

# What unwritten memory holds: all bits set is a NaN in every float type; integers hold 4, as in the
# official simulator ("Uninitialized Memory Detection").
NAN_BYTE = 0xFF
INTEGER_FILL = 4

# Who wrote a PSUM element last.
UNWRITTEN, OTHER, MATMUL, OTHER_AFTER_MATMUL = 0, 1, 2, 3


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
        "table", "on_chip", "readonly", "number", "__weakref__",
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
        key = tensor.region
        if key in self.known:
            return
        if tensor.covers_storage:
            self._complete()
            return
        if self.shadow is None:
            self.shadow = np.zeros(self.nbytes // self.unit, np.bool_)
        self._cells(self.shadow, tensor)[...] = True
        self.known.add(key)
        self.marked += tensor.size * tensor.info.itemsize
        if self.marked >= self.nbytes and self.shadow.all():
            self._complete()

    def _complete(self):
        self.complete = True
        self.shadow = None
        self.known = set()

    def require_written(self, tensor, role):
        """Raise :class:`NkiUninitializedRead` if the view has an element that nobody wrote."""
        if self.complete or tensor.region in self.known:
            return
        if self.shadow is not None:
            cells = self._cells(self.shadow, tensor)
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
        raise NkiUninitializedRead(
            "uninitialized-read",
            f"{role} is read at {list(index)}, which nothing has written ({missing} of "
            f"{tensor.size} elements are unwritten). Tile: {self.describe()}. Write it first, or "
            f"read only the part that was written.",
        )

    def is_written(self, tensor):
        """Boolean array of the view's shape: which elements have been written."""
        if self.complete:
            return np.ones(tensor.shape, np.bool_)
        if self.shadow is None:
            return np.zeros(tensor.shape, np.bool_)
        cells = self._cells(self.shadow, tensor)
        return cells.all(axis=-1) if cells.ndim > tensor.ndim else cells

    def _cells(self, flags, tensor):
        """The flags of a view's elements; a trailing axis if an element has several flags."""
        itemsize = tensor.info.itemsize
        if itemsize % self.unit:
            self._refine(math.gcd(itemsize, self.unit))
            flags = self.shadow
        ratio = itemsize // self.unit
        shape, strides = tensor.shape, tuple(stride * ratio for stride in tensor.strides)
        if ratio > 1:
            shape, strides = shape + (ratio,), strides + (1,)
        return np.ndarray(shape, np.bool_, flags, tensor.offset * ratio, strides)

    def _refine(self, unit):
        """Track smaller cells, for a view of a narrower dtype than the storage's."""
        self.shadow = np.repeat(self.shadow, self.unit // unit)
        self.unit = unit


class PsumStorage(Storage):
    """A PSUM tile: a storage that remembers which elements a matmul wrote last."""

    __slots__ = ("uniform", "states")

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.uniform = None  # (region, state) while only one region has ever been written
        self.states = None

    def mark_written(self, tensor):
        """Note a write by an engine other than the tensor engine."""
        super().mark_written(tensor)
        if self.states is None:
            region = tensor.region
            if self.uniform is None:
                self.uniform = (region, OTHER)
                return
            if self.uniform[0] == region:
                if self.uniform[1] == MATMUL:
                    self.uniform = (region, OTHER_AFTER_MATMUL)
                return
        states = self._states(tensor)
        states[...] = np.where(states >= MATMUL, OTHER_AFTER_MATMUL, OTHER)

    def mark_matmul(self, tensor):
        """Note a write by the tensor engine."""
        super().mark_written(tensor)
        if self.states is None:
            region = tensor.region
            if self.uniform is None or self.uniform[0] == region:
                self.uniform = (region, MATMUL)
                return
        self._states(tensor)[...] = MATMUL

    def accumulation(self, tensor, accumulate, target):
        """What a matmul with this ``accumulate`` does to each element of ``tensor``.

        Returns False (overwrite all), True (accumulate on all) or a boolean array. Raises for what
        the documentation leaves undefined.
        """
        if accumulate is False:
            return False
        states = self._state_of(tensor)
        if isinstance(states, int):
            if states == MATMUL:
                return True
            lowest = highest = states
        else:
            lowest, highest = int(states.min()), int(states.max())
            if lowest == highest == MATMUL:
                return True
        if accumulate is True:
            self._require_accumulable(tensor, states, lowest, target)
            return True
        self._require_unambiguous(tensor, states, target)
        return states == MATMUL

    def _require_accumulable(self, tensor, states, lowest, target):
        if lowest == UNWRITTEN:
            raise NkiValidationError(
                "psum-accumulate-unwritten",
                "accumulate=True on a PSUM location that nothing has written is undefined. Start "
                "the group with accumulate=False (or leave accumulate out).",
            )
        if target.accumulates_on_any_write:
            return
        raise NkiValidationError(
            "psum-accumulate-on-other",
            f"accumulate=True on a PSUM location last written by another engine (memset, "
            f"tensor_copy, ...) is undefined on {target.name}. Start the group with "
            f"accumulate=False and add the other value when the result is read.",
        )

    def _require_unambiguous(self, tensor, states, target):
        """accumulate=None on what another engine wrote: allowed only if it cannot matter.

        The stub says both "first write overwrites" and "auto-detect based on whether this location
        was previously written"; the architecture guide shows a zeroed PSUM tile. With zeros both
        readings give the same sum, so zeros pass and anything else is refused.
        """
        states = np.broadcast_to(np.asarray(states, np.uint8), tensor.shape)
        if not target.accumulates_on_any_write and (states == OTHER_AFTER_MATMUL).any():
            raise NkiValidationError(
                "psum-accumulate-on-other",
                f"this PSUM location was written by a matmul and then by another engine; "
                f"accumulating there is undefined on {target.name}. Pass accumulate=False.",
            )
        others = (states == OTHER) | (states == OTHER_AFTER_MATMUL)
        if others.any() and (tensor.array[others] != 0).any():
            raise NkiValidationError(
                "psum-accumulate-ambiguous",
                "accumulate=None on a PSUM location that another engine set to a non-zero value: "
                "the documentation does not say whether the matmul overwrites it. Pass "
                "accumulate=False to overwrite.",
            )

    def _state_of(self, tensor):
        """The state of every element, as one int if it is the same everywhere."""
        if self.states is None:
            if self.uniform is None:
                return UNWRITTEN
            if self.uniform[0] == tensor.region:
                return self.uniform[1]
        return self._states(tensor)

    def _states(self, tensor):
        if self.states is None:
            self.states = np.zeros(self.nbytes // self.info.itemsize, np.uint8)
            if self.uniform is not None:
                region, state = self.uniform
                self._states_at(region)[...] = state
                self.uniform = None
        return self._states_at(tensor.region)

    def _states_at(self, region):
        offset, shape, strides, itemsize = region
        if itemsize != self.info.itemsize:
            raise NkiValidationError(
                "psum-view-dtype",
                f"a PSUM tile of {self.info.name} is written through views of another element "
                f"size and through several regions, which the emulator does not follow; allocate "
                f"the PSUM tile in the dtype that is written.",
            )
        return np.ndarray(shape, np.uint8, self.states, offset, strides)
