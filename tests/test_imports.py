"""Imports go one way: who may know whom, and what ships to the Hub needs nothing it cannot have.

    nki_src, reference     know nobody
    kernels/neuron_vit     knows both, as its own subpackages
    nki_emulator           knows none of them
    bench, hub, tests      may use all
"""

import ast
from pathlib import Path

import pytest

from hub.arrows import INDEPENDENT, STANDARD_LIBRARY, Rule, wrong_imports, wrong_imports_in_package
from hub.check import OLDEST_PYTHON
from hub.source import read_imports

ROOT = Path(__file__).parents[1]
SHIPPED = ("kernels/neuron_vit", "nki_src", "reference")
# Reached as neuron_vit.nki_src and neuron_vit.reference only, as in a wheel and on the Hub.
NOT_TOP_LEVEL = ("nki_src", "reference")
EMULATOR = Rule(
    "the standard library, numpy, ml_dtypes, threadpoolctl, torch, nki and relative imports",
    STANDARD_LIBRARY | {"numpy", "ml_dtypes", "threadpoolctl", "torch", "nki", "nki_emulator"},
)


def files(folder):
    """Yield (path in the repository, path in `folder`, text), links to other parts left out."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        inside = path.relative_to(ROOT / folder)
        if (ROOT / folder / inside.parts[0]).is_symlink():
            continue
        yield f"{folder}/{inside.as_posix()}", inside.as_posix(), path.read_text()


def wrong_in_repository():
    wrong = []
    for place, inside, source in files("kernels/neuron_vit"):
        wrong += [(place, *item) for item in wrong_imports_in_package(source, inside)]
    for folder, rule in INDEPENDENT.items():
        for place, inside, source in files(folder):
            wrong += [(place, *item) for item in wrong_imports(source, rule, inside.count("/"))]
    for place, inside, source in files("nki_emulator"):
        wrong += [(place, *item) for item in wrong_imports(source, EMULATOR, inside.count("/"))]
    return wrong


def bare_imports(source):
    """Return the lines on which `source` imports a module that must not be at the top level."""
    imports = read_imports(source)
    return [
        item.line
        for item in imports
        if item.level == 0 and item.module.split(".")[0] in NOT_TOP_LEVEL
    ]


def test_every_arrow_is_allowed():
    assert wrong_in_repository() == []


@pytest.mark.parametrize("folder", ["bench", "hub", "tests", "nki_emulator", *SHIPPED])
def test_kernels_and_references_are_reached_through_the_package(folder):
    assert [(place, line) for place, _, text in files(folder) for line in bare_imports(text)] == []


def test_the_hub_tools_work_without_the_tests():
    for place, _, source in files("hub"):
        assert not any(item.module.split(".")[0] == "tests" for item in read_imports(source)), place


@pytest.mark.parametrize("folder", SHIPPED)
def test_what_ships_parses_as_the_oldest_python(folder):
    for place, _, source in files(folder):
        ast.parse(source, place, feature_version=OLDEST_PYTHON)


def test_the_rules_see_every_part():
    # Guards the tests above against a folder that moved: no file, no violation.
    for folder in (*SHIPPED, "nki_emulator", "hub", "bench"):
        assert any(True for _ in files(folder)), folder


def test_hugging_faces_library_is_not_hidden():
    import kernels

    assert not (ROOT / "kernels" / "__init__.py").exists()
    assert hasattr(kernels, "get_kernel")


@pytest.mark.parametrize(
    "source, depth, wrong",
    [
        ("import nki_src", 0, True),
        ("from reference import layer_norm", 0, True),
        ("import neuron_vit", 0, True),
        ("def f():\n    from neuron_vit import layers", 0, True),
        ("from bench import models", 0, True),
        ("from tests.parity import rule", 0, True),
        ("from ..reference import layer_norm", 0, True),
        ("from .. import errors", 1, False),
        ("import numpy, ml_dtypes, torch, nki.language", 0, False),
        ("from nki_emulator.errors import NkiError", 2, False),
    ],
)
def test_a_wrong_arrow_from_the_emulator_is_seen(source, depth, wrong):
    assert bool(wrong_imports(source, EMULATOR, depth)) == wrong


@pytest.mark.parametrize(
    "path, source, wrong",
    [
        ("attention.py", "import neuron_vit.reference", True),
        ("attention.py", "from nki_emulator import install", True),
        ("attention.py", "def f():\n    import nki_emulator", True),
        ("attention.py", "import nki", True),
        ("attention.py", "try:\n    import nki\nexcept ImportError:\n    nki = None", True),
        ("attention.py", "def f():\n    import nki", False),
        ("attention.py", "from .reference import attention", False),
        ("attention.py", "from ..bench import models", True),
        ("nki_src/attention.py", "from .tiles import load", False),
        ("nki_src/attention.py", "import torch", True),
        ("nki_src/attention.py", "from .. import errors", True),
        ("reference/attention.py", "import nki", True),
        ("reference/attention.py", "from ..nki_src import limits", True),
    ],
)
def test_a_wrong_arrow_in_the_package_is_seen(path, source, wrong):
    assert bool(wrong_imports_in_package(source, path)) == wrong


@pytest.mark.parametrize(
    "source, lines",
    [
        ("from neuron_vit.nki_src import limits", []),
        ("import reference", [1]),
        ("x = 1\nfrom nki_src.limits import attention", [2]),
        ("importlib.import_module('reference.norm')", [1]),
    ],
)
def test_a_bare_import_is_seen(source, lines):
    assert bare_imports(source) == lines
