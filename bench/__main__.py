"""`neuron-vit-bench`: eager PyTorch against the package on the shapes of the ViT families."""

from __future__ import annotations

import argparse
import itertools
import sys

import neuron_vit
from bench import report
from bench.cases import DTYPES, LEVELS
from bench.models import MODELS, UnknownModel, VitShape, find
from bench.progress import ProgressLine
from bench.rows import Setting, run

DEFAULT_MODEL = "vit-b16"


def main(argv: list[str] | None = None) -> int:
    """Runs the command line `argv` (default: that of the process); returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
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
    with ProgressLine() as progress:
        rows = run(settings, neuron_vit, options.repeats, options.target, progress)
    print(report.text(rows), end="")
    if options.json:
        report.write_json(rows, options.json)
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
    parser.add_argument("--level", choices=LEVELS, default="block", help="(default: block)")
    parser.add_argument(
        "--target", choices=("trn2", "trn3"), default="trn2", help="chip to emulate (default: trn2)"
    )
    parser.add_argument(
        "--repeats",
        type=_positive,
        default=20,
        metavar="N",
        help="timed runs of each side, at least 2 (default: 20)",
    )
    parser.add_argument("--json", metavar="PATH", help="also write the rows to this file")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def _settings(options: argparse.Namespace) -> list[Setting]:
    """Every combination asked for, in the order of the options."""
    if options.repeats < 2:
        raise ValueError("--repeats 1 gives no spread; use at least 2")
    settings = []
    for name in options.model:
        shape = find(name)
        resolutions = options.res or [shape.resolution]
        for resolution, batch, dtype in itertools.product(
            resolutions, options.batch, options.dtype
        ):
            shape.tokens(resolution)
            settings.append(Setting(shape, resolution, batch, dtype, options.level))
    return settings


def _listing() -> str:
    def heads(shape: VitShape) -> str:
        return f"{shape.heads}x{shape.head_dim}"

    columns = (
        ("model", lambda shape: shape.name),
        ("hidden", lambda shape: str(shape.hidden)),
        ("heads", heads),
        ("mlp", lambda shape: str(shape.mlp)),
        ("depth", lambda shape: str(shape.depth)),
        ("res", lambda shape: str(shape.resolution)),
        ("tokens", lambda shape: str(shape.tokens())),
        ("activation", lambda shape: shape.activation),
        ("eps", lambda shape: f"{shape.eps:g}"),
        ("layer scale", lambda shape: "yes" if shape.layer_scale else "no"),
        ("source", lambda shape: shape.source),
    )
    return report.table(columns, list(MODELS.values()))


if __name__ == "__main__":
    sys.exit(main())
