"""Finds the kernels of `nki_src`: the source says which functions are kernels and where."""

import ast
import importlib
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "nki_src"


def signatures():
    """The functions decorated with `@nki.jit`, as {name: (module, [parameter names])}."""
    found = {}
    for path in sorted(SOURCES.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                if "nki.jit" in [ast.unparse(decorator) for decorator in node.decorator_list]:
                    found[node.name] = (path.stem, [argument.arg for argument in node.args.args])
    return found


def load(name, package="neuron_vit.nki_src"):
    """The kernel `name` from a package with the modules of nki_src."""
    module, _ = signatures()[name]
    return getattr(importlib.import_module(f"{package}.{module}"), name)
