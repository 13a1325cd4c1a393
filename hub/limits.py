"""The sizes that the kernels of a checkout take, asked of `nki_src/limits.py`.

Nobody writes these numbers down: a size fits if the function that the package asks before a launch
says so.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

# Where a search for a largest size ends; no layer of a Vision Transformer comes near it.
_CEILING = 1 << 16
# More rows than any kernel handles at a time, so that the number of rows does not matter.
_MANY_ROWS = 1 << 14


@dataclass(frozen=True)
class Question:
    """The largest size that `kernel` takes, in multiples of `step`; `sizes` are all, given it."""

    kernel: str
    size: str
    step: int
    sizes: Callable[[int], dict[str, int]]


def _block(tokens: int) -> Callable[[int], dict[str, int]]:
    return lambda width: {
        "batch": 1,
        "tokens": tokens,
        "width": width,
        "heads": width // 64,
        "head_dim": 64,
        "hidden": 4 * width,
    }


QUESTIONS = (
    Question("layer_norm", "width of a row", 1, lambda width: {"width": width}),
    Question("rms_norm", "width of a row", 1, lambda width: {"width": width}),
    Question(
        "linear",
        "inputs and outputs, any number of rows",
        128,
        lambda size: {"tokens": _MANY_ROWS, "in_features": size, "out_features": size},
    ),
    Question(
        "mlp",
        "width with four times that hidden, any number of rows",
        128,
        lambda size: {"tokens": _MANY_ROWS, "width": size, "hidden": 4 * size, "out": size},
    ),
    *(
        Question(
            "vit_block",
            f"width at {tokens} tokens, heads of 64, four times the width hidden",
            64,
            _block(tokens),
        )
        for tokens in (197, 1025)
    ),
)


def read_limits(package: Path) -> dict[str, Any] | None:
    """Return the limits of the kernels in the folder `package`, or None if it states none.

    The result has `dtypes` and `targets` (names), `head_size` and `sequence` (the largest), and
    `largest`, a list of {"kernel", "size", "values"} with one value for each of `columns`, which
    are (target, dtype) pairs. A value of 0 means that not even the smallest size fits.
    """
    path = package / "nki_src" / "limits.py"
    if not path.is_file():
        return None
    limits = _load(path)
    columns = [(target, dtype) for target in limits.SBUF_BYTES for dtype in limits.DTYPE_BYTES]
    return {
        "dtypes": list(limits.DTYPE_BYTES),
        "targets": list(limits.SBUF_BYTES),
        "head_size": limits.HEAD_SIZE_MAX,
        "sequence": limits.SEQUENCE_MAX,
        "columns": columns,
        "largest": [
            {
                "kernel": question.kernel,
                "size": question.size,
                "values": [_largest(limits, question, *column) for column in columns],
            }
            for question in QUESTIONS
        ],
    }


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("limits", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _largest(limits: ModuleType, question: Question, target: str, dtype: str) -> int:
    """Return the size before the first that does not fit."""
    fits = getattr(limits, question.kernel)
    size = 0
    while size < _CEILING:
        sizes = question.sizes(size + question.step)
        if not fits(**sizes, dtype_name=dtype, target=target)[0]:
            return size
        size += question.step
    return size
