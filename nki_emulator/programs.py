"""An LNC 2 launch: two programs, the HBM they share, and how they wait for each other.

The chip runs the two programs at the same time on two cores. Here they take turns: program 0 runs
until it meets an instruction that needs the other core (`core_barrier`, `sendrecv`) or ends, then
program 1 does, and so on. Only one of them ever runs, so a launch does the same every time; what
would depend on timing on the chip is found by `races.py`, not by chance.

Program 0 runs in the caller's thread. Program 1 runs there too, afterwards, unless program 0 has
to wait for it: then it gets a thread of its own, with a copy of the caller's context variables,
that ends before the launch does, whatever happens. A program whose partner can no longer come
raises an error instead of waiting for ever.
"""

import contextvars
import ctypes
import threading
from dataclasses import dataclass

from . import races
from .errors import NkiValidationError, SourceLine, kernel_frames
from .regions import MemoryRegion
from .session import Session
from .storage import Storage

# How long a program that is to end is given before it is told again.
RETRY_SECONDS = 0.5
# Program 0 waits for program 1 no longer than this at a time: a signal that arrives just before a
# wait without an end is not seen until that wait ends.
SIGNAL_SECONDS = 0.2


class Abandoned(BaseException):
    """Ends a program whose launch has failed elsewhere; not an error that a kernel could handle."""


@dataclass
class Meeting:
    """A program waiting in an instruction that needs the other core.

    ``wants`` says what has to be the same on both cores, as ``{what: value}``; ``data`` is what the
    program brings along, ``chain`` its kernel lines, innermost first.
    """

    program: int
    instruction: str
    wants: dict
    data: object
    chain: list[SourceLine]

    def __str__(self):
        values = ", ".join(f"{what}: {value}" for what, value in self.wants.items())
        return f"program {self.program} is in nisa.{self.instruction} ({values})"

    def lines(self):
        """Its kernel lines, innermost first, one a line."""
        return "\n".join(
            f"      {'called from' if number else 'at'} {line} in {line.function}: {line.text}"
            for number, line in enumerate(self.chain)
        )


class Program(Session):
    """One of the two programs of an LNC 2 launch."""

    def __init__(self, launch, program, trace):
        super().__init__(program, 2, has_grid=True, trace=trace)
        self.launch = launch
        self.shared = 0  # shared HBM tensors allocated so far
        self.meetings = 0
        self.last_meeting = None
        self.ended = False
        self.result = None
        self.error = None

    def adopt(self, storage):
        """Number a storage, uniquely in the launch."""
        self.launch.storages += 1
        storage.number = self.launch.storages

    def _shared_storage(self, shape, info, name):
        """The launch's next shared HBM tensor: the programs allocate the same ones, in order."""
        shared, number = self.launch.shared, self.shared
        self.shared += 1
        if number == len(shared):
            storage = super()._shared_storage(shape, info, name)
            races.share(self.launch, storage)
            shared.append(storage)
            return storage
        storage = shared[number]
        if (storage.shape, storage.info, storage.name) != (shape, info, name):
            mine = Storage(storage.buffer, shape, info, self.table, storage.memory, name)
            raise NkiValidationError(
                "shared-hbm",
                f"program {self.program} allocates {mine.describe()} as shared HBM tensor "
                f"{number}; the other program allocated {storage.describe()}. Both programs must "
                f"allocate the same shared tensors in the same order.",
            )
        return storage


