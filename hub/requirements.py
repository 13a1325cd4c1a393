"""Which versions of other packages a checkout asks for, and which exact ones it is tested with."""

from __future__ import annotations

import re
from pathlib import Path

import tomlkit

# Those that a user of the kernel combines it with.
_SHOWN = ("torch", "kernels", "huggingface_hub", "transformers")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def read(root: Path) -> list[dict[str, str]] | None:
    """List {"name", "asked", "tested"} for the packages that users meet; None if root has none.

    `asked` is the range in pyproject.toml, `tested` the version that constraints.txt pins.
    """
    project = root / "pyproject.toml"
    constraints = root / "constraints.txt"
    if not (project.is_file() and constraints.is_file()):
        return None
    table = tomlkit.parse(project.read_text(encoding="utf-8")).unwrap()["project"]
    extras = table.get("optional-dependencies", {}).values()
    asked = _split([line for lines in (table["dependencies"], *extras) for line in lines])
    tested = _split(constraints.read_text(encoding="utf-8").splitlines())
    return [
        {"name": name, "asked": asked[name], "tested": tested[name].removeprefix("==")}
        for name in _SHOWN
    ]


def _split(lines: list[str]) -> dict[str, str]:
    """Map each requirement's name to the rest of it, such as ">=2,<3"."""
    requirements = {}
    for line in lines:
        match = _NAME.match(line)
        if match:
            requirements[match[0]] = line[match.end() :].strip()
    return requirements
