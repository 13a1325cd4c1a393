"""Wall-clock timing of several callables against each other, so that the machine's drift hits all.

The callables take turns, one run each per round; every one gets the same number of runs. Timing
starts when the warm-up has converged: the medians of two successive windows differ by less than
2 % for every callable, because a first run pays for allocations, thread pools and caches, and a
baseline that is still warming up makes the other side look fast.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

WARMUP_WINDOW = 3
WARMUP_TOLERANCE = 0.02


@dataclass(frozen=True)
class Timing:
    """Of `repeats` runs: median and interquartile range in microseconds. `converged` is False when
    the warm-up ran out of its time before two windows agreed; the figures then carry more noise."""

    us: float
    us_spread: float
    repeats: int
    converged: bool


def nothing_to_wait_for() -> None:
    """The synchronisation of a CPU, where a call returns when its work is done."""


def measure(
    callables: Mapping[str, Callable[[], object]],
    repeats: int,
    synchronize: Callable[[], None] = nothing_to_wait_for,
    warmup_seconds: float = 5.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Times each callable `repeats` times, interleaved, after a common warm-up of at most
    `warmup_seconds`. `synchronize` waits for a device and runs inside the timed span.
    """
    if repeats < 2:
        raise ValueError(f"repeats={repeats} gives no spread; use at least 2")

    def one_round() -> dict[str, float]:
        seconds = {}
        for name, call in callables.items():
            start = clock()
            call()
            synchronize()
            seconds[name] = clock() - start
        return seconds

    converged = _warm_up(one_round, warmup_seconds, clock)
    rounds = [one_round() for _ in range(repeats)]
    timings = {}
    for name in callables:
        microseconds = [seconds[name] * 1e6 for seconds in rounds]
        first, median, third = statistics.quantiles(microseconds, n=4, method="inclusive")
        timings[name] = Timing(median, third - first, repeats, converged)
    return timings


def _warm_up(one_round, limit_seconds, clock) -> bool:
    """Runs windows of rounds until every callable's median settles; False when time ran out."""
    deadline = clock() + limit_seconds
    previous = None
    while True:
        window = [one_round() for _ in range(WARMUP_WINDOW)]
        medians = {name: statistics.median(r[name] for r in window) for name in window[0]}
        if previous is not None and all(
            abs(medians[name] - previous[name]) <= WARMUP_TOLERANCE * previous[name]
            for name in medians
        ):
            return True
        if clock() >= deadline:
            return False
        previous = medians
