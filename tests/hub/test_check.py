"""Checking: a good build passes, and each planted fault is found, at its place."""

import json

import pytest
from kernels._rust import Digest, DigestAlgorithm

from hub.check import check, check_source


def seal(variant):
    """Write the digests anew, so that only the fault under test is left to find."""
    path = variant / "metadata.json"
    metadata = json.loads(path.read_text())
    metadata["digest"]["files"] = Digest.hash_variant(DigestAlgorithm.SHA256, variant).files
    path.write_text(json.dumps(metadata))


def change(build, name, function):
    """Rewrite a file of both variants and seal them."""
    for variant in build.glob("torch-*"):
        path = variant / name
        path.write_text(function(path.read_text()))
        seal(variant)


def set_metadata(variant, **values):
    path = variant / "metadata.json"
    metadata = json.loads(path.read_text())
    for key, value in values.items():
        metadata[key.replace("_", "-")] = value
    path.write_text(json.dumps(metadata))


def messages(build):
    return [str(finding) for finding in check(build)]


def test_good_build_passes_and_is_left_as_it_was(breakable):
    assert messages(breakable) == []
    assert not list(breakable.rglob("*.pyc"))


def test_empty_folder(tmp_path):
    assert "no variant" in messages(tmp_path)[0]


def test_tampered_file(breakable):
    path = breakable / "torch-cpu" / "functions.py"
    path.write_text(path.read_text() + "# changed\n")
    found = messages(breakable)
    assert any("torch-cpu" in message and "functions.py" in message for message in found)
    assert any("torch-neuron/functions.py: is not the same" in message for message in found)


def test_added_and_removed_file(breakable):
    (breakable / "torch-cpu" / "new.py").write_text("")
    (breakable / "torch-cpu" / "LICENSE").unlink()
    found = messages(breakable)
    assert any(message.startswith("torch-cpu:") and "new.py" in message for message in found)
    assert any(message.startswith("torch-cpu:") and "LICENSE" in message for message in found)


def test_bytecode(breakable):
    folder = breakable / "torch-cpu" / "__pycache__"
    folder.mkdir()
    (folder / "layers.cpython-311.pyc").write_bytes(b"")
    assert messages(breakable)[0].startswith(
        "torch-cpu/__pycache__/layers.cpython-311.pyc: is bytecode"
    )


def test_link(breakable):
    path = breakable / "torch-cpu" / "LICENSE"
    target = path.rename(breakable / "LICENSE")
    path.symlink_to(target)
    assert "torch-cpu/LICENSE: is a link; a build holds regular files only" in messages(breakable)


def test_shipped_test(breakable):
    for variant in breakable.glob("torch-*"):
        (variant / "test_functions.py").write_text("")
        seal(variant)
    assert "torch-cpu/test_functions.py: is a test; tests are not shipped" in messages(breakable)


def test_broken_metadata(breakable):
    (breakable / "torch-cpu" / "metadata.json").write_text("{}")
    assert any(message.startswith("torch-cpu/metadata.json:") for message in messages(breakable))


def test_missing_metadata(breakable):
    (breakable / "torch-cpu" / "metadata.json").unlink()
    assert any(message.startswith("torch-cpu/metadata.json:") for message in messages(breakable))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"backend": {"type": "neuron"}}, "is for backend 'neuron'"),
        ({"python_depends": ["nki"]}, "python-depends is ['nki'], not []"),
        ({"id": "_neuron_vit_neuron_0123456789"}, "not _neuron_vit_cpu_<unique id>"),
        ({"id": "_neuron_vit_cpu_other"}, "does not name the operator namespace"),
        ({"provenance": None}, "has no provenance"),
        ({"digest": None}, "has no digest"),
    ],
)
def test_wrong_metadata(breakable, values, message):
    set_metadata(breakable / "torch-cpu", **values)
    assert any(message in found for found in messages(breakable))


def test_variants_of_different_releases(breakable):
    set_metadata(breakable / "torch-neuron", version=2, license="MIT")
    other = {"kernel-builder": {"version": "1"}, "kernel": {"commit": "0" * 40, "dirty": False}}
    set_metadata(breakable / "torch-neuron", provenance=other)
    version, licence, commit = messages(breakable)
    place = "torch-neuron/metadata.json"
    assert version == f"{place}: version is 2, in torch-cpu it is 1"
    assert licence == f"{place}: license is 'MIT', in torch-cpu it is 'Apache-2.0'"
    assert commit.startswith(f"{place}: kernel in provenance is {{'commit': '{'0' * 40}'")


def test_neuron_variant_must_ask_for_nki(breakable):
    set_metadata(breakable / "torch-neuron", python_depends=[])
    assert any("python-depends is [], not ['nki']" in found for found in messages(breakable))


