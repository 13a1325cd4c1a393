"""`neuron-vit-bench`: eager PyTorch against the package on the shapes of the ViT families.

Prints wall-clock of this machine and modelled time on the chip, in two tables that cannot be
confused. `python -m bench validate` prints how far the model is from published measurements.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys

import neuron_vit
from bench import page, report
from bench.cases import DTYPES, LEVELS
from bench.device import find as find_device
from bench.models import MODELS, UnknownModel, find
from bench.paths import output
from bench.progress import ProgressLine
from bench.rows import IMPLS, Plan, Setting, run
from bench.validation import report as validation
from nki_emulator.pipes import quiet

DEFAULT_MODEL = "vit-b16"


@quiet
def main(argv: list[str] | None = None) -> int:
    """Runs the command line `argv` (default: that of the process); returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["validate"]:
        return validation.main(argv[1:])
    if argv[:1] == ["emulator"]:
        from bench import emulator

        return emulator.main(argv[1:])
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list:
        print(_listing())
        return 0
    try:
        settings = _settings(options)
    except (UnknownModel, ValueError) as error:
        parser.error(str(error))
    device = find_device()
    plan = Plan(
        repeats=options.repeats, device=device, target=options.target, lnc=options.lnc,
        impls=options.impl,
    )  # fmt: skip
    timelines = page.Timelines()
    with ProgressLine() as progress:
        rows = run(settings, neuron_vit, plan, progress, timelines.keep)
    print(report.text(rows, device), end="")
    if options.json:
        report.write_json(rows, options.json)
    if options.html:
        page.write(rows, timelines, device, options.html)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neuron-vit-bench", description=__doc__)
    parser.add_argument(
        "--model",
        nargs="+",
        default=[DEFAULT_MODEL],
        metavar="NAME",
        help=f"model families by name (default: {DEFAULT_MODEL}); see --list",
    )
    parser.add_argument("--list", action="store_true", help="print every model and its shape")
    parser.add_argument(
        "--res",
        nargs="+",
        type=_positive,
        metavar="PIXELS",
        help="side of the image (default: the model's own)",
    )
    parser.add_argument(
        "--batch", nargs="+", type=_positive, default=[1], metavar="N", help="images (default: 1)"
    )
    parser.add_argument(
        "--dtype", nargs="+", choices=DTYPES, default=["bf16"], help="(default: bf16)"
    )
    parser.add_argument(
        "--level", nargs="+", choices=LEVELS, default=["block"], help="(default: block)"
    )
    parser.add_argument(
        "--target", choices=("trn2", "trn3"), default="trn2", help="chip to model (default: trn2)"
    )
    parser.add_argument(
        "--lnc", type=int, choices=(1, 2), default=1, help="cores of a launch (default: 1)"
    )
    parser.add_argument(
        "--impl",
        nargs="+",
        choices=IMPLS,
        default=list(IMPLS),
        help="what to run; eager is the baseline of every speed-up (default: all)",
    )
    parser.add_argument(
        "--repeats",
        type=_positive,
        default=20,
        metavar="N",
        help="timed runs of each side, at least 2 (default: 20)",
    )
    parser.add_argument(
        "--json", type=output, metavar="PATH", help="also write the rows to this file"
    )
    parser.add_argument(
        "--html",
        type=output,
        metavar="PATH",
        help="also write a page with the tables and the timelines",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


def _settings(options: argparse.Namespace) -> list[Setting]:
    """Every combination asked for, in the order of the options."""
    if options.repeats < 2:
        raise ValueError("--repeats 1 gives no spread; use at least 2")
    settings = []
    for name in dict.fromkeys(options.model):
        shape = find(name)
        choices = (options.res or [shape.resolution], options.batch, options.dtype, options.level)
        for choice in itertools.product(*map(dict.fromkeys, choices)):
            setting = Setting(shape, *choice)
            _require_memory(setting)
            settings.append(setting)
    return settings


def _require_memory(setting: Setting) -> None:
    """Refuse what cannot be computed here, before anything runs."""
    needed, memory = setting.bytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"{setting} needs {needed / 2**30:.0f} GiB for its reference in float64; this machine "
            f"has {memory / 2**30:.0f} GiB. Use a smaller batch, resolution or level"
        )


def _listing() -> str:
    columns = (
        ("model", lambda shape: shape.name),
        ("hidden", lambda shape: str(shape.hidden)),
        ("heads", lambda shape: f"{shape.heads}x{shape.head_dim}"),
        ("mlp", lambda shape: str(shape.mlp)),
        ("depth", lambda shape: str(shape.depth)),
        ("res", lambda shape: str(shape.resolution)),
        ("tokens", lambda shape: str(shape.tokens())),
        ("norm", lambda shape: shape.norm),
        ("activation", lambda shape: shape.activation),
        ("eps", lambda shape: f"{shape.eps:g}"),
        ("layer scale", lambda shape: "yes" if shape.layer_scale else "no"),
        ("no eager launches for", lambda shape: shape.beyond_eager_launches or "-"),
        ("source", lambda shape: shape.source),
    )
    return report.table(columns, list(MODELS.values()))


if __name__ == "__main__":
    sys.exit(main())
