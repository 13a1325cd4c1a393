"""A PSUM tile: a storage that remembers which engine wrote each byte last.

That decides what the next matmul does there: `accumulate=None` overwrites what no matmul has
written and adds to what one has; `accumulate=True` needs a location that a matmul started. A matmul
adds in the dtype of its dst, so the size of the elements that the last matmul wrote is kept too: a
tile may hold transposed bfloat16 data in one place and float32 sums in another, but a float32 sum
cannot continue on two bfloat16 values.

The usual case, one region written again and again, is kept as a single ``(region, state)`` pair; an
array with one state a cell is made only when regions differ. Cells start at the tile's own element
size and are split when a view of narrower elements writes.
"""

import math

import numpy as np

from .errors import NkiValidationError
from .storage import Storage

# State of a cell. After a matmul it is the size of the element that it wrote, 2 or 4 bytes; an
# element whose cells differ is MIXED.
UNWRITTEN, OTHER, OTHER_AFTER_MATMUL, MIXED = 0, 1, 8, 16
MATMUL_SIZES = (2, 4)


class PsumStorage(Storage):
    """A PSUM tile."""

    __slots__ = ("uniform", "states", "grain")

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.uniform = None  # (region, state) while only one region has ever been written
        self.states = None
        self.grain = self.info.itemsize  # bytes of a cell

    def mark_written(self, tensor):
        """Note a write by an engine other than the tensor engine."""
        super().mark_written(tensor)
        if self.states is None:
            region = tensor.region
            if self.uniform is None:
                self.uniform = (region, OTHER)
                return
            if self.uniform[0] == region:
                if self.uniform[1] in MATMUL_SIZES:
                    self.uniform = (region, OTHER_AFTER_MATMUL)
                return
        states = self._states(tensor)
        states[...] = _touched(states)

    def mark_where(self, tensor, flags):
        """Note a write by an engine other than the tensor engine, of some elements."""
        super().mark_where(tensor, flags)
        if not flags.all():
            states = self._states(tensor)
            if states.ndim > flags.ndim:
                flags = flags[..., None]
            np.copyto(states, _touched(states), where=flags)

    def mark_matmul(self, tensor):
        """Note a write by the tensor engine."""
        super().mark_written(tensor)
        if self.states is None:
            region = tensor.region
            if self.uniform is None or self.uniform[0] == region:
                self.uniform = (region, tensor.info.itemsize)
                return
        self._states(tensor)[...] = tensor.info.itemsize

    def accumulation(self, tensor, accumulate, target):
        """What a matmul with this ``accumulate`` does to each element of ``tensor``.

        Returns False (overwrite all), True (accumulate on all) or a boolean array. Raises for what
        the documentation leaves undefined.
        """
        if accumulate is False:
            return False
        if self.overlaps is not None:
            self.overlaps.require_intact(self, tensor, "dst, which is accumulated on,")
        own = tensor.info.itemsize
        states = self._state_of(tensor)
        if isinstance(states, int):
            if states == own:
                return True
            if accumulate is None and states == UNWRITTEN:
                return False
            states = np.full(tensor.shape, states, np.uint8)
        elif (states == own).all():
            return True
        self._require_same_width(tensor, states, own)
        if accumulate is True:
            self._require_accumulable(states, target)
            return True
        self._require_unambiguous(tensor, states, target)
        return states == own

    def _require_same_width(self, tensor, states, own):
        other = MATMUL_SIZES[own == MATMUL_SIZES[0]]
        if ((states == other) | (states == MIXED)).any():
            raise NkiValidationError(
                "psum-view-dtype",
                f"accumulating {tensor.dtype} on a PSUM location of {self.describe()} that holds "
                f"elements of another size, or parts of them: the sum would add to bits that are "
                f"no {tensor.dtype}. Pass accumulate=False to start the group.",
            )

    def _require_accumulable(self, states, target):
        if (states == UNWRITTEN).any():
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

    def states_of(self, tensor):
        """The state of every element of a view, as an array of its shape."""
        states = self._state_of(tensor)
        return np.broadcast_to(np.asarray(states, np.uint8), tensor.shape)

    def set_states(self, tensor, columns, states):
        """Give the ``columns`` of a view with two dimensions the ``states`` of another tile's."""
        cells = self._states(tensor)
        cells[:, columns] = states if cells.ndim == 2 else states[..., None]

    def _state_of(self, tensor):
        """The state of every element, as one int if it is the same everywhere."""
        if self.states is None:
            if self.uniform is None:
                return UNWRITTEN
            if self.uniform[0] == tensor.region:
                return self.uniform[1]
        states = self._states(tensor)
        if states.ndim == tensor.ndim:
            return states
        first = states[..., 0]
        return np.where((states == first[..., None]).all(axis=-1), first, np.uint8(MIXED))

    def _states(self, tensor):
        if self.states is None:
            self.states = np.zeros(self.nbytes // self.grain, np.uint8)
            if self.uniform is not None:
                region, state = self.uniform
                self._states_at(region)[...] = state
                self.uniform = None
        return self._states_at(tensor.region)

    def _states_at(self, region):
        """The cells of a view's elements; with a trailing axis if an element has several."""
        offset, shape, strides, itemsize = region
        if itemsize % self.grain:
            finer = math.gcd(itemsize, self.grain)
            self.states = np.repeat(self.states, self.grain // finer)
            self.grain = finer
        ratio = itemsize // self.grain
        if ratio > 1:
            shape, strides = (*shape, ratio), (*(stride * ratio for stride in strides), 1)
        return np.ndarray(shape, np.uint8, self.states, offset * ratio, strides)


def _touched(states):
    """The states after another engine has written."""
    matmul = (states == 2) | (states == 4) | (states == OTHER_AFTER_MATMUL)
    return np.where(matmul, np.uint8(OTHER_AFTER_MATMUL), np.uint8(OTHER))
