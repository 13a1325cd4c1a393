"""The event model: engines run their queues in program order, and so do the DMA queues.

Every engine takes the steps of its own queue in order. A step starts when its engine is free, the
data it reads is complete and the memory it writes is no longer needed. A DMA is issued by one of
two queues, loads and stores (there are two descriptor generators a core), reaches the DMA engines
after the first-byte latency, and moves its bytes there. Row tiles of the tensor engine that use
different rows run side by side. A register that an instruction takes its address from costs the
sequencer's time but makes nobody wait: the trace does not say who reads it.
"""

import heapq
from collections import deque
from dataclasses import dataclass

from .costs import CostModel, transfer
from .dependencies import dependencies

DMA = "dma"
LOAD, STORE = "dma load", "dma store"
# Instructions in which the two cores of a launch wait for each other.
MEETINGS = ("core_barrier", "sendrecv")
# Rows of the tensor engine that can work apart from each other (isa stub, nc_matmul, row tiling).
ROW_GROUPS, GROUP_ROWS = 4, 32
# What happens at a time: a step starts, a DMA reaches the DMA engines, one leaves them.
START, ARRIVE, MOVE = range(3)


@dataclass(slots=True)
class Event:
    """When a step ran on its ``track`` (engine or DMA queue), in nanoseconds.

    ``start`` and ``end`` of its use of the engine, and ``done``, when its result can be used.
    For a DMA ``start`` to ``end`` is the time in the DMA engines and ``issued`` the time of issue.
    ``table`` is the (start, end) of the activation table that had to be loaded for it, or None.
    """

    step: object
    track: str
    start: float
    end: float
    done: float
    issued: float = 0.0
    transfer: object = None
    table: tuple = None

    @property
    def work(self):
        """Nanoseconds of the engine that this step alone takes.

        Row tiles of the tensor engine work side by side, so such times may add up to more than has
        passed; a DMA that shares the DMA engines with the other queue has more in `spans`.
        """
        if self.transfer:
            return self.transfer.time
        return sum(end - start for start, end in self.spans)

    @property
    def spans(self):
        """The (start, end) in which the engine works for this step, a table load apart."""
        own = (self.start, self.end)
        return (self.table, own) if self.table else (own,)


def queue_of(step):
    """The in-order queue that a step belongs to."""
    if step.engine != DMA:
        return step.engine
    return LOAD if any(operand.on_chip for operand in step.writes) else STORE


def run(cores, inherited, hardware, rate, optimistic=False):
    """The events of all steps, core by core in program order.

    ``cores`` has the steps of each core, ``inherited`` what each core's tiles take over (see
    `placement`), or None where buffers may be renamed. ``rate``: bytes a nanosecond of one core's
    DMA engines.
    """
    steps, queues, waits = [], [], []
    for core, (own, taken) in enumerate(zip(cores, inherited)):
        first = len(steps)
        names = [(core, queue_of(step)) for step in own]
        for data, memory in dependencies(own, names, taken):
            waits.append(tuple(tuple(first + one for one in some) for some in (data, memory)))
        steps += own
        queues += names
    return _Run(steps, queues, waits, _meetings(cores), hardware, rate, optimistic).events


def _meetings(cores):
    """{index: index of the same meeting on the other core}, in the order of the programs."""
    if len(cores) == 1:
        return {}
    first, second = (
        [index for index, step in enumerate(own) if step.op in MEETINGS] for own in cores
    )
    second = [len(cores[0]) + index for index in second]
    return dict(zip(first + second, second + first))


class _Core:
    """What the engines of one core remember between steps."""

    def __init__(self, hardware, optimistic):
        self.costs = CostModel(hardware, optimistic)
        self.table = LoadedFunctions(hardware)
        self.scalar = 0.0  # when the scalar engine is free
        self.pipe = _Pipe()
        self.rows = [0.0] * ROW_GROUPS  # when each group of the tensor engine's rows is free


class _Pipe:
    """The DMA engines of a core. Transfers of a queue follow each other; two queues with work take
    turns packet by packet (DMA overview: round robin), so each gets half of the rate."""

    def __init__(self):
        self.queues = {LOAD: deque(), STORE: deque()}  # [index, nanoseconds of work left]
        self.time = 0.0

    def add(self, queue, index, work, now):
        """A transfer arrives."""
        self._work_until(now)
        self.queues[queue].append([index, work])

    def next(self):
        """When the next transfer is finished, if no other arrives; None if there is none."""
        heads = self._heads()
        return self.time + min(left for _, left in heads) * len(heads) if heads else None

    def finished(self, now):
        """The transfers that are finished by now, which leave."""
        self._work_until(now)
        ended = [queue for queue in self.queues.values() if queue and queue[0][1] <= 1e-6]
        return [queue.popleft()[0] for queue in ended]

    def head(self, queue):
        """The transfer that a queue is at, or None."""
        return self.queues[queue][0][0] if self.queues[queue] else None

    def _heads(self):
        return [queue[0] for queue in self.queues.values() if queue]

    def _work_until(self, now):
        heads = self._heads()
        for head in heads:
            head[1] -= (now - self.time) / len(heads)
        self.time = now


