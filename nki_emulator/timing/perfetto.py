"""The timeline as a Chrome trace, which ui.perfetto.dev opens: engines and DMA queues as tracks."""

import json
import os

NOTE = "modelled, not measured"
# What loading an activation table is called; no instruction of the kernel does it.
TABLE = "table load"
TRACKS = ("tensor", "vector", "scalar", "gpsimd", "dma load", "dma store")


def trace(profile):
    """The trace as a dict: one slice a step, named by its instruction and source line."""
    threads = {name: number for number, name in enumerate(tracks(profile), 1)}
    events = [_metadata("process_name", 0, f"{profile.target} core; {profile.claim}")]
    for name, number in threads.items():
        events.append(_metadata("thread_name", number, name))
        events.append(
            {"ph": "M", "pid": 1, "tid": number, "name": "thread_sort_index",
             "args": {"sort_index": number}}
        )  # fmt: skip
    for event in profile.events:
        step = event.step
        events.append(
            {
                "ph": "X", "pid": 1, "tid": threads[event.track],
                "name": f"{step.op} {short(step.line)}",
                "ts": event.start / 1e3, "dur": (event.end - event.start) / 1e3,
                "args": {
                    "line": str(step.line), "source": step.line.text if step.line else "",
                    "elements per partition": step.elements,
                    "result usable at (us)": event.done / 1e3, **details(step),
                },
            }
        )  # fmt: skip
        if event.table:
            events.append(
                {
                    "ph": "X", "pid": 1, "tid": threads[event.track], "name": TABLE,
                    "ts": event.table[0] / 1e3, "dur": (event.table[1] - event.table[0]) / 1e3,
                    "args": {"line": str(step.line), **details(step)},
                }
            )  # fmt: skip
    return {
        "traceEvents": events, "displayTimeUnit": "ns", "otherData": {"note": profile.claim},
    }  # fmt: skip


def write(profile, path):
    """Write the trace of ``profile`` to ``path`` (JSON)."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace(profile), file)


def tracks(profile):
    """Names of the tracks that have events, in the usual order."""
    order = {name: place for place, name in enumerate(TRACKS)}

    def key(track):
        core, name = track.split(" ", 2)[1:] if track.startswith("core ") else ("", track)
        return core, order.get(name, len(order)), name

    return sorted({event.track for event in profile.events}, key=key)


def short(line):
    """`file.py:12` of a source line."""
    return f"{os.path.basename(line.file)}:{line.line}" if line else ""


def details(step):
    """What an instruction adds to its name, as text."""
    return {name: str(value) for name, value in step.details.items() if value not in (None, False)}


def _metadata(kind, thread, name):
    return {"ph": "M", "pid": 1, "tid": thread, "name": kind, "args": {"name": name}}
