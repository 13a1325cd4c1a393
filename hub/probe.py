"""Imports built variants in a fresh process and prints what that took, as JSON.

Run as a script, `python -I -B probe.py <variant folder>...`, so that nothing of this project is
imported but the variants themselves. For each variant it says

    missing    the names in its `__all__` that do not resolve
    foreign    the modules it imported that are neither its own, nor torch's, nor Python's
    layers     what its layers have beyond what the kernels library lends to another module

Modules that torch loads by itself the first time an operator is defined are not held against the
first variant: a throw-away operator is defined before it.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType


def probe(variant: Path) -> "dict[str, list[str]]":
    """Import the variant under the name in its metadata, the way the Hub's loader does."""
    name = json.loads((variant / "metadata.json").read_text(encoding="utf-8"))["id"]
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location(name, variant / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    own = {*sys.stdlib_module_names, "torch", name}
    foreign = {new for new in set(sys.modules) - before if new.split(".")[0] not in own}
    missing = [public for public in module.__all__ if not hasattr(module, public)]
    layers = getattr(module, "layers", None)
    return {
        "missing": missing,
        "foreign": sorted(foreign),
        "layers": state_of_layers(layers, name) if layers else [],
    }


def state_of_layers(layers: ModuleType, package: str) -> "list[str]":
    """Say what each layer of `package` defines, or inherits, beside `forward` and its flags.

    The kernels library refuses such a layer when a model asks for it. A class named "...Layout" is
    built by transformers, with a constructor, and is none of the layers meant here; nor is one
    with a leading underscore, which no model can ask for.
    """
    import torch

    allowed = {*dir(torch.nn.Module), "can_torch_compile", "has_backward"}
    found = []
    for name, layer in vars(layers).items():
        if not (isinstance(layer, type) and issubclass(layer, torch.nn.Module)):
            continue
        if name.startswith("_") or name.endswith("Layout"):
            continue
        if layer.__module__.split(".")[0] != package:
            continue
        if layer.__init__ is not torch.nn.Module.__init__:
            found.append(f"{name} has a constructor")
        found += [f"{name} has {member}" for member in sorted(set(dir(layer)) - allowed)]
    return found


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
