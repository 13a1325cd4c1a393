"""Runs the published kernels through the timing model and compares: `python -m bench validate`."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nki_emulator
from bench.paths import output, target
from bench.progress import ProgressLine
from bench.report import table
from nki_emulator.timing import trust

from .rows import PUBLISHED, Published


@dataclass(frozen=True)
class Comparison:
    """A published row with its modelled time, microseconds, launch included if the row's is."""

    row: Published
    modelled: float
    optimistic: float

    @property
    def error(self) -> float:
        """Relative error of the literal bound."""
        return self.modelled / self.row.microseconds - 1

    @property
    def fitted(self) -> bool:
        """Whether a figure of the model was chosen to meet this row."""
        return self.row.name.startswith(trust.fitted_on())


def compare(row: Published) -> Comparison:
    """Models the kernel of a row."""
    kernel = row.kernel if row.lnc == 1 else row.kernel[row.lnc]
    with target(row.target):
        profile = nki_emulator.profile(kernel)(*row.arguments())
    launch = profile.launch / 1e3 if row.launch else 0.0
    return Comparison(
        row,
        profile.total / 1e3 * row.times + launch,
        profile.optimistic / 1e3 * row.times + launch,
    )


def compare_all(
    rows: Sequence[Published] = PUBLISHED,
    progress: Callable[[str, float], None] = lambda text, done: None,
) -> list[Comparison]:
    """Every row, in order."""
    found = []
    for number, row in enumerate(rows):
        progress(f"modelling {row.name}", number / len(rows))
        found.append(compare(row))
    return found


def medians(found: Iterable[Comparison]) -> dict[str, dict]:
    """By regime: the median absolute error, the largest, the number of rows and their targets.

    Rows that a figure was fitted on are left out: they say nothing about other kernels.
    """
    regimes: dict[str, list[Comparison]] = {}
    for one in found:
        if not one.fitted:
            regimes.setdefault(one.row.regime, []).append(one)
    return {
        regime: {
            "median": round(statistics.median(abs(one.error) for one in ones), 4),
            "largest": round(max(abs(one.error) for one in ones), 4),
            "rows": len(ones),
            "targets": sorted({one.row.target for one in ones}),
        }
        for regime, ones in regimes.items()
    }


def text(found: list[Comparison]) -> str:
    """The table, the medians by regime and the notes."""
    columns = (
        ("kernel", lambda one: one.row.name),
        ("regime", lambda one: one.row.regime),
        ("target", lambda one: one.row.target),
        ("modelled us", lambda one: f"{one.modelled:.1f}"),
        ("renamed", lambda one: f"{one.optimistic:.1f}"),
        ("measured us", lambda one: f"{one.row.microseconds:.1f}"),
        ("error", lambda one: f"{one.error:+.1%} {'*' if one.fitted else ' '}"),
        ("source of the measurement", lambda one: one.row.source),
    )
    lines = [
        "modelled against published measurements; nothing here was measured by this project",
        table(columns, found),
        "* a figure was fitted on this row (below); such rows do not count in the next lines",
        "",
    ]
    for regime, figures in medians(found).items():
        lines.append(
            f"{regime}: median absolute error {figures['median']:.1%}, largest "
            f"{figures['largest']:.1%}, {figures['rows']} rows ({', '.join(figures['targets'])})"
        )
    notes = {one.row.note: one.row.name for one in reversed(found) if one.row.note}
    lines += ["", "What the sources leave open, at the first row of each:"]
    lines += [f"  {name}: {note}" for note, name in reversed(notes.items())]
    lines += ["", "Fitted figures and the rows they were fitted on:"]
    for hardware, name, figure in trust.fitted():
        lines.append(f"  {hardware.name} {name} = {figure:g} {figure.unit}: {figure.source}")
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """The command `python -m bench validate`."""
    parser = argparse.ArgumentParser(prog="python -m bench validate", description=__doc__)
    parser.add_argument(
        "--json", type=output, metavar="PATH", help="also write the rows to this file"
    )
    parser.add_argument(
        "--write", action="store_true", help="renew the errors that modelled figures are shown with"
    )
    options = parser.parse_args(argv)
    with ProgressLine() as progress:
        found = compare_all(progress=progress)
    print(text(found), end="")
    if options.json:
        rows = [
            {
                "kernel": one.row.name, "regime": one.row.regime, "target": one.row.target,
                "modelled_us": one.modelled, "modelled_us_optimistic": one.optimistic,
                "measured_us": one.row.microseconds, "error": one.error, "fitted": one.fitted,
                "source": one.row.source, "note": one.row.note,
            }
            for one in found
        ]  # fmt: skip
        Path(options.json).write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    if options.write:
        trust.write(medians(found))
    return 0
