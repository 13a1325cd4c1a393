"""How far a modelled figure can be trusted: the errors found by `python -m bench validate`."""

import json
from pathlib import Path

from ..hardware import HARDWARE

ERRORS = Path(__file__).with_name("errors.json")
COMMAND = "python -m bench validate"


def errors():
    """By regime (matmul, dma, attention, vector, small): median and largest error, rows, targets.

    Rows that a figure was fitted on do not count.
    """
    return json.loads(ERRORS.read_text(encoding="utf-8"))


def write(found):
    """Renew the file that :func:`errors` reads."""
    ERRORS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def statement(regime):
    """One sentence for a figure of this regime."""
    figures = errors().get(regime)
    if figures is None:
        return f"modelled, not measured; no published measurement of this regime ({regime})"
    return (
        f"modelled, not measured; on {figures['rows']} published {regime} kernels "
        f"({', '.join(figures['targets'])}) the model's "
        f"median absolute error is {figures['median']:.0%}, the largest {figures['largest']:.0%} "
        f"({COMMAND})"
    )


def regime(busy, total):
    """The regime of a profile by its busiest resource: matmul, dma or vector; small if none is
    busy for half of the ``total`` time, so that latencies decide.

    ``busy`` are times in which a resource works, not work added up: row tiles side by side do not
    make a launch that mostly waits one that is bound by matrix products.
    """
    busiest = max(busy, key=busy.get)
    if busy[busiest] < total / 2:
        return "small"
    return {"tensor": "matmul", "dma": "dma"}.get(busiest, "vector")


def fitted():
    """(hardware, name, figure) of every figure that was fitted to measurements."""
    return [
        (hardware, name, figure)
        for hardware in HARDWARE.values()
        for name, figure in hardware.figures()
        if figure.tag == "fitted"
    ]


def fitted_on():
    """How the names of the rows begin that figures were fitted on."""
    return tuple({figure.source.removeprefix("bench validate: ") for *_, figure in fitted()})
