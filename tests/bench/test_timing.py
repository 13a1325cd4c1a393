"""Timing, with a clock that the timed callables move themselves."""

import pytest

from bench.timing import WARMUP_WINDOW, measure


class Work:
    """Callables that take what `seconds` says for each of their runs; the last value repeats."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def clock(self):
        return self.now

    def task(self, name, *seconds):
        remaining = list(seconds)

        def call():
            self.log.append(name)
            self.now += remaining.pop(0) if len(remaining) > 1 else remaining[0]

        return call


def test_runs_take_turns_and_are_as_many():
    work = Work()
    tasks = {"a": work.task("a", 1.0), "b": work.task("b", 2.0)}
    timings = measure(tasks, repeats=5, clock=work.clock, warmup_seconds=100)
    assert work.log == ["a", "b"] * (2 * WARMUP_WINDOW + 5)
    assert timings["a"].us == pytest.approx(1e6)
    assert timings["b"].us == pytest.approx(2e6)
    assert timings["b"].us_spread == pytest.approx(0.0)
    assert timings["a"].repeats == 5
    assert timings["a"].converged


def test_slow_first_runs_are_warmed_away():
    work = Work()
    slow = [10.0] * WARMUP_WINDOW + [5.0] * WARMUP_WINDOW
    timing = measure(
        {"a": work.task("a", *slow, 1.0)}, repeats=3, clock=work.clock, warmup_seconds=1000
    )["a"]
    assert timing.us == pytest.approx(1e6)
    assert timing.converged


def test_a_warm_up_that_does_not_settle_is_reported():
    work = Work()
    growing = [float(n) for n in range(1, 100)]
    timing = measure(
        {"a": work.task("a", *growing)}, repeats=2, clock=work.clock, warmup_seconds=50
    )["a"]
    assert not timing.converged


def test_median_and_spread_of_the_timed_runs():
    work = Work()
    warm = [3.0] * (2 * WARMUP_WINDOW)
    timing = measure(
        {"a": work.task("a", *warm, 1.0, 2.0, 3.0, 4.0, 50.0)},
        repeats=5,
        clock=work.clock,
        warmup_seconds=1000,
    )["a"]
    assert timing.us == pytest.approx(3e6)
    assert timing.us_spread == pytest.approx(2e6)


def test_waiting_for_the_device_is_timed():
    work = Work()

    def synchronize():
        work.now += 0.5

    timings = measure(
        {"a": work.task("a", 1.0)},
        repeats=2,
        synchronize=synchronize,
        clock=work.clock,
        warmup_seconds=100,
    )
    assert timings["a"].us == pytest.approx(1.5e6)


def test_one_run_has_no_spread():
    with pytest.raises(ValueError, match="repeats=1"):
        measure({}, repeats=1)
