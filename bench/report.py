"""Prints rows as tables and writes them as JSON. Nothing here computes; it only formats rows."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

MEASURED_TITLE = "wall-clock on this CPU; says nothing about Trainium"
EMULATED_TITLE = "NKI kernels emulated on this CPU: launches and parity, no time of any kind"

# What a row's impl is called in print. A row says by its path whether kernels ran.
_NAMES = {"eager": "eager", "kernel": "package"}


def environment() -> dict:
    """What the figures depend on besides the code."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
    }


def text(rows: Sequence[dict]) -> str:
    """Both tables, each under its title; a table without rows is left out."""
    parts = []
    measured = [row for row in rows if row["table"] == "measured"]
    if measured:
        about = environment()
        parts.append(
            [
                MEASURED_TITLE,
                f"{about['cpu']}, {about['threads']} threads, torch {about['torch']}",
                f"median and interquartile range of {measured[0]['repeats']} interleaved runs",
                table(_CASE + _TIME + _PARITY, measured),
                *_remarks(measured),
            ]
        )
    emulated = [row for row in rows if row["table"] == "emulated"]
    if emulated:
        notes = [
            f"{row['model']} {row['op']} {row['dtype']}: PyTorch operations ran. {row['note']}"
            for row in emulated
            if row["note"]
        ]
        parts.append([EMULATED_TITLE, table(_CASE + _EMULATION + _PARITY, emulated), *notes])
    parts.append(["cos and max_abs_err: against the same computation in float64"])
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def table(columns: Sequence[tuple], rows: Sequence[dict]) -> str:
    """Aligned text; each column is (heading, function of a row to text), numbers to the right."""
    cells = [[heading for heading, _ in columns]]
    cells += [[show(row) for _, show in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    left = {i for i, (heading, _) in enumerate(columns) if heading in _LEFT_ALIGNED}
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


def _remarks(measured) -> list[str]:
    remarks = []
    if all(row["speedup"] is None for row in measured):
        remarks.append("No speed-up is shown: no NKI kernel ran in this table.")
    if not all(row["converged"] for row in measured):
        remarks.append("* the warm-up ran out of time before the medians settled within 2 %")
    return remarks


def _milliseconds(row: dict) -> str:
    return f"{row['us'] / 1000:.2f}" + ("" if row["converged"] else "*")


def _speedup(row: dict) -> str:
    return "-" if row["speedup"] is None else f"{row['speedup']:.2f}x"


_LEFT_ALIGNED = {"model", "op", "impl", "path", "target", "source", "way", "NKI launches"}
_CASE = (
    ("model", lambda row: row["model"]),
    ("res", lambda row: str(row["res"])),
    ("batch", lambda row: str(row["batch"])),
    ("dtype", lambda row: row["dtype"]),
    ("tokens", lambda row: str(row["tokens"])),
    ("op", lambda row: row["op"]),
)
_TIME = (
    ("impl", lambda row: _NAMES[row["impl"]]),
    ("ms", _milliseconds),
    ("spread", lambda row: f"{row['us_spread'] / 1000:.2f}"),
    ("speed-up", _speedup),
)
_EMULATION = (
    ("target", lambda row: row["target"]),
    ("lnc", lambda row: str(row["lnc"])),
    ("launches", lambda row: str(row["launches"])),
)
_PARITY = (
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
