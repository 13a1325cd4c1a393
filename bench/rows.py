"""Runs cases and returns one flat dict per row; every table and file is written from these.

================  ==================================================================================
key               meaning
================  ==================================================================================
table             "measured": wall-clock of this CPU. "emulated": the NKI kernels, without any time
model, res,       what ran; res in pixels
batch, dtype,
tokens, level,
op
target, lnc       the chip that was emulated and its cores per launch; None in "measured"
impl              "eager": plain PyTorch. "kernel": the package, by whichever path it took
us, us_spread     median and interquartile range of the runs, in microseconds; None without a time
repeats           the number of runs
converged         whether the warm-up had settled before them
speedup           eager's time over this row's: None unless NKI kernels ran and were timed
launches          NKI kernel launches of one run; None for eager
cos, max_abs_err  against the eager expression in float64
path              what ran: "nki" or "torch"
note              why a row of "emulated" ran as "torch", or ""
================  ==================================================================================
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

import torch

from bench.cases import DTYPES, build_cases
from bench.models import VitShape
from bench.parity import compare
from bench.paths import EMULATED_LNC, cpu_path, emulated_nki
from bench.timing import measure

KEYS = (
    "table", "model", "res", "batch", "dtype", "tokens", "target", "lnc", "level", "op", "impl",
    "us", "us_spread", "repeats", "converged", "speedup", "launches", "cos", "max_abs_err",
    "path", "note",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One line of the command: a model at a resolution (pixels), batch, dtype name and level."""

    shape: VitShape
    resolution: int
    batch: int
    dtype: str
    level: str

    def __str__(self) -> str:
        return f"{self.shape.name} {self.level} {self.resolution}px batch {self.batch} {self.dtype}"


def run(
    settings: Iterable[Setting],
    package: ModuleType,
    repeats: int,
    target: str = "trn2",
    progress: Callable[[str], None] = lambda text: None,
    warmup_seconds: float = 5.0,
) -> list[dict]:
    """The rows of all settings, in order. `package` is neuron_vit, `target` the chip that is
    emulated; `progress` is told what runs."""
    rows = []
    for setting in settings:
        progress(f"{setting}: preparing")
        with torch.no_grad():
            cases = build_cases(
                setting.shape, setting.level, setting.resolution, setting.batch,
                DTYPES[setting.dtype], package,
            )  # fmt: skip
            for case in cases:
                exact = case.exact()
                progress(f"{setting}: timing {case.op}")
                rows += _measured(setting, case, exact, package, repeats, warmup_seconds)
                progress(f"{setting}: emulating {case.op}")
                rows.append(_emulated(setting, case, exact, package, target))
    return rows


def speedup(eager_us: float, us: float | None, path: str) -> float | None:
    """How many times faster than eager; None where no NKI kernel ran or nothing was timed."""
    return eager_us / us if path == "nki" and us is not None else None


def _measured(setting, case, exact, package, repeats, warmup_seconds) -> list[dict]:
    with cpu_path():
        package.reset_launches()
        result = case.package()
        path, launches = package.last_path(), sum(package.launches().values())
        timings = measure(
            {"eager": case.eager, "kernel": case.package},
            repeats=repeats,
            warmup_seconds=warmup_seconds,
        )
    eager_us = timings["eager"].us
    common = dict(table="measured", target=None, lnc=None)
    outcomes = {
        "eager": dict(path="torch", launches=None, parity=compare(case.eager(), exact)),
        "kernel": dict(path=path, launches=launches, parity=compare(result, exact)),
    }
    return [
        _row(
            setting, case, impl=impl, us=timings[impl].us, us_spread=timings[impl].us_spread,
            repeats=repeats, converged=timings[impl].converged,
            speedup=speedup(eager_us, timings[impl].us, outcome["path"]),
            **common, **outcome,
        )
        for impl, outcome in outcomes.items()
    ]  # fmt: skip


def _emulated(setting, case, exact, package, target) -> dict:
    package.reset_launches()
    note = ""
    try:
        with emulated_nki(target):
            result = case.package()
    except package.NeuronVitUnsupported as refusal:
        note = str(refusal)
        with emulated_nki(target, strict=False), warnings.catch_warnings():
            # The note says the same, and says it for every row.
            warnings.simplefilter("ignore", package.NeuronVitFallbackWarning)
            result = case.package()
    return _row(
        setting, case, table="emulated", impl="kernel", target=target, lnc=EMULATED_LNC,
        path=package.last_path(), launches=sum(package.launches().values()),
        parity=compare(result, exact), note=note,
    )  # fmt: skip


def _row(
    setting, case, *, table, impl, target, lnc, path, launches, parity,
    us=None, us_spread=None, repeats=None, converged=None, speedup=None, note="",
) -> dict:  # fmt: skip
    row = dict(
        table=table, model=setting.shape.name, res=setting.resolution, batch=setting.batch,
        dtype=setting.dtype, tokens=setting.shape.tokens(setting.resolution), target=target,
        lnc=lnc, level=setting.level, op=case.op, impl=impl, us=us, us_spread=us_spread,
        repeats=repeats, converged=converged, speedup=speedup, launches=launches, cos=parity.cos,
        max_abs_err=parity.max_abs_err, path=path, note=note,
    )  # fmt: skip
    assert tuple(row) == KEYS
    return row