class Launch:
    """The two programs of an LNC 2 launch; ``running`` is the one whose turn it is."""

    argument_buffer = MemoryRegion.shared_hbm

    def __init__(self, trace):
        self.storages = 0
        self.shared = []
        self._arguments = []
        self.running = 0
        self.sessions = [Program(self, program, trace) for program in (0, 1)]
        self._turn = threading.Condition()
        self._thread = None
        self._abandoned = False
        self._waiting = None  # the meeting that program 0 waits in
        self._partner = None  # the meeting of program 1 that answered it

    def share_arguments(self, storages):
        """Watch the caller's arrays for races."""
        self._arguments = storages
        races.share_arguments(self, storages)

    def run(self, body):
        """Run ``body(session)`` for both programs; returns their results."""
        first, second = self.sessions
        context = contextvars.copy_context()
        self._run_program_1 = lambda: context.run(body, second)
        try:
            self._run_both(body)
            if second.error is not None:
                raise second.error
            self._require_same_shared()
            return [first.result, second.result]
        finally:
            # The session outlives the launch; the tensors should not.
            for storage in (*self.shared, *self._arguments):
                storage.sharing = None
            self.shared, self._arguments, self._run_program_1 = [], [], None
            first.result = second.result = second.error = None

    def _run_both(self, body):
        first, second = self.sessions
        try:
            first.result = body(first)
            first.ended = True
            if self._thread is None:
                self.running = 1
                second.result = self._run_program_1()
            else:
                with self._turn:
                    self._give(1)
                while self._thread.is_alive():
                    self._thread.join(SIGNAL_SECONDS)
        except Abandoned:  # program 1 has failed
            self._thread.join()
        except BaseException:
            self._stop()
            raise

    def meet(self, session, instruction, wants, data):
        """Wait for the other program in the same instruction; returns what it brought along."""
        if self._abandoned or self.sessions[1].error is not None:
            raise Abandoned
        mine = Meeting(session.program, instruction, wants, data, kernel_frames())
        session.meetings += 1
        session.last_meeting = mine
        if session.program == 0:
            return self._wait_for_second(mine)
        theirs = self._waiting
        if theirs is None:
            raise _deadlock(mine, self.sessions[0])
        _require_match(theirs, mine)
        self._waiting = None
        self._partner = mine
        if instruction == "core_barrier":
            data.storage.sharing.order(data)
        with self._turn:
            self._give(0)
            self._turn.wait_for(lambda: self.running == 1)
        if self._abandoned:
            raise Abandoned
        return theirs.data

    def _wait_for_second(self, mine):
        self._waiting = mine
        second = self.sessions[1]
        if second.ended:
            raise _deadlock(mine, second)
        try:
            with self._turn:
                self._give(1)
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run_second, name="nki-program-1", daemon=True
                    )
                    self._thread.start()
                while not self._turn.wait_for(lambda: self.running == 0, SIGNAL_SECONDS):
                    pass
        except BaseException:  # KeyboardInterrupt, in the main thread
            self._stop()
            raise
        if second.error is not None:
            raise Abandoned
        if second.ended and self._waiting is not None:
            raise _deadlock(mine, second)
        return self._partner.data

    def _run_second(self):
        second = self.sessions[1]
        try:
            try:
                second.result = self._run_program_1()
            except BaseException as error:
                if not isinstance(error, Abandoned):
                    second.error = error
            with self._turn:
                second.ended = True
                self._give(0)
        except Abandoned:  # _stop caught it on its way out
            pass

    def _give(self, program):
        self.running = program
        self._turn.notify_all()

    def _stop(self):
        """End program 1 wherever it is, and wait for its thread."""
        with self._turn:
            self._abandoned = True
            running = self.running == 1 and not self.sessions[1].ended
            if not running:
                self._give(1)
        if self._thread is None:
            return
        # If it runs instead of waiting for its turn, raise in its thread at the next line; again
        # and again, since an exception that falls into a finalizer or a callback is lost there.
        while self._thread.is_alive():
            if running:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident), ctypes.py_object(Abandoned)
                )
            self._thread.join(RETRY_SECONDS)

    def _require_same_shared(self):
        first, second = self.sessions
        if first.shared != second.shared:
            more, fewer = (first, second) if first.shared > second.shared else (second, first)
            extra = self.shared[fewer.shared]
            raise NkiValidationError(
                "shared-hbm",
                f"program {more.program} allocates {more.shared} tensors in shared HBM and program "
                f"{fewer.program} allocates {fewer.shared}; the first that only program "
                f"{more.program} has is {extra.describe()}. Both programs must allocate the same "
                f"shared tensors in the same order.",
            )


def _deadlock(mine, other):
    """The error of a program that waits for one that has ended."""
    last = other.last_meeting
    if last is None:
        history = "It never called an instruction that needs the other core."
    else:
        history = (
            f"The last instruction of it that needed the other core was number {other.meetings}, "
            f"nisa.{last.instruction}\n{last.lines()}"
        )
    return NkiValidationError(
        "lnc-deadlock",
        f"{mine} and waits for program {other.program}, which has ended. {history}\n    Both "
        f"programs must call nisa.core_barrier and nisa.sendrecv the same number of times, in the "
        f"same order.",
    )


def _require_match(theirs, mine):
    """Both programs wait; they must wait for the same thing."""
    both = f"{mine}, and {theirs}\n{theirs.lines()}\n    Both programs must"
    if theirs.instruction != mine.instruction:
        raise NkiValidationError(
            "lnc-deadlock",
            f"the programs wait for different things: {both} call nisa.core_barrier and "
            f"nisa.sendrecv in the same order.",
        )
    different = [what for what, value in mine.wants.items() if theirs.wants[what] != value]
    if not different:
        return
    disagree = f"the two cores disagree on {' and '.join(different)}: {both}"
    if mine.instruction == "core_barrier":
        raise NkiValidationError(
            "barrier-pair", f"{disagree} wait on the same tensor or the same view of it."
        )
    raise NkiValidationError(
        "sendrecv-pair",
        f"{disagree} exchange tiles of the same shape and dtype, through the same pipe and the "
        f"same kind of DMA, in the same order.",
    )
