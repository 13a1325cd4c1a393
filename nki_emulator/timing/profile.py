"""`profile`: run a kernel under the emulator and model what it would cost on the chip."""

import contextlib
from collections import defaultdict
from dataclasses import dataclass

from ..hardware import HARDWARE
from ..kernel import jit, watching
from . import html, perfetto, placement, schedule, trust
from .costs import CostModel, transfer
from .steps import steps as steps_of

# Instructions that multiply, and the values that one element of an operand stands for.
PRODUCTS = {"nc_matmul": 1, "nc_matmul_mx": 4}
ENGINES = ("tensor", "vector", "scalar", "gpsimd")


@dataclass(repr=False)
class Profile:
    """Modelled cost of one launch on ``cores`` cores; times are nanoseconds, nothing is measured.

    ``total`` is the literal bound: buffers as the kernel wrote them, launch excluded.
    ``optimistic`` lets every buffer be renamed and takes documented rates. ``floor`` is what
    cannot be beaten under documented rates: the busiest engine at its peak, or the bytes that DMA
    moves from or to HBM at the theoretical rate (``floor_of`` says which).
    ``launch`` is the fixed cost of a launch, kept apart. ``busy`` is the time in which at least one
    instruction works on an engine ("dma" for the DMA engines), on two cores their mean, and
    ``idle`` the rest of ``total``. Both are times, not work: of row tiles side by side the tensor
    engine's ``busy`` does not say how many there are. Work is what ``lines`` adds up, where
    instructions side by side count each, and what ``matmul_utilisation`` goes by: the share of
    ``total`` in which the tensor engine's peak would have done the multiply-adds.
    """

    kernel: str
    target: str
    cores: int
    total: float
    optimistic: float
    floor: float
    floor_of: str
    launch: float
    busy: dict
    hbm_read: int
    hbm_written: int
    multiply_adds: int
    matmul_utilisation: float
    sbuf_peak: int
    psum_peak: int
    instructions: int
    lines: list
    events: list

    def to_perfetto(self, path):
        """Write a trace that ui.perfetto.dev opens to ``path`` (JSON)."""
        perfetto.write(self, path)

    def to_html(self, path, title="Modelled timeline"):
        """Write a self-contained page with the timeline and the tables to ``path``."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(html.page(title, self.claim, html.section(self)))

    def __repr__(self):
        return f"<Profile: {self}>"

    @property
    def claim(self):
        """How far the figures can be trusted, in a sentence."""
        return trust.statement(trust.regime(self.busy, self.total))

    def __str__(self):
        return (
            f"{self.kernel} on {self.cores} {self.target} core{'s' if self.cores > 1 else ''}: "
            f"{self.total / 1e3:.1f} us, {self.optimistic / 1e3:.1f} with buffers renamed, floor "
            f"{self.floor / 1e3:.1f} ({self.floor_of}), without launch ({self.claim})"
        )

    @property
    def idle(self):
        """Nanoseconds of ``total`` in which each engine does nothing."""
        return {engine: self.total - busy for engine, busy in self.busy.items()}


def profile(kernel):
    """A callable that runs ``kernel`` (``kernel[lnc]``) and returns its :class:`Profile`."""
    kernel = jit(kernel)

    def run(*arguments, **keywords):
        with profiling() as found:
            kernel(*arguments, **keywords)
        return found[0]

    return run


@contextlib.contextmanager
def profiling():
    """The profiles of all launches inside the `with` block, in order, as a list that fills up.

    For code that calls kernels somewhere inside, such as a model that runs on the package.
    """
    found = []
    with watching(lambda kernel, sessions: found.append(model(kernel.__name__, sessions))):
        yield found


def model(kernel, sessions):
    """The :class:`Profile` of a recorded launch; ``sessions`` are its programs, one a core."""
    hardware = HARDWARE[sessions[0].target.generation]
    rate = _rate(hardware, len(sessions))
    cores = [steps_of(session.trace, core) for core, session in enumerate(sessions)]
    inherited = [
        placement.takeovers(session.trace, steps, hardware)
        for session, steps in zip(sessions, cores)
    ]
    events = schedule.run(cores, inherited, hardware, rate)
    free = schedule.run(cores, [None] * len(cores), hardware, rate, optimistic=True)
    total = _last(events)
    floor, floor_of, read, written = _floor(cores, hardware, rate)
    work = sum(_multiply_adds(event.step) for event in events)
    return Profile(
        kernel=kernel,
        target=hardware.name,
        cores=len(cores),
        total=total,
        optimistic=min(total, _last(free)),
        floor=floor,
        floor_of=floor_of,
        launch=float(hardware.launch if len(cores) == 1 else hardware.launch_pair),
        busy=_busy(events, len(cores)),
        hbm_read=read,
        hbm_written=written,
        multiply_adds=work,
        matmul_utilisation=work / (hardware.matmul_peak * len(cores)) / total if total else 0.0,
        sbuf_peak=max(session.sbuf.peak for session in sessions),
        psum_peak=max(session.psum.peak for session in sessions),
        instructions=len(events),
        lines=_lines(events),
        events=events,
    )


def _rate(hardware, cores):
    """Bytes a nanosecond of one core's DMA engines; two cores share what a pair reaches."""
    return float(min(hardware.dma_rate, hardware.pair_rate / cores))