class _Run:
    def __init__(self, steps, queues, waits, meetings, hardware, rate, optimistic):
        self.hardware = hardware
        self.rate = rate
        self.steps, self.queues = steps, queues
        self.meetings = meetings
        self.cores = {core: _Core(hardware, optimistic) for core, _ in queues}
        self.costs = [
            None if step.engine == DMA else self.cores[step.core].costs.compute(step)
            for step in steps
        ]
        self.ready = [0.0] * len(steps)
        self.events = [None] * len(steps)
        self.tracks = [
            name if len(self.cores) == 1 else f"core {core} {name}" for core, name in queues
        ]
        self.arrived = set()
        self.missing, self.dependents = self._edges(waits)
        self.heap = []
        self._loop()

    def _edges(self, waits):
        """How many steps each one waits for, and who waits for it: (index, kind)."""
        missing = [len(data) + len(memory) for data, memory in waits]
        dependents = [[] for _ in waits]
        for index, (data, memory) in enumerate(waits):
            for before in data:
                dependents[before].append((index, True))
            for before in memory:
                dependents[before].append((index, False))
        self.next_in_queue = {}
        last = {}
        for index, queue in enumerate(self.queues):
            if queue in last:
                self.next_in_queue[last[queue]] = index
                missing[index] += 1
            last[queue] = index
        return missing, dependents

    def _loop(self):
        for index, count in enumerate(self.missing):
            if count == 0:
                self._push(index)
        while self.heap:
            time, action, item = heapq.heappop(self.heap)
            (self._execute, self._arrive, self._move)[action](item, time)

    def _push(self, index):
        start = self.ready[index]
        step = self.steps[index]
        if step.engine == "tensor":
            rows = self.cores[step.core].rows
            start = max([start] + [rows[group] for group in _groups(step)])
        if step.engine == "scalar":
            # The table is loaded as soon as the engine is free, while the step waits for its data.
            core = self.cores[step.core]
            start = max(start, core.scalar + core.table.time(step))
        heapq.heappush(self.heap, (start, START, index))
        self.ready[index] = start

    def _execute(self, index, time):
        partner = self.meetings.get(index)
        if partner is None:
            self._start(index, time)
            return
        # Both cores are there when the second one comes.
        self.arrived.add(index)
        if partner in self.arrived:
            for one in (partner, index):
                self._start(one, time)

    def _start(self, index, start):
        step = self.steps[index]
        core = self.cores[step.core]
        if step.engine == DMA:
            self._issue(step, index, start)
            return
        cost = self.costs[index]
        end = free = start + cost.occupancy
        event = Event(step, self.tracks[index], start, end, end + cost.latency)
        if step.engine == "scalar":
            loading = core.table.load(step)
            if loading:
                event.table = (core.scalar, core.scalar + loading)
            core.scalar = end
        if step.engine == "tensor":
            groups = _groups(step)
            for group in groups:
                core.rows[group] = end
            free = end if len(groups) == ROW_GROUPS else start
        self._follow(index, free)
        self._finish(index, event)

    def _follow(self, index, free):
        """The engine or queue of a step takes its next one."""
        follower = self.next_in_queue.get(index)
        if follower is not None:
            self._release(follower, free)

    def _finish(self, index, event):
        self.events[index] = event
        for dependent, needs_data in self.dependents[index]:
            # Memory may be overwritten once it has been read; a write must be complete first.
            self._release(dependent, event.done if needs_data else event.end)

    def _issue(self, step, index, start):
        cost = transfer(step, self.hardware, self.rate)
        issued = start + cost.issue
        self.events[index] = Event(step, self.tracks[index], 0.0, 0.0, 0.0, issued, cost)
        heapq.heappush(self.heap, (issued + self.hardware.dma_first_byte, ARRIVE, index))
        self._follow(index, issued)

    def _arrive(self, index, time):
        core, queue = self.queues[index]
        pipe = self.cores[core].pipe
        pipe.add(queue, index, self.events[index].transfer.time, time)
        if pipe.head(queue) == index:
            self.events[index].start = time
        heapq.heappush(self.heap, (pipe.next(), MOVE, core))

    def _move(self, core, time):
        """Something may be finished in a core's DMA engines."""
        pipe = self.cores[core].pipe
        ended = pipe.finished(time)
        for index in ended:
            event = self.events[index]
            event.end = time
            event.done = time + self.hardware.dma_notify
            following = pipe.head(self.queues[index][1])
            if following is not None:
                self.events[following].start = time
            self._finish(index, event)
        if ended and pipe.next() is not None:
            heapq.heappush(self.heap, (pipe.next(), MOVE, core))

    def _release(self, index, time):
        if time > self.ready[index]:
            self.ready[index] = time
        self.missing[index] -= 1
        if self.missing[index] == 0:
            self._push(index)


def _groups(step):
    rows = step.details.get("rows", ROW_GROUPS * GROUP_ROWS)
    if rows >= ROW_GROUPS * GROUP_ROWS:
        return range(ROW_GROUPS)
    first = step.details["row"] // GROUP_ROWS
    return range(first, first + rows // GROUP_ROWS)


class LoadedFunctions:
    """The scalar engine's activation table: a switch to another set of functions costs a load.

    Which functions share a set is not published. Functions that need no table (copy, square, ...)
    never switch; the groups below are inferred from functions that are evaluated together.
    """

    FREE = frozenset({"copy", "square", "relu", "abs", "sign", "prelu", None})
    SETS = (
        frozenset({"exp", "log", "tanh", "sigmoid", "silu", "softplus", "mish"}),
        frozenset({"gelu", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "erf"}),
        frozenset({"gelu_dx", "gelu_apprx_sigmoid_dx", "silu_dx", "erf_dx"}),
        frozenset({"sqrt", "rsqrt", "reciprocal"}),
        frozenset({"sin", "arctan"}),
    )

    def __init__(self, hardware):
        self.hardware = hardware
        self.loaded = frozenset()

    def time(self, step):
        """Nanoseconds that loading the table of a step takes."""
        function = step.details.get("function")
        if function in self.FREE or function in self.loaded:
            return 0.0
        return float(self.hardware.table_load)

    def load(self, step):
        """Load the table of a step; returns the time that it takes."""
        time = self.time(step)
        if time:
            function = step.details["function"]
            self.loaded = next((one for one in self.SETS if function in one), {function})
        return time
