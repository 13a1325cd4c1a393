"""The running kernel: its target, memories, program id, engine registers and instruction trace.

One session is one program of one launch. It is found through a context variable, so that several
threads, and the two programs of an LNC 2 launch, each see their own; nothing else in the emulator
is global.
"""

import contextvars
from dataclasses import dataclass, field

from . import dtypes
from .errors import (
    NkiValidationError,
    SourceLine,
    kernel_line,
)
from .iterations import Runtime
from .memory import Memory, PsumMemory
from .objects import NKIObject
from .psum import PsumStorage
from .regions import MemoryRegion, is_on_chip
from .storage import Storage
from .targets import selected_target, usable_psum_banks
from .tensor import NkiTensor

_current = contextvars.ContextVar("nki_emulator_session", default=None)


@dataclass(frozen=True)
class Operand:
    """What an instruction read or wrote: a region of a storage.

    ``dynamic`` says that the address was found at run time: "scalar" (then ``offset`` is the one
    that was used), "vector" or "indirect" (then the region is the view's without its index).
    """

    storage: int
    buffer: MemoryRegion
    dtype: str
    offset: int
    shape: tuple
    strides: tuple
    partition: int
    address: int
    dynamic: str = ""


@dataclass(slots=True)
class TraceRecord:
    """One executed instruction.

    ``elements`` is the free size, elements per partition, of the largest operand; ``bytes`` the
    bytes written; ``details`` holds what a single instruction adds (activation function, matmul
    row tile, ...); ``line`` the kernel line that issued it. ``loop`` lists the dynamic loops that
    the instruction ran in, outermost first, as pairs (loop number, iteration).
    """

    number: int
    op: str
    engine: str
    writes: tuple
    reads: tuple
    elements: int
    bytes: int
    line: SourceLine
    name: str = ""
    details: dict = field(default_factory=dict)
    loop: tuple = ()


class NkiInstruction(NKIObject):
    """Handle of an issued instruction, for scheduling dependencies."""

    __slots__ = ("number", "name", "loop")

    def __init__(self, handle, name=None, loop=()):
        self.number = handle
        self.name = name
        self.loop = loop

    def depends_on(self, *producers):
        """Run after ``producers``. The emulator runs in program order, so nothing changes.

        Returns the instruction itself.
        """
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                raise NkiValidationError(
                    "depends-on", f"producer {producer!r} is not an instruction."
                )
            if producer.number >= self.number:
                raise NkiValidationError(
                    "depends-on", "a producer must be issued before the instruction that waits."
                )
            # The stub first allows a producer in an enclosing scope, then no edge into a loop.
            if producer.loop != self.loop:
                raise NkiValidationError(
                    "depends-on-loop",
                    "the two instructions are not in the same iteration of the same dynamic loop; "
                    "a dependency cannot lead into, out of or around a dynamic loop.",
                )
        return self


