"""The public names of NKI 0.6: parameters in the documented order with the documented defaults."""

import enum
import inspect
import json
from pathlib import Path

import pytest

import nki_emulator
from nki_emulator import NkiNotImplemented

from .support import nisa, nki, nl, pair, tile

API = json.loads(Path(nki_emulator.__file__).with_name("api_0_6.json").read_text())["modules"]
MODULES = {
    "nki": nki, "nki.isa": nisa, "nki.language": nl, "nki.collectives": nki.collectives,
}  # fmt: skip
FUNCTIONS = [
    (module, name) for module, content in API.items() for name in content["functions"]
]
# The reference writes its default of range_select as an ellipsis.
UNSTATED = "..."


def default_of(text, module):
    if text == "[0]":
        return (0,)
    return eval(text, {"__builtins__": {}}, vars(MODULES[module]) | vars(nl))


@pytest.mark.parametrize("module, name", FUNCTIONS)
def test_signature(module, name):
    documented = API[module]["functions"][name]
    found = list(inspect.signature(getattr(MODULES[module], name)).parameters.values())
    assert [p.name for p in found] == [p["name"].lstrip("*") for p in documented]
    for parameter, reference in zip(found, documented):
        if reference["name"].startswith("**"):
            assert parameter.kind is inspect.Parameter.VAR_KEYWORD
        elif reference.get("default") == UNSTATED:
            assert parameter.default is not inspect.Parameter.empty
        elif "default" in reference:
            assert parameter.default == default_of(reference["default"], module)
        else:
            assert parameter.default is inspect.Parameter.empty


@pytest.mark.parametrize("module", sorted(API))
def test_constants_exist(module):
    for name in API[module]["constants"]:
        assert hasattr(MODULES[module], name), name


@pytest.mark.parametrize("module", sorted(API))
def test_classes(module):
    for name, content in API[module]["classes"].items():
        cls = getattr(MODULES[module], name)
        if "Enum" in content["bases"]:
            assert issubclass(cls, enum.Enum)
            values = {member.name: repr(member.value) for member in cls}
            assert values == content["members"]
            continue
        for member in content["members"]:
            assert hasattr(cls, member), f"{name}.{member}"
        for method, parameters in content["methods"].items():
            found = inspect.getattr_static(cls, method, None)
            assert found is not None, f"{name}.{method}"
            if method == "__init__" or isinstance(found, property):
                continue
            names = [p["name"].lstrip("*") for p in parameters]
            assert list(inspect.signature(found).parameters) == names, f"{name}.{method}"


def test_every_public_function_has_a_docstring():
    for module, name in FUNCTIONS:
        assert inspect.getdoc(getattr(MODULES[module], name)), f"{module}.{name}"


def test_what_is_missing_says_so():
    def kernel(missing):
        t = tile((8, 8))
        if missing:
            nki.collectives.all_reduce([t], [t], None, nl.add)  # rule

    error = pair("not-implemented", kernel, False, True)
    assert isinstance(error, NkiNotImplemented) and "nki.collectives.all_reduce" in str(error)
