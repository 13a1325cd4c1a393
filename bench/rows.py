"""Runs cases and returns one flat dict per row; every table and file is written from these.

================  ==================================================================================
key               meaning
================  ==================================================================================
table             "measured": wall-clock of the device in `device`. "modelled": what the timing
                  model says the chip would take; nothing in it was measured
model, res,       what ran; res in pixels
batch, dtype,
tokens, level,
op
device            the PyTorch device of a measured row; None in "modelled"
target, lnc       the chip that is modelled and its cores per launch; None in "measured"
impl              "eager": plain PyTorch, in "modelled" as one launch per operation. "compile":
                  torch.compile of it. "kernel": the package, by whichever path it took
us                measured: median of the runs. modelled: the literal bound, launches excluded.
                  Microseconds; None without a time
us_spread,        measured: interquartile range, number of runs, and whether the warm-up had settled
repeats,          before them
converged
us_optimistic,    modelled: the bound with renamed buffers, and the documented floor
floor_us
t_min_us          modelled blocks and encoders: what their matrix products and weights alone would
                  take, see floor.py
launches          kernel launches of one run; None for PyTorch
launch_us         modelled: their fixed cost, which `us` leaves out
busy              modelled: share of `us` that each engine works, {"tensor": 0.6, ...}
speedup           eager's time over this row's, both from the same table, launch cost included: None
                  unless NKI kernels ran and have a time
cos, max_abs_err  against the eager expression in float64
path              what ran: "nki" or "torch"
regime, trust     modelled: the kind of published measurements that say how far the figures can be
                  trusted, and that in a sentence with the error; None without a time
note              why a row has no time or no kernel ran, or ""
================  ==================================================================================
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch

from bench import modelled
from bench.cases import DTYPES, build_cases
from bench.device import CPU, Device
from bench.eager import EagerLaunches
from bench.floor import t_min
from bench.models import VitShape
from bench.parity import compare
from bench.paths import cpu_path, emulated_nki
from bench.timing import measure
from nki_emulator.timing import trust

# Tokens from which on the published attention kernels are a regime of their own.
LONG_ATTENTION = 1024
IMPLS = ("eager", "compile", "kernel")
KEYS = (
    "table", "model", "res", "batch", "dtype", "tokens", "level", "op", "device", "target", "lnc",
    "impl", "us", "us_spread", "repeats", "converged", "us_optimistic", "floor_us", "t_min_us",
    "launches", "launch_us", "busy", "speedup", "cos", "max_abs_err", "path", "regime", "trust",
    "note",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One line of the command: a model at a resolution (pixels), batch, dtype name and level."""

    shape: VitShape
    resolution: int
    batch: int
    dtype: str
    level: str

    @property
    def layers(self) -> int:
        """Blocks that run, where whole blocks do."""
        return self.shape.depth if self.level == "encoder" else 1

    @property
    def bytes(self) -> int:
        """About what the reference in float64 takes: weights, activations, attention scores."""
        shape, tokens = self.shape, self.shape.tokens(self.resolution)
        weights = shape.matrix_elements * self.layers
        activations = tokens * (4 * shape.hidden + (1 + shape.gated) * shape.mlp)
        scores = shape.heads * tokens * tokens
        return 8 * (weights + self.batch * (activations + scores))

    def __str__(self) -> str:
        return f"{self.shape.name} {self.level} {self.resolution}px batch {self.batch} {self.dtype}"


@dataclass(frozen=True)
class Plan:
    """How settings are run: `repeats` timed runs after at most `warmup_seconds`, on `device`; the
    chip that is modelled and its cores; the implementations that are timed."""

    repeats: int = 20
    warmup_seconds: float = 5.0
    device: Device = CPU
    target: str = "trn2"
    lnc: int = 1
    impls: Sequence[str] = IMPLS


def run(
    settings: Iterable[Setting],
    package: ModuleType,
    plan: Plan,
    progress: Callable[[str, float], None] = lambda text, done: None,
    keep: Callable[[dict, Sequence], None] = lambda row, profiles: None,
) -> list[dict]:
    """The rows of all settings, in order. `package` is neuron_vit; `progress` is told what runs and
    what part of the whole is done, `keep` gets each modelled row with its profiles."""
    rows = []
    settings = list(settings)
    for number, setting in enumerate(settings):
        progress(f"{setting}: preparing", number / len(settings))
        dtype = DTYPES[setting.dtype]
        arguments = (setting.shape, setting.level, setting.resolution, setting.batch, dtype)
        with torch.no_grad():
            here = build_cases(*arguments, package, plan.device.name)
            there = here if plan.device is CPU else build_cases(*arguments, package)
            for place, (timed, emulated) in enumerate(zip(here, there, strict=True)):
                done = (number + place / len(here)) / len(settings)
                progress(f"{setting}: the exact result of {timed.op}", done)
                exact = emulated.exact()
                progress(f"{setting}: timing {timed.op}", done)
                rows += _measured(setting, timed, exact, package, plan)
                for impl in ("eager", "kernel"):
                    if impl in plan.impls:
                        progress(f"{setting}: modelling {impl} {emulated.op}", done)
                        row, profiles = _modelled(setting, emulated, exact, package, plan, impl)
                        rows.append(row)
                        keep(row, profiles)
    _add_speedups(rows)
    return rows


