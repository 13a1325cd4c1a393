"""Self-contained pages of profiles: timelines and tables, without network or library."""

import json
from html import escape
from pathlib import Path

from .perfetto import NOTE, TABLE, short, tracks

# Source lines listed; the rest are summed up in a last row.
LINES = 25
_HERE = Path(__file__).parent


def page(title, claim, body):
    """A whole page around ``body``. ``claim`` says how far the figures can be trusted."""
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "timeline.js").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f'</title>\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style></head><body>\n<h1>{escape(title)}</h1>\n"
        f'<p><span class="note">{NOTE}</span> {escape(claim.removeprefix(f"{NOTE}; "))}</p>\n'
        f"{body}\n"
        f"<script>\n{script}</script></body></html>\n"
    )


def section(profile):
    """The figures, the timeline and the tables of one profile."""
    return "\n".join(
        (
            f'<div class="cards">{_cards(profile)}</div>',
            _timeline(profile),
            "<h3>Engines (modelled)</h3>",
            table(("engine", "busy us", "idle us", "share", ""), _engines(profile)),
            "<h3>Dearest source lines (modelled; row tiles that work side by side count each)</h3>",
            table(("line", "instruction", "count", "engine us", "source"), _lines(profile)),
        )
    )


def table(headings, rows):
    """A table; cells are (class, html) pairs or html."""
    rows = [[cell if isinstance(cell, tuple) else ("", cell) for cell in row] for row in rows]
    if not rows:
        return ""
    numeric = [kind == "n" for kind, _ in rows[0]]
    head = "".join(
        f"<th{' class=n' if n else ''}>{escape(text)}</th>" for text, n in zip(headings, numeric)
    )
    lines = [
        "<tr>" + "".join(f'<td class="{kind}">{text}</td>' for kind, text in row) + "</tr>"
        for row in rows
    ]
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _timeline(profile):
    names, lines, events = {}, {}, []
    order = {name: row for row, name in enumerate(tracks(profile))}
    for event in profile.events:
        source = event.step.line
        text = f"{short(source)}  {source.text}" if source else ""
        slices = [(event.step.op, event.start, event.end)]
        if event.table:
            slices.append((TABLE, *event.table))
        for name, start, end in slices:
            events.append(
                [
                    order[event.track], round(start / 1e3, 4), round(end / 1e3, 4),
                    names.setdefault(name, len(names)), lines.setdefault(text, len(lines)),
                ]
            )  # fmt: skip
    data = {
        "tracks": list(order), "names": list(names), "lines": list(lines), "events": events,
        "total": max(profile.total / 1e3, 1e-3),
    }  # fmt: skip
    # A closing tag inside a string must not end the script.
    text = json.dumps(data).replace("</", "<\\/")
    return (
        '<figure class="timeline"><button>zoom in</button> <button>zoom out</button> '
        "<button>all</button> drag to move, wheel to zoom, point at a slice for its line"
        f'<canvas style="height:{len(order) * 34 + 26}px"></canvas><figcaption></figcaption>'
        f'<script type="application/json">{text}</script></figure>'
    )


def _cards(profile):
    ratio = profile.total / profile.floor if profile.floor else 1.0
    cards = (
        ("modelled time, buffers as written", _us(profile.total)),
        ("modelled time, buffers renamed", _us(profile.optimistic)),
        (f"documented floor ({profile.floor_of})", _us(profile.floor)),
        ("modelled time over floor", f"{ratio:.2f}x"),
        ("launch (not included)", _us(profile.launch)),
        ("matmul utilisation (modelled)", f"{profile.matmul_utilisation:.1%}"),
        ("HBM read", f"{profile.hbm_read / 2**20:.2f} MiB"),
        ("HBM written", f"{profile.hbm_written / 2**20:.2f} MiB"),
        ("peak SBUF a partition", f"{profile.sbuf_peak} B"),
        ("peak PSUM a partition", f"{profile.psum_peak} B"),
        ("instructions", str(profile.instructions)),
    )
    return "".join(
        f'<div class="card">{escape(label)}<b>{escape(value)}</b></div>' for label, value in cards
    )


def _engines(profile):
    for engine, busy in profile.busy.items():
        share = busy / profile.total if profile.total else 0.0
        bar = f'<div class="bar"><i style="width:{share * 100:.1f}%"></i></div>'
        yield (
            engine, ("n", f"{busy / 1e3:.2f}"), ("n", f"{profile.idle[engine] / 1e3:.2f}"),
            ("n", f"{share:.1%}"), bar,
        )  # fmt: skip


def _lines(profile):
    for line, op, count, time, text in profile.lines[:LINES]:
        place = escape(line.rsplit("/", 1)[-1])
        yield ("s", place), op, ("n", str(count)), ("n", f"{time / 1e3:.2f}"), ("s", escape(text))
    rest = profile.lines[LINES:]
    if rest:
        count, time = sum(row[2] for row in rest), sum(row[3] for row in rest)
        yield f"{len(rest)} more", "", ("n", str(count)), ("n", f"{time / 1e3:.2f}"), ""


def _us(nanoseconds):
    return f"{nanoseconds / 1e3:.1f} us"
