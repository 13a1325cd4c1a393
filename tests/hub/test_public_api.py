"""The public API: how it is read, which changes need a new version, and this project's own."""

import json

import pytest

from hub.__main__ import main
from hub.public_api import RECORD, ApiError, check_api, compare, read_api, record_api
from tests.hub.small_kernel import ROOT, write_checkout


def write_package(folder, files):
    """Write the files of a package, given by their paths in it without ".py"."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def test_this_projects_api_is_as_recorded():
    """Fails when the API changes without a new version; the message says what to do."""
    assert check_api(ROOT) == []


def test_functions_classes_constants_and_modules(tmp_path):
    files = {
        "__init__": "from . import layers\n"
        "from .functions import double as twice, LIMIT\n"
        "from .classes import Params, Refused, Box\n"
        "__all__ = ['LIMIT', 'Box', 'Params', 'Refused', 'layers', 'twice']\n",
        "functions": "LIMIT: int = 4\ndef double(x: 'T', *, times: int = 1) -> 'T': ...\n",
        "classes": "class Refused(ValueError): pass\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class Params:\n"
        "    size: int\n"
        "    eps: float = 1e-6\n"
        "    @property\n"
        "    def half(self) -> int: ...\n"
        "    @classmethod\n"
        "    def of(cls, layer): ...\n"
        "    def _private(self): ...\n"
        "class Box:\n"
        "    lid = True\n"
        "    def __init__(self, size): ...\n",
        "layers": "import torch\n"
        "class Norm(torch.nn.Module):\n"
        "    eps: float\n"
        "    def forward(self, x): ...\n"
        "def _helper(): ...\n",
    }
    assert read_api(write_package(tmp_path, files)) == {
        "Box": "class (self, size)",
        "Box.lid": "= True",
        "LIMIT": ": int = 4",
        "Params": "class (size: int, eps: float = 1e-06)",
        "Params.half": "@property (self) -> int",
        "Params.of": "@classmethod (cls, layer)",
        "Refused": "class(ValueError)",
        "layers": "module",
        "layers.Norm": "class(torch.nn.Module)",
        "layers.Norm.eps": ": float",
        "layers.Norm.forward": "(self, x)",
        "twice": "(x: 'T', *, times: int=1) -> 'T'",
    }


def test_names_are_followed_through_packages(tmp_path):
    files = {
        "__init__": "from . import layers\n"
        "from .layers import norm\n"
        "__all__ = ['layers', 'norm']\n",
        "layers/__init__": "from .norm import Norm\n__all__ = ['Norm']\n",
        "layers/norm": "from ..base import Norm\ndef f(): ...\n",
        "base": "class Norm: ...\n",
    }
    assert read_api(write_package(tmp_path, files)) == {
        "layers": "module",
        "layers.Norm": "class",
        "norm": "module",
        "norm.f": "()",
    }


@pytest.mark.parametrize(
    "init, message",
    [
        ("__all__ = ('a',)", "__all__ must be one assignment"),
        ("__all__ = ['a']", "the public name a is not defined at the top"),
        ("from .b import a\n__all__ = ['a']", "from .b import a names a module that is not there"),
        ("from . import a\n__all__ = ['a']", "from . import a names a module that is not there"),
        ("if True:\n    a = 1\n__all__ = ['a']", "the public name a is not defined at the top"),
        ("from . import empty\n__all__ = ['empty']", "is public and defines no names"),
    ],
)
def test_an_api_that_cannot_be_read(tmp_path, init, message):
    with pytest.raises(ApiError, match=message):
        read_api(write_package(tmp_path, {"__init__": init, "empty": ""}))


@pytest.mark.parametrize(
    "current, breaking, added",
    [
        ({"f": "(x)", "g": "()"}, [], []),
        ({"f": "(x)"}, ["g is gone"], []),
        ({"f": "(x, y)", "g": "()"}, ["f was (x) and is (x, y)"], []),
        ({"f": "(x)", "g": "()", "h": "()"}, [], ["h ()"]),
    ],
)
def test_comparison(current, breaking, added):
    difference = compare({"f": "(x)", "g": "()"}, current)
    assert (difference.breaking, difference.added) == (breaking, added)


@pytest.fixture
def checkout(tmp_path):
    root = write_checkout(tmp_path / "checkout")
    record_api(root)
    return root


def edit(root, name, old, new):
    path = root / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def change_function(root):
    edit(root, "kernels/neuron_vit/functions.py", "def double(x)", "def double(x, y)")


def raise_version(root):
    edit(root, "build.toml", "version = 1", "version = 2")


def test_a_breaking_change_needs_a_new_version(checkout):
    assert check_api(checkout) == []
    change_function(checkout)
    remedy = (
        "this breaks callers of version 1: set version = 2 in build.toml, then run "
        "`neuron-vit-hub public-api --record`"
    )
    assert check_api(checkout) == ["double was (x) and is (x, y)", remedy]
    with pytest.raises(ApiError, match="set version = 2 in build.toml"):
        record_api(checkout)

    raise_version(checkout)
    (message,) = check_api(checkout)
    assert "is the API of version 1, build.toml says 2" in message
    record_api(checkout)
    assert check_api(checkout) == []
    assert json.loads((checkout / RECORD).read_text())["version"] == 2

    edit(checkout, "build.toml", "version = 2", "version = 1")
    with pytest.raises(ApiError, match="versions only go up"):
        record_api(checkout)


def test_a_new_name_needs_a_record_and_no_new_version(checkout):
    edit(checkout, "kernels/neuron_vit/__init__.py", '["double"', '["double", "triple"')
    edit(checkout, "kernels/neuron_vit/__init__.py", "import double", "import double, triple")
    functions = checkout / "kernels" / "neuron_vit" / "functions.py"
    functions.write_text(functions.read_text() + "\n\ndef triple(x):\n    return 3 * x\n")
    assert check_api(checkout) == [
        "triple (x)",
        "these names are new: run `neuron-vit-hub public-api --record`",
    ]
    record_api(checkout)
    assert check_api(checkout) == []


def test_command_line(checkout, capsys):
    command = ["--root", str(checkout), "public-api"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["double"] == "(x)"
    assert main([*command, "--check"]) == 0
    assert capsys.readouterr().out == "as recorded\n"

    change_function(checkout)
    assert main([*command, "--check"]) == 1
    assert "double was (x) and is (x, y)" in capsys.readouterr().out
    assert main([*command, "--record"]) == 1
    assert "set version = 2" in capsys.readouterr().err
    raise_version(checkout)
    assert main([*command, "--record"]) == 0
    assert "recorded in" in capsys.readouterr().out

    (checkout / RECORD).unlink()
    assert main([*command, "--check"]) == 1
    assert "there is no" in capsys.readouterr().out