class Session:
    """State of one program while its kernel runs."""

    def __init__(self, program=0, programs=1, has_grid=False, trace=False):
        self.target = selected_target()
        self.table = dtypes.active_table()
        self.program = program
        self.programs = programs
        self.has_grid = has_grid
        self.sbuf = Memory(
            "SBUF",
            self.target.sbuf_partition_bytes,
            self.target.sbuf_align,
            self.target.partitions,
        )
        self.psum = PsumMemory(
            usable_psum_banks(self.target) * self.target.psum_bank_bytes,
            self.target.psum_bank_bytes,
            self.target.psum_align,
            self.target.partitions,
            several_banks=self.target.matmul_moving_free > self.target.matmul_moving_gemm,
        )
        self.instructions = 0
        self.counts = {}
        self.trace = [] if trace else None
        self.accumulators = {}
        self.random = {}  # random number generators, by engine (generators.py)
        self.identities = {}
        self.checked = {}  # what the shape checks of an instruction found, by their inputs
        self.launch = None  # the LNC 2 launch that this program is one of two of (programs.py)
        self.dynamic = None  # the Runtime of a kernel that uses registers, loops or dynamic views
        self.no_reorder = 0  # how many nl.no_reorder() regions are open
        self._storages = 0

    @property
    def static_instructions(self):
        """Instructions of the program: the body of a dynamic loop counts once."""
        runtime = self.dynamic
        if runtime is None:
            return self.instructions
        return self.instructions - runtime.executed + runtime.static

    def runtime(self):
        """The dynamic side of the session, made on first use."""
        if self.dynamic is None:
            self.dynamic = Runtime()
        return self.dynamic

    def allocate(self, shape, dtype, buffer, name="", address=None):
        """A new tensor, uninitialised. ``address`` is (partition, byte) and only for the chip."""
        shape = _checked_shape(shape)
        info = dtypes.lookup(self.table, dtype)
        if not isinstance(buffer, MemoryRegion):
            raise NkiValidationError(
                "buffer",
                f"buffer={buffer!r}; use nl.sbuf, nl.psum, nl.shared_hbm or nl.private_hbm.",
            )
        chip = is_on_chip(buffer)
        if chip and len(shape) < 2:
            raise NkiValidationError(
                "rank",
                f"shape {list(shape)}: an on-chip tensor has a partition dimension and at "
                f"least one free dimension.",
            )
        if chip and shape[0] > self.target.partitions:
            raise NkiValidationError(
                "partitions",
                f"shape {list(shape)}: {shape[0]} partitions; {buffer.value.upper()} has "
                f"{self.target.partitions}. Dimension 0 is the partition.",
            )
        if address is not None and not chip:
            raise NkiValidationError("address", "address= is for SBUF and PSUM only.")
        if buffer is MemoryRegion.shared_hbm:
            return NkiTensor(shape, dtype, self._shared_storage(shape, info, name), buffer)
        kind = PsumStorage if buffer is MemoryRegion.psum else Storage
        storage = kind(buffer, shape, info, self.table, None, name, kernel_line())
        self.adopt(storage)
        if self.dynamic is not None:
            self.dynamic.allocated(storage, address)
        if chip:
            storage.on_chip = True
            memory = self.psum if buffer is MemoryRegion.psum else self.sbuf
            memory.place(storage, storage.pitch * info.nbytes, address)
        return NkiTensor(shape, dtype, storage, buffer)

    def allocate_once(self, *arguments):
        """Like :meth:`allocate`, for a tensor that the whole program shares: no loop body's own."""
        runtime, self.dynamic = self.dynamic, None
        try:
            return self.allocate(*arguments)
        finally:
            self.dynamic = runtime

    def _shared_storage(self, shape, info, name):
        """A new tensor in shared HBM."""
        storage = Storage(
            MemoryRegion.shared_hbm, shape, info, self.table, None, name, kernel_line()
        )
        self.adopt(storage)
        if self.dynamic is not None:
            self.dynamic.allocated(storage)
        return storage

    def adopt(self, storage):
        """Number a storage, so that a trace can name it."""
        self._storages += 1
        storage.number = self._storages

    def finish(self, op, engine, writes, reads, name=None, **details):
        """Count an instruction that has run and, if tracing, record it."""
        self.instructions = number = self.instructions + 1
        self.counts[op] = self.counts.get(op, 0) + 1
        if self.trace is not None:
            self._record(number, op, engine, writes, reads, name, details)
        if self.dynamic is None:
            return NkiInstruction(number, name)
        return NkiInstruction(number, name, self.dynamic.path)

    def _record(self, number, op, engine, writes, reads, name, details):
        reads = tuple(tensor for tensor in reads if isinstance(tensor, NkiTensor))
        path = ()
        if self.dynamic is not None:
            path = self.dynamic.path
            writes, reads = self.dynamic.addressed(writes, reads)
        elements = max((tensor.size // tensor.shape[0] for tensor in (*writes, *reads)), default=0)
        written = sum(tensor.size * tensor.info.nbytes for tensor in writes)
        self.trace.append(
            TraceRecord(
                number, op, engine,
                tuple(_operand(tensor) for tensor in writes),
                tuple(_operand(tensor) for tensor in reads),
                elements, written, kernel_line(), name or "", details, path,
            )
        )  # fmt: skip


def _operand(tensor):
    storage = tensor.storage
    return Operand(
        storage.number, tensor.buffer, tensor.dtype, tensor.offset, tensor.shape, tensor.strides,
        storage.partition, storage.address, getattr(tensor, "kind", ""),
    )  # fmt: skip


def _checked_shape(shape):
    try:
        sizes = tuple(size.__index__() for size in shape)
    except (TypeError, AttributeError):
        raise NkiValidationError(
            "shape", f"shape={shape!r}; expected a tuple of positive integers."
        ) from None
    if not sizes or any(size < 1 for size in sizes):
        raise NkiValidationError(
            "shape", f"shape={shape!r}; expected a tuple of positive integers."
        )
    return sizes


def active_session():
    """The session of the running kernel, or None."""
    return _current.get()


def current_session(what="this"):
    """The session of the running kernel; an error outside a kernel."""
    session = _current.get()
    if session is None:
        raise NkiValidationError(
            "no-kernel",
            f"{what} works only while a kernel runs; call the function through "
            f"@nki.jit or nki.simulate.",
        )
    return session


def enter(session):
    """Make ``session`` current; returns what :func:`leave` needs."""
    return _current.set(session)


def leave(token):
    """Undo :func:`enter`."""
    _current.reset(token)
