"""What the demo promises: one list of requirements, checked against the figures it collected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DIGITS_ACCURACY = 0.95
DIGITS_AGREEMENT_BF16 = 0.995
VIT_COSINE = {"fp32": 0.9999, "bf16": 0.999}
VIT_BLOCKS = 12
VIT_SECONDS = 30.0
DEMO_SECONDS = 240.0


@dataclass(frozen=True)
class Requirement:
    """`text` says what must hold, `value` reads the figure, `holds` judges it."""

    text: str
    value: Callable[[dict], object]
    holds: Callable[[object], bool]


def failures(figures: dict) -> list[str]:
    """One line for each requirement that `figures` does not meet. A figure that is missing, or not
    a number, is not met."""
    lines = []
    for requirement in REQUIREMENTS:
        try:
            found = requirement.value(figures)
        except (KeyError, TypeError):
            lines.append(f"{requirement.text}: there is no such figure")
            continue
        try:
            held = requirement.holds(found)
        except TypeError:
            held = False
        if not held:
            lines.append(f"{requirement.text}: found {found}")
    return lines


def _requirements() -> list[Requirement]:
    requirements = [
        Requirement(
            "the package ran from the folder that the Hub served",
            lambda f: f["load"]["from_hub"],
            lambda found: found is True,
        ),
        Requirement(
            "digits, eager: accuracy at least 95 %",
            lambda f: f["digits"]["eager fp32"]["accuracy"],
            lambda found: found >= DIGITS_ACCURACY,
        ),
        Requirement(
            "digits, package on the CPU path, fp32: the predictions of eager",
            lambda f: f["digits"]["package fp32"]["agreement"],
            lambda found: found == 1.0,
        ),
        Requirement(
            "digits, NKI emulated, fp32: the predictions of eager",
            lambda f: f["digits"]["nki fp32"]["agreement"],
            lambda found: found == 1.0,
        ),
        Requirement(
            "digits, NKI emulated, bf16: at least 99.5 % of the predictions of eager fp32",
            lambda f: f["digits"]["nki bf16"]["agreement"],
            lambda found: found >= DIGITS_AGREEMENT_BF16,
        ),
    ]
    for dtype in ("fp32", "bf16"):
        requirements += [
            Requirement(
                f"digits, NKI emulated, {dtype}: every layer ran as an NKI kernel",
                lambda f, dtype=dtype: f["digits"][f"nki {dtype}"]["only_nki"],
                lambda found: found is True,
            ),
            Requirement(
                f"ViT-B/16, NKI emulated, {dtype}: cosine at least {VIT_COSINE[dtype]}",
                lambda f, dtype=dtype: f["vit"][f"nki {dtype}"]["cos"],
                lambda found, dtype=dtype: found >= VIT_COSINE[dtype],
            ),
            Requirement(
                f"ViT-B/16, NKI emulated, {dtype}: {VIT_BLOCKS} launches of vit_block",
                lambda f, dtype=dtype: f["vit"][f"nki {dtype}"]["launches"]["vit_block"],
                lambda found: found == VIT_BLOCKS,
            ),
            Requirement(
                f"ViT-B/16, NKI emulated, {dtype}: one image in under {VIT_SECONDS:.0f} s",
                lambda f, dtype=dtype: f["vit"][f"nki {dtype}"]["seconds"],
                lambda found: found < VIT_SECONDS,
            ),
        ]
    requirements += [
        Requirement(
            "bench: every row of the selection ran as an NKI kernel under emulation",
            lambda f: f["bench"]["only_nki"],
            lambda found: found is True,
        ),
        Requirement(
            f"the whole demo in under {DEMO_SECONDS:.0f} s",
            lambda f: f["seconds"],
            lambda found: found < DEMO_SECONDS,
        ),
    ]
    return requirements


REQUIREMENTS = _requirements()
