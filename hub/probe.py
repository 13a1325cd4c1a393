"""Imports built variants in a fresh process and prints what that took, as JSON.

Run as a script, `python -I -B probe.py <variant folder>...`, so that nothing of this project is
imported but the variants themselves. For each variant it says

    missing    the names in its `__all__` that do not resolve
    foreign    the modules it imported that are neither its own, nor torch's, nor Python's

Modules that torch loads by itself the first time an operator is defined are not held against the
first variant: a throw-away operator is defined before it.
"""

import importlib.util
import json
import sys
from pathlib import Path


def probe(variant: Path) -> "dict[str, list[str]]":
    """Import the variant under the name in its metadata, the way the Hub's loader does."""
    name = json.loads((variant / "metadata.json").read_text())["id"]
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location(name, variant / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    own = {*sys.stdlib_module_names, "torch", name}
    foreign = {new for new in set(sys.modules) - before if new.split(".")[0] not in own}
    missing = [public for public in module.__all__ if not hasattr(module, public)]
    return {"missing": missing, "foreign": sorted(foreign)}


def warm_up() -> None:
    """Make torch load what it needs to define an operator."""
    import torch

    def identity(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    operator = torch.library.custom_op("hub_probe::identity", identity, mutates_args=())
    operator.register_fake(identity)


if __name__ == "__main__":
    warm_up()
    print(json.dumps([probe(Path(variant)) for variant in sys.argv[1:]]))