def _last(events):
    return max((event.done for event in events), default=0.0)


def _busy(events, cores):
    """Nanoseconds in which at least one step works on each engine, on two cores their mean."""
    spans = defaultdict(list)
    for event in events:
        name = "dma" if event.transfer else event.step.engine
        spans[event.step.core, name] += event.spans
    busy = dict.fromkeys((*ENGINES, "dma"), 0.0)
    for (_, name), some in spans.items():
        busy[name] = busy.get(name, 0.0) + _covered(some) / cores
    return busy


def _covered(spans):
    """Nanoseconds that lie in at least one of the (start, end) pairs."""
    covered, reached = 0.0, 0.0
    for start, end in sorted(spans):
        if end > reached:
            covered += end - max(start, reached)
            reached = end
    return covered


def _floor(cores, hardware, rate):
    """Nanoseconds that no schedule can beat, what sets them, and the HBM bytes read and written."""
    engines = defaultdict(float)
    read = written = moved = 0
    for steps in cores:
        costs = CostModel(hardware, optimistic=True)
        own = defaultdict(float)
        for step in steps:
            if step.engine == schedule.DMA:
                cost = transfer(step, hardware, rate)
                read += cost.hbm_read
                written += cost.hbm_written
                # Reading and writing go on at the same time.
                moved += max(cost.hbm_read, cost.hbm_written)
            else:
                # Row tiles run side by side, so a part of the rows counts for its part.
                share = step.details.get("rows", 128) / 128
                own[step.engine] += costs.compute(step).occupancy * share
        for engine, time in own.items():
            engines[engine] = max(engines[engine], time)
    peak = min(len(cores) * hardware.dma_peak_rate, 2 * hardware.hbm_share)
    engines["HBM"] = moved / float(peak)
    name = max(engines, key=engines.get)
    return engines[name], name, read, written


def _multiply_adds(step):
    if step.op not in PRODUCTS or step.details.get("transpose"):
        return 0
    stationary, moving = step.reads[:2]
    depth = moving.shape[0] * (2 if step.details.get("perf_mode") == "double_row" else 1)
    return PRODUCTS[step.op] * stationary.elements * (moving.elements // depth)


def _lines(events):
    """(line, op, count, engine nanoseconds, text) by source line and instruction, dearest first.

    The nanoseconds are work: those of row tiles that work side by side are added.
    """
    table = defaultdict(lambda: [0, 0.0])
    for event in events:
        entry = table[event.step.line, event.step.op]
        entry[0] += 1
        entry[1] += event.work
    rows = [
        (str(line), op, count, time, line.text if line else "")
        for (line, op), (count, time) in table.items()
    ]
    return sorted(rows, key=lambda row: (-row[3], row[:2]))
