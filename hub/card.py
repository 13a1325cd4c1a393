"""Renders CARD.md, the page that the Hub shows for the kernel.

The template states nothing that the checkout knows: limits come from the code that applies them,
what was tested from the tests, version pairs from the requirements.
"""

from __future__ import annotations

import ast
from typing import Any

from jinja2 import Environment, StrictUndefined

from hub import requirements
from hub.limits import read_limits
from hub.manifest import Manifest
from hub.source import literal_all, literal_constants

TEMPLATE = "CARD.md"


def render_card(manifest: Manifest) -> str:
    """Render the checkout's CARD.md.

    The template sees what the Hub's own builder offers it (see `_names_of_the_hub`) and
    `_facts`. What a checkout does not have is None there.
    """
    template = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    ).from_string((manifest.root / TEMPLATE).read_text(encoding="utf-8"))
    return template.render(**_names_of_the_hub(manifest), **_facts(manifest))


def _names_of_the_hub(manifest: Manifest) -> dict[str, Any]:
    """Return repo_id, version, license (lower case), upstream, source, has_benchmark, and the
    names in the package's `__all__`, split into `functions` and, from its `layers` module,
    `layers`."""
    names = literal_all((manifest.package / "__init__.py").read_text(encoding="utf-8")) or []
    return {
        "repo_id": manifest.repo_id,
        "version": manifest.version,
        "license": manifest.license.lower(),
        "upstream": manifest.upstream,
        "source": manifest.source,
        "functions": [name for name in names if name != "layers"],
        "layers": _layers(manifest) if "layers" in names else [],
        "has_benchmark": (manifest.root / "benchmarks" / "benchmark.py").is_file(),
    }


def _facts(manifest: Manifest) -> dict[str, Any]:
    """Return what this project's checkout knows beyond that.

    limits: see `hub.limits`. fallbacks: why a call has no kernel, from the package. tested: the
    shapes of the parity grid. rule: the constants of the parity rule. lnc: physical cores a launch
    may span. requirements: see `hub.requirements`.
    """
    parity = manifest.root / "tests" / "parity"
    environment = literal_constants(manifest.package / "_environment.py")
    return {
        "limits": read_limits(manifest.package),
        "fallbacks": _fallbacks(manifest),
        "tested": literal_constants(parity / "cases.py"),
        "rule": literal_constants(parity / "rule.py"),
        "lnc": list(environment["_LOGICAL_CORES"].values()) if environment else None,
        "requirements": requirements.read(manifest.root),
    }


def _fallbacks(manifest: Manifest) -> list[str]:
    """List the reasons for which a call runs as PyTorch operations.

    In the package each is a constant beside the function: a pair of sentences, what was asked for
    and what to do instead.
    """
    reasons = []
    for path in sorted(manifest.package.glob("*.py")):
        for value in (literal_constants(path) or {}).values():
            if _is_reason(value):
                reasons.append(f"{value[0]}: {value[1]}")
    return reasons


def _is_reason(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and all(isinstance(text, str) and " " in text for text in value)


def _layers(manifest: Manifest) -> list[str]:
    for path in (manifest.package / "layers" / "__init__.py", manifest.package / "layers.py"):
        if path.is_file():
            body = ast.parse(path.read_text(encoding="utf-8")).body
            names = [node.name for node in body if isinstance(node, ast.ClassDef)]
            return [name for name in names if not name.startswith("_")]
    return []