def test_package_that_does_not_import(breakable):
    change(breakable, "functions.py", lambda text: text + "raise RuntimeError('planted')\n")
    found = messages(breakable)
    assert len(found) == 1 and "RuntimeError: planted" in found[0]


def test_faults_that_only_an_import_shows(breakable):
    """A public name that does not exist, a layer that inherits state, an import by made-up name."""
    base = "import torch\n\n\nclass _Base(torch.nn.Module):\n    size = 1\n"
    for variant in breakable.glob("torch-*"):
        (variant / "base.py").write_text(base)

    def inherit(text):
        return "from .base import _Base\n" + text.replace("torch.nn.Module", "_Base")

    hidden = "import importlib\nimportlib.import_module('tom' + 'lkit')\n"
    change(breakable, "__init__.py", lambda text: text.replace('["double"', '["double", "triple"'))
    change(breakable, "layers.py", lambda text: inherit(text) + hidden)
    missing, layer, foreign, *other = messages(breakable)
    assert missing == "torch-cpu/__init__.py: __all__ names 'triple', which does not exist"
    assert layer == "torch-cpu: layers: Double has size"
    assert foreign.startswith("torch-cpu: importing it also imports tomlkit")
    assert all(message.startswith("torch-neuron") for message in other)


def test_import_of_the_kernels_when_the_package_is_imported(breakable):
    # Would be found on any machine without nki, and on one with it as a foreign module.
    line = "from .nki_src import double\n"
    change(breakable, "layers.py", lambda text: text + line)
    assert any(
        "No module named 'nki'" in message or "also imports nki" in message
        for message in messages(breakable)
    )


@pytest.mark.parametrize(
    "name, source, line, message",
    [
        ("a.py", "match x:\n    case 1: pass\n", 2, "does not parse as Python 3.9"),
        ("a.py", "\nimport neuron_vit\n", 2, "import of neuron_vit"),
        ("a.py", "from neuron_vit.layers import LayerNorm\n", 1, "import of neuron_vit.layers"),
        ("a.py", "import numpy\n", 1, "import of numpy"),
        ("a.py", "import nki\n", 1, "import of nki;"),
        ("a.py", "def f():\n    import numpy\n", 2, "import of numpy"),
        ("a.py", "from .. import other\n", 1, "import of ..other reaches outside"),
        ("nki_src/a.py", "from ..errors import E\n", 1, "import of ..errors reaches outside"),
        ("nki_src/a.py", "import math\n", 1, "import of math; allowed: nki"),
        ("reference/a.py", "import numpy\n", 1, "import of numpy; allowed: torch"),
        ("reference/a.py", "from .. import nki_src\n", 1, "import of ..nki_src"),
        ("__init__.py", "__all__ = ('a',)\n", 1, "__all__ must be"),
        ("__init__.py", "a = 1\n", 1, "__all__ must be"),
        ("a.py", "torch.library.custom_op('foo::bar', f)\n", 1, "custom_op('foo::bar')"),
        ("a.py", "torch.library.Library('foo', 'DEF')\n", 1, "Library('foo')"),
        ("a.py", "from torch.library import custom_op\ncustom_op(name, f)\n", 2, "custom_op(name)"),
        ("a.py", "@torch.library.register_fake('foo::bar')\ndef f(): pass\n", 1, "register_fake"),
        ("a.py", "torch.ops.foo.bar(x)\n", 1, "torch.ops.foo is a fixed namespace"),
        (
            "layers.py",
            "class L(nn.Module):\n    def __init__(self): pass\n    def forward(self, x): pass\n",
            2,
            "layer L defines __init__",
        ),
        ("layers/__init__.py", "class L(nn.Module):\n    size = 1\n", 2, "layer L defines size"),
    ],
)
def test_fault_in_a_file(name, source, line, message):
    found = check_source(source, name)
    assert len(found) == 1
    assert found[0][0] == line
    assert message in found[0][1]


@pytest.mark.parametrize(
    "name, source",
    [
        ("a.py", "import os, torch.nn\nfrom . import b\nfrom .nki_src.c import d\n"),
        ("a.py", "def f():\n    import nki, torch_neuronx, transformers\n"),
        ("nki_src/a.py", "import nki\nimport nki.isa as nisa\nfrom .b import c\n"),
        ("reference/a.py", "import math, torch\nfrom typing import Optional\nfrom .b import c\n"),
        ("a.py", "torch.library.custom_op(add_op_namespace_prefix('bar'), f)\n"),
        ("a.py", "op.register_fake(f)\ntorch.ops.aten.add(x, x)\n"),
        ("a.py", "registry.register_kernel('name')\n"),
        ("layers.py", "class L(nn.Module):\n    weight: Tensor\n    has_backward = False\n"),
        ("layers.py", "class LLayout(nn.Module):\n    def __init__(self, config): pass\n"),
    ],
)
def test_nothing_to_find_in_a_file(name, source):
    assert check_source(source, name) == []
