"""The trace as the timing model reads it: instructions with the memory that each operand covers.

A :class:`Footprint` is an operand reduced to what costs and dependencies need. On the chip it is a
box, partitions by bytes of a partition; in HBM a range of bytes. A strided operand counts with
everything between its first and last byte.
"""

import functools
from dataclasses import dataclass, replace

from ..dtypes import PRECISE
from ..regions import is_on_chip
from ..views import coalesce

# Instructions that write (P, 1) results from the accumulator registers as a second output.
ACCUMULATING = (
    "activation", "activation_reduce", "activate2", "tensor_scalar_reduce", "select_reduce",
    "range_select", "exponential",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Footprint:
    """An operand: shape, dtype and the box of memory it touches.

    ``run`` is the number of bytes that lie together, ``dense`` whether the innermost dimension has
    no gaps; ``box`` is (first partition, end partition, first byte, end byte) in ``memory``, which
    is the storage itself or, for tiles that the kernel placed over each other, the first of those.
    ``dynamic`` is that of the operand: how its address was found.
    """

    storage: int
    memory: int
    buffer: object
    dtype: str
    offset: int
    shape: tuple
    elements: int
    bytes: int
    run: int
    dense: bool
    on_chip: bool
    box: tuple
    dynamic: str = ""

    @property
    def descriptors(self):
        """How many pieces of memory the operand consists of."""
        return -(-self.bytes // self.run)


@functools.lru_cache(maxsize=65536)
def footprint(operand):
    """The footprint of a traced operand. One whose address was found element by element at run
    time counts with its whole tensor."""
    nbytes = PRECISE[operand.dtype].nbytes
    shape, strides = operand.shape, operand.strides
    elements = 1
    for size in shape:
        elements *= size
    chip = is_on_chip(operand.buffer)
    # Rows on other partitions, or gathered from anywhere, do not lie together.
    apart = chip or operand.dynamic == "vector"
    free = list(zip(shape, strides))[1:] if chip else list(zip(shape, strides))
    together = list(zip(shape, strides))[1:] if apart else free
    pairs = coalesce(*zip(*together)) if together else []
    run = nbytes
    if pairs and pairs[-1][1] == 1:
        run = pairs[-1][0] * nbytes
    dense = not pairs or pairs[-1][1] in (0, 1)
    low = sum(stride * (size - 1) for size, stride in free if stride < 0)
    high = sum(stride * (size - 1) for size, stride in free if stride > 0)
    if chip:
        row, column = divmod(operand.offset, operand.pitch)
        first = operand.partition + row
        box = (first, first + shape[0], (column + low) * nbytes, (column + high + 1) * nbytes)
    else:
        start = operand.offset
        box = (0, 1, (start + low) * nbytes, (start + high + 1) * nbytes)
    if operand.dynamic == "indirect":
        box = (operand.partition, operand.partition + operand.partitions, 0, operand.tile_bytes)
    if operand.dynamic == "vector":
        box = (0, 1, 0, operand.partitions * operand.tile_bytes)
    return Footprint(
        operand.storage, operand.storage, operand.buffer, operand.dtype, operand.offset, shape,
        elements, elements * nbytes, run, dense, chip, box, operand.dynamic,
    )  # fmt: skip


@dataclass(slots=True)
class Step:
    """One instruction: a trace record with footprints for operands, and the core that runs it."""

    op: str
    engine: str
    writes: tuple
    reads: tuple
    elements: int
    details: dict
    line: object
    core: int

    @property
    def reads_accumulator(self):
        """Whether the accumulator registers are read out by this instruction."""
        return len(self.writes) > 1 and self.op in ACCUMULATING

    @property
    def reads_index(self):
        """Whether the engine reads an address from a tile first."""
        return len(self.reads) > 1 and any(
            operand.dynamic == "scalar" for operand in (*self.writes, *self.reads)
        )


def steps(trace, core=0):
    """Every record of a trace as a :class:`Step`."""
    shared = _shared_memory(trace)
    return [
        Step(
            record.op, record.engine, _footprints(_written(record), shared),
            _footprints(record.reads, shared), record.elements, record.details, record.line, core,
        )
        for record in trace
    ]  # fmt: skip


def _shared_memory(trace):
    """{storage: (memory, bytes from its start)} of the tiles that a kernel placed itself."""
    placed = {
        operand.storage: operand
        for record in trace
        for operand in (*record.writes, *record.reads)
        if operand.explicit
    }
    shared = {}
    first, end = None, 0
    for tile in sorted(placed.values(), key=lambda one: (one.buffer.value, one.address)):
        if first is None or tile.buffer is not first.buffer or tile.address >= end:
            first, end = tile, 0
        end = max(end, tile.address + tile.tile_bytes)
        shared[tile.storage] = (first.storage, tile.address - first.address)
    return shared


def _written(record):
    """A barrier counts as a write: what follows on its tensor waits for it."""
    return record.reads if record.op == "core_barrier" else record.writes


def _footprints(operands, shared):
    return tuple(_moved(footprint(operand), shared) for operand in operands)


def _moved(found, shared):
    """The footprint in the memory that its tile shares with others."""
    if found.storage not in shared:
        return found
    memory, distance = shared[found.storage]
    first, last, low, high = found.box
    return replace(found, memory=memory, box=(first, last, low + distance, high + distance))
