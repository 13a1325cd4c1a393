"""The half of the demo that a user would run: `python -m bench.demo.worker FIGURES`.

Loads the kernel package from the Hub that the environment names, as a user does, and runs
everything else with what it loaded. Prints its part of the report and writes the figures that the
demo judges to the file FIGURES, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType

import kernels
import torch
import torch.nn.functional as F

from bench import report
from bench.cases import DTYPES
from bench.demo import digits, photo
from bench.models import find
from bench.parity import compare
from bench.paths import cpu_path, emulated_nki
from bench.rows import Plan, Setting, run

REPOSITORY = "org/neuron-vit"
VERSION = 1

# What each way of running is called in the figures and what it is called in print.
WAYS = {
    "eager": "eager PyTorch",
    "package": "package, CPU path",
    "nki": "NKI kernels, emulated (CPU)",
}
_PATHS = {"eager": contextlib.nullcontext, "package": cpu_path, "nki": emulated_nki}
_DTYPES = ("fp32", "bf16")


def main() -> None:
    """Run every part; the figures are written once, when all parts are through."""
    figures_file = Path(sys.argv[1])
    figures: dict = {}
    package = load(figures)
    with torch.inference_mode():
        check_one_function(package)
    classify_digits(package, figures)
    with torch.inference_mode():
        see_photo(package, figures)
    bench(package, figures)
    figures_file.write_text(json.dumps(figures), encoding="utf-8")


def load(figures: dict) -> ModuleType:
    """The package, by the call that its card tells a user to make."""
    call = f'kernels.get_kernel("{REPOSITORY}", version={VERSION}, trust_remote_code=True)'
    print(f"In a new process, with an empty cache:\n  nv = {call}", flush=True)
    package = kernels.get_kernel(REPOSITORY, version=VERSION, trust_remote_code=True)
    folder = Path(package.__file__).parent
    from_hub = folder.resolve().is_relative_to(Path(os.environ["HF_HOME"]).resolve())
    # The checkout holds a package of the same content; it must not be what runs here.
    figures["load"] = {"from_hub": from_hub and "neuron_vit" not in sys.modules}
    print(f"  variant       {folder.name}")
    print(f"  namespace     torch.ops.{package._ops.ops.name}")
    names = package.__all__
    print("  functions     " + "\n                ".join(textwrap.wrap(" ".join(names), 78)))
    return package


def check_one_function(package: ModuleType) -> None:
    x, weight, bias = torch.randn(197, 768), torch.rand(768), torch.rand(768)
    with cpu_path():
        result = package.layer_norm(x, (768,), weight, bias)
    error = (result - F.layer_norm(x, (768,), weight, bias)).abs().max()
    print(
        f"  layer_norm    [197, 768] on the CPU: path {package.last_path()!r}, largest difference "
        f"from torch.nn.functional {error:.1e}",
        flush=True,
    )


def classify_digits(package: ModuleType, figures: dict) -> None:
    """Trains on part of the digits and classifies the rest three ways, in two dtypes."""
    print("Seconds below are this CPU's; for emulated kernels they say nothing about a chip.")
    _title("Handwritten digits: a small Vision Transformer, trained here, run three ways")
    images, labels, held_out, truth = digits.load_split()
    start = time.perf_counter()
    model = digits.train(images, labels)
    print(
        f"trained on {len(images)} images in {time.perf_counter() - start:.1f} s with plain "
        f"PyTorch; {len(held_out)} images held out",
        flush=True,
    )
    rows = []
    expected = None
    for dtype in _DTYPES:
        typed, pixels = photo.in_dtype(model, DTYPES[dtype]), held_out.to(DTYPES[dtype])
        for way in WAYS:
            package.reset_launches()
            start = time.perf_counter()
            with _PATHS[way](), torch.inference_mode():
                if way == "eager":
                    logits = typed(pixels)
                else:
                    logits = digits.through_package(typed, pixels, package)
            seconds = time.perf_counter() - start
            predictions = logits.argmax(dim=1)
            expected = predictions if expected is None else expected
            launches = package.launches()
            rows.append(
                {
                    "way": way,
                    "dtype": dtype,
                    "accuracy": (predictions == truth).double().mean().item(),
                    "agreement": (predictions == expected).double().mean().item(),
                    # `emulated_nki` raises where a kernel does not apply, so that a launch of each
                    # kernel means that no layer went another way.
                    "only_nki": way == "nki" and launches == digits.launches(model),
                    "launches": launches,
                    "seconds": seconds,
                }
            )
    figures["digits"] = {f"{row['way']} {row['dtype']}": row for row in rows}
    columns = (
        ("way", lambda row: WAYS[row["way"]]),
        ("dtype", lambda row: row["dtype"]),
        ("accuracy", lambda row: f"{row['accuracy']:.2%}"),
        ("agrees with eager fp32", lambda row: f"{row['agreement']:.2%}"),
        ("NKI launches", _launches),
        ("seconds (this CPU)", lambda row: f"{row['seconds']:.2f}"),
    )
    print(report.table(columns, rows), flush=True)


def see_photo(package: ModuleType, figures: dict) -> None:
    """Runs ViT-B/16 on a photograph three ways, in two dtypes."""
    _title("ViT-B/16 (transformers, ViTConfig defaults) on a photograph, 224 x 224, 197 tokens")
    model = photo.build_model()
    pixels = photo.load_photo(model.config.image_size)
    truth = model(pixels).last_hidden_state
    rows = []
    for dtype in _DTYPES:
        typed, typed_pixels = photo.in_dtype(model, DTYPES[dtype]), pixels.to(DTYPES[dtype])
        packaged = photo.PackagedViT(typed, package)
        for way in WAYS:
            package.reset_launches()
            start = time.perf_counter()
            with _PATHS[way]():
                if way == "eager":
                    hidden = typed(typed_pixels).last_hidden_state
                else:
                    hidden = packaged(typed_pixels)
            seconds = time.perf_counter() - start
            parity = compare(hidden, truth)
            rows.append(
                {
                    "way": way,
                    "dtype": dtype,
                    "cos": parity.cos,
                    "max_abs_err": parity.max_abs_err,
                    "launches": package.launches(),
                    "seconds": seconds,
                }
            )
    figures["vit"] = {f"{row['way']} {row['dtype']}": row for row in rows}
    columns = (
        ("way", lambda row: WAYS[row["way"]]),
        ("dtype", lambda row: row["dtype"]),
        ("cos", lambda row: f"{row['cos']:.7f}"),
        ("max_abs_err", lambda row: f"{row['max_abs_err']:.2e}"),
        ("NKI launches", _launches),
        ("seconds (this CPU)", lambda row: f"{row['seconds']:.2f}"),
    )
    print(
        "final hidden state against eager float32, whose largest value is "
        f"{truth.abs().max():.1f}; all blocks through vit_block"
    )
    print(report.table(columns, rows), flush=True)


# The models of the benchmark's small selection.
BENCHED = ("vit-ti16", "vit-b16", "dinov2-s14", "siglip-so400m16")


def bench(package: ModuleType, figures: dict) -> None:
    """A small selection of the benchmark's table."""
    _title("Benchmark selection (neuron-vit-bench --list shows every model)")
    settings = [
        Setting(find(name), find(name).resolution, batch=1, dtype="bf16", level="block")
        for name in BENCHED
    ]
    plan = Plan(repeats=10, warmup_seconds=2.0, impls=("eager", "kernel"))
    rows = run(settings, package, plan)
    kernels = [row for row in report.split(rows)[1] if row["impl"] == "kernel"]
    only_nki = len(kernels) == len(settings) and all(row["path"] == "nki" for row in kernels)
    figures["bench"] = {"only_nki": only_nki}
    print(report.text(rows), end="", flush=True)


def _launches(row: dict) -> str:
    counts = row["launches"]
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts)) if counts else "-"


def _title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


if __name__ == "__main__":
    main()
