"""The benchmark as a page: both tables, and the modelled timeline of every kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench import report
from bench.device import Device
from nki_emulator.timing import html


class Timelines:
    """Profiles of the modelled kernels, kept while rows are made; equal launches once."""

    def __init__(self):
        self.sections: list[tuple[str, object, int]] = []

    def keep(self, row: dict, profiles: Sequence) -> None:
        """Take the profiles of a row, if its kernels are the package's."""
        if row["impl"] != "kernel":
            return
        counts: dict[tuple, list] = {}
        for profile in profiles:
            key = (profile.kernel, profile.total, profile.instructions)
            counts.setdefault(key, [profile, 0])[1] += 1
        title = f"{row['model']} {row['res']} px, batch {row['batch']}, {row['dtype']}: {row['op']}"
        for profile, count in counts.values():
            self.sections.append((title, profile, count))


def write(rows: Sequence[dict], timelines: Timelines, device: Device, path: str | os.PathLike):
    """Write the page of ``rows`` to ``path``."""
    measured, modelled = report.split(rows)
    parts = [
        *_part(report.MODELLED_TITLE, report.MODEL, modelled, report.modelled_remarks),
        *_part(device.title, report.TIME, measured, report.measured_remarks),
    ]
    if timelines.sections:
        parts.append("<h2>Modelled timelines of the kernels</h2>")
    for number, (title, profile, count) in enumerate(timelines.sections):
        times = f", {count} launches alike" if count > 1 else ""
        parts.append(
            f"<details{' open' if number == 0 else ''}><summary>{escape(title)}, kernel "
            f"{escape(profile.kernel)}{times}</summary><p>{escape(profile.claim)}</p>"
            f"{html.section(profile)}</details>"
        )
    claim = "in every table and timeline that says so; wall-clock tables name their device"
    text = html.page("neuron-vit-bench", claim, "\n".join(parts))
    Path(path).write_text(text, encoding="utf-8")


def _part(title: str, columns: Sequence[tuple], rows: Sequence[dict], remarks) -> list[str]:
    if not rows:
        return []
    timed = [row for row in rows if row["us"] is not None]
    return [
        f"<h2>{escape(title)}</h2>",
        _table(report.CASE + columns + report.PARITY, timed),
        *(f"<p>{escape(line)}</p>" for line in remarks(rows)),
    ]


def _table(columns: Sequence[tuple], rows: Sequence[dict]) -> str:
    def cell(heading, show, row):
        left = heading in report.LEFT_ALIGNED
        return ("" if left else "n", escape(show(row)))

    return html.table(
        [heading for heading, _ in columns],
        [[cell(heading, show, row) for heading, show in columns] for row in rows],
    )
