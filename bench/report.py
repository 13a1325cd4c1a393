"""Prints rows as tables and writes them as JSON. Nothing here computes; it only formats rows."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.device import CPU, Device

MODELLED_TITLE = "modelled time on the chip; nothing in this table was measured"

# What a row's impl is called in print. A row says by its path whether kernels ran.
_NAMES = {"eager": "eager", "compile": "torch.compile", "kernel": "package"}
_MODELLED_NAMES = {"eager": "eager launches", "kernel": "kernels"}
_ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma")


def environment() -> dict:
    """What the figures depend on besides the code."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
    }


def text(rows: Sequence[dict], device: Device = CPU) -> str:
    """Both tables, each under its title; a table without rows is left out."""
    parts = []
    measured, modelled = split(rows)
    if measured:
        about = environment()
        parts.append(
            [
                device.title,
                f"{about['cpu']}, {about['threads']} threads, torch {about['torch']}",
                table(CASE + TIME + PARITY, [row for row in measured if row["us"] is not None]),
                *measured_remarks(measured),
            ]
        )
    if modelled:
        timed = [row for row in modelled if row["us"] is not None]
        parts.append(
            [
                MODELLED_TITLE,
                *([table(CASE + MODEL + PARITY, timed)] if timed else []),
                *modelled_remarks(modelled),
            ]
        )
    parts.append(["cos and max_abs_err: against the same computation in float64"])
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def split(rows: Sequence[dict]) -> tuple[list[dict], list[dict]]:
    """The measured rows and the modelled ones."""
    measured = [row for row in rows if row["table"] == "measured"]
    return measured, [row for row in rows if row["table"] == "modelled"]


def table(columns: Sequence[tuple], rows: Sequence[dict]) -> str:
    """Aligned text; each column is (heading, function of a row to text), numbers to the right."""
    cells = [[heading for heading, _ in columns]]
    cells += [[show(row) for _, show in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    left = {i for i, (heading, _) in enumerate(columns) if heading in LEFT_ALIGNED}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def write_json(rows: Sequence[dict], path: str | os.PathLike) -> None:
    """`{"environment": {...}, "rows": [...]}`; a NaN is written as null, as JSON knows none."""
    clean = [{key: None if value != value else value for key, value in row.items()} for row in rows]
    content = {"environment": environment(), "rows": clean}
    Path(path).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def measured_remarks(measured: Sequence[dict]) -> list[str]:
    """What has to be said beside measured figures."""
    remarks = [f"{row['model']} {row['op']}: {row['note']}" for row in measured if row["note"]]
    timed = [row for row in measured if row["us"] is not None]
    if timed:
        remarks.append(f"median and interquartile range of {timed[0]['repeats']} interleaved runs")
    if all(row["speedup"] is None for row in timed):
        remarks.append("No speed-up is shown: no NKI kernel ran in this table.")
    if not all(row["converged"] for row in timed):
        remarks.append("* the warm-up ran out of time before the medians settled within 2 %")
    return remarks


def modelled_remarks(modelled: Sequence[dict]) -> list[str]:
    """What has to be said beside modelled figures."""
    remarks = [
        f"{row['model']} {row['op']} {row['dtype']}, {_MODELLED_NAMES[row['impl']]}: {row['note']}"
        for row in modelled
        if row["note"]
    ]
    timed = [row for row in modelled if row["us"] is not None]
    if timed:
        remarks += [
            "us: modelled, buffers as written, no launches; renamed: the same, buffers renamed",
            "floor: documented rates, nothing can be faster; of floor: the share that us reaches",
            "T_min: the matrix products of whole blocks at peak, or their weights read once",
            "T V S G dma: per cent of us in which TensorE, VectorE, ScalarE, GpSimdE and DMA work",
        ]
        if any(row["impl"] == "eager" for row in timed):
            remarks += [
                "eager launches: the same computation as one launch for each PyTorch operation",
                "speed-up: modelled, over the eager launches, launch cost included in both",
            ]
        remarks += sorted({row["trust"] for row in timed if row["trust"]})
    return remarks


def _milliseconds(row: dict) -> str:
    return f"{row['us'] / 1000:.2f}" + ("" if row["converged"] else "*")


def _speedup(row: dict) -> str:
    return "-" if row["speedup"] is None else f"{row['speedup']:.2f}x"


def _shares(row: dict) -> str:
    return " ".join(f"{100 * row['busy'][engine]:3.0f}" for engine in _ENGINES)


LEFT_ALIGNED = {
    "model", "op", "impl", "path", "target", "source", "way", "kernel", "regime",
    "source of the measurement", "no eager launches for",
}  # fmt: skip
CASE = (
    ("model", lambda row: row["model"]),
    ("res", lambda row: str(row["res"])),
    ("batch", lambda row: str(row["batch"])),
    ("dtype", lambda row: row["dtype"]),
    ("tokens", lambda row: str(row["tokens"])),
    ("op", lambda row: row["op"]),
)
TIME = (
    ("impl", lambda row: _NAMES[row["impl"]]),
    ("ms", _milliseconds),
    ("spread", lambda row: f"{row['us_spread'] / 1000:.2f}"),
    ("speed-up", _speedup),
)
MODEL = (
    ("target", lambda row: row["target"]),
    ("lnc", lambda row: str(row["lnc"])),
    ("impl", lambda row: _MODELLED_NAMES[row["impl"]]),
    ("us", lambda row: f"{row['us']:.1f}"),
    ("renamed", lambda row: f"{row['us_optimistic']:.1f}"),
    ("floor", lambda row: f"{row['floor_us']:.1f}"),
    ("of floor", lambda row: f"{row['floor_us'] / row['us']:.0%}"),
    ("x T_min", lambda row: "-" if not row["t_min_us"] else f"{row['us'] / row['t_min_us']:.3f}"),
    ("launches", lambda row: str(row["launches"])),
    ("launch us", lambda row: f"{row['launch_us']:.1f}"),
    ("T   V   S   G dma", _shares),
    ("regime", lambda row: row["regime"]),
    ("speed-up", _speedup),
)
PARITY = (
    ("cos", lambda row: f"{row['cos']:.7f}"),
    ("max_abs_err", lambda row: f"{row['max_abs_err']:.2e}"),
    ("path", lambda row: row["path"]),
)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
