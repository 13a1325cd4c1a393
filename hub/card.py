"""Renders CARD.md, the page that the Hub shows for the kernel."""

import ast

from jinja2 import Environment, StrictUndefined

from hub.manifest import Manifest
from hub.source import literal_all

TEMPLATE = "CARD.md"


def render_card(manifest: Manifest) -> str:
    """Render the checkout's CARD.md.

    The template sees what the Hub's own builder offers it: repo_id, version, license (lower
    case), upstream, source, has_benchmark, and the names in the package's `__all__`, split into
    `functions` and, from its `layers` module, `layers`.
    """
    package = manifest.package
    names = literal_all((package / "__init__.py").read_text()) or []
    template = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    ).from_string((manifest.root / TEMPLATE).read_text())
    return template.render(
        repo_id=manifest.repo_id,
        version=manifest.version,
        license=manifest.license.lower(),
        upstream=manifest.upstream,
        source=manifest.source,
        functions=[name for name in names if name != "layers"],
        layers=_layers(manifest) if "layers" in names else [],
        has_benchmark=(manifest.root / "benchmarks" / "benchmark.py").is_file(),
    )


def _layers(manifest: Manifest) -> list[str]:
    for path in (manifest.package / "layers" / "__init__.py", manifest.package / "layers.py"):
        if path.is_file():
            body = ast.parse(path.read_text()).body
            return [node.name for node in body if isinstance(node, ast.ClassDef)]
    return []