def speedup(eager: float | None, own: float | None, path: str) -> float | None:
    """How many times faster than eager; None where no NKI kernel ran or nothing was timed."""
    return eager / own if path == "nki" and own and eager else None


def _measured(setting, case, exact, package, plan) -> list[dict]:
    calls, notes = {}, {}
    if "eager" in plan.impls:
        calls["eager"] = case.eager
    if "compile" in plan.impls:
        # Past a number of functions from one place, compiled code silently falls back to eager.
        torch.compiler.reset()
        compiled = torch.compile(case.eager)
        try:
            compiled()
            calls["compile"] = compiled
        except Exception as error:  # whatever the compiler of this machine says
            notes["compile"] = f"torch.compile failed: {type(error).__name__}: {error}"[:300]
    if "kernel" in plan.impls:
        calls["kernel"] = case.package
    rows = []
    with cpu_path() if plan.device is CPU else contextlib.nullcontext():
        package.reset_launches()
        results = {name: call() for name, call in calls.items()}
        paths = dict.fromkeys(calls, "torch")
        launches = dict.fromkeys(calls)
        if "kernel" in calls:
            paths["kernel"] = package.last_path()
            launches["kernel"] = sum(package.launches().values())
        timings = measure(calls, plan.repeats, plan.device.synchronize, plan.warmup_seconds)
    for impl in calls:
        timing = timings[impl]
        rows.append(
            _row(
                setting, case, table="measured", impl=impl, device=plan.device.name,
                us=timing.us, us_spread=timing.us_spread, repeats=plan.repeats,
                converged=timing.converged, launches=launches[impl], path=paths[impl],
                parity=compare(results[impl], exact),
            )
        )  # fmt: skip
    for impl, note in notes.items():
        rows.append(
            _row(
                setting, case, table="measured", impl=impl, device=plan.device.name, path="torch",
                note=note,
            )
        )  # fmt: skip
    return rows


def _modelled(setting, case, exact, package, plan, impl):
    note = ""
    chip = dict(table="modelled", impl=impl, target=plan.target, lnc=plan.lnc)
    if impl == "eager" and case.launches is None:
        note = f"no eager launches for {case.beyond}"
        return _row(setting, case, path="torch", note=note, **chip), ()
    if impl == "eager":
        launcher = EagerLaunches(package, plan.lnc)
        call, path = lambda: case.launches(launcher), "torch"
    else:
        call, path = case.package, "nki"
    package.reset_launches()
    try:
        with emulated_nki(plan.target, plan.lnc):
            result, cost = modelled.model(call)
        if not cost.launches:
            note, cost = "no launch was traced: the installed nki is not the emulator", None
    except package.NeuronVitUnsupported as refusal:
        note, path = f"PyTorch operations ran. {refusal}", "torch"
        with emulated_nki(plan.target, plan.lnc, strict=False), warnings.catch_warnings():
            # The note says the same, and says it for every row.
            warnings.simplefilter("ignore", package.NeuronVitFallbackWarning)
            result = call()
        cost = None
    times = {}
    if cost is not None:
        times = dict(
            us=cost.us, us_optimistic=cost.us_optimistic, floor_us=cost.floor_us,
            launches=cost.launches, launch_us=cost.launch_us, busy=cost.busy, regime=cost.regime,
        )  # fmt: skip
        if setting.level != "op":
            times["t_min_us"] = t_min(
                setting.shape, setting.layers, setting.shape.tokens(setting.resolution),
                setting.batch, setting.dtype, plan.target, plan.lnc,
            )  # fmt: skip
        if case.op == "attention" and setting.shape.tokens(setting.resolution) >= LONG_ATTENTION:
            times["regime"] = "attention"
        times["trust"] = trust.statement(times["regime"])
    row = _row(setting, case, path=path, parity=compare(result, exact), note=note, **chip, **times)
    return row, cost.profiles if cost else ()


def _add_speedups(rows: list[dict]) -> None:
    case = ("table", "model", "res", "batch", "dtype", "level", "op")
    eager = {}
    for row in rows:
        if row["impl"] == "eager":
            eager[tuple(row[key] for key in case)] = _whole(row)
    for row in rows:
        row["speedup"] = speedup(
            eager.get(tuple(row[key] for key in case)), _whole(row), row["path"]
        )


def _whole(row: dict) -> float | None:
    return None if row["us"] is None else row["us"] + (row["launch_us"] or 0.0)


def _row(setting, case, *, parity=None, note="", **values) -> dict:
    row = dict.fromkeys(KEYS)
    row.update(
        model=setting.shape.name, res=setting.resolution, batch=setting.batch, dtype=setting.dtype,
        tokens=setting.shape.tokens(setting.resolution), level=setting.level, op=case.op,
        note=note, **values,
    )  # fmt: skip
    if parity is not None:
        row.update(cos=parity.cos, max_abs_err=parity.max_abs_err)
    assert tuple(row) == KEYS
    return row
