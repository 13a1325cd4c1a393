"""Which code is kernel code, and what a name means: small programs with one `is` somewhere.

`is` is refused in kernel code and allowed in host code, so each case says on which lines the
checker found it.
"""

import textwrap

import pytest

from nki_emulator.checker import check_paths

HELPER = """
def helper(x):
    return x is None
"""


def found(folder, source, **others):
    """(file, line) of every finding; all of them must be about `is`."""
    main = folder / "main.py"
    main.write_text(textwrap.dedent(source))
    for name, text in others.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    findings = check_paths([main])
    assert {finding.rule for finding in findings} <= {"E02-is"}
    return [(finding.path.rpartition("/")[2], finding.line) for finding in findings]


HEADER = """\
import nki
import nki.language as nl
def helper(x):
    return x is None
"""

K = "@nki.jit\ndef kernel(x, y):\n    "

REACHED = {
    "called": K + "return helper(x)",
    "passed": K + "return y(helper, x)",
    "stored in a list": K + "steps = [helper]\n    return x",
    "through another": "def middle(x):\n    return helper(x)\n" + K + "return middle(x)",
    "in a table": "TABLE = {'a': (helper, 1)}\n" + K + "return TABLE[y][0](x)",
    "as a default": "def middle(x, f=helper):\n    return f(x)\n" + K + "return middle(x)",
    "from a nested function": K + "def f():\n        return helper(x)\n    return f()",
    "in an object of a kernel class": "class Step(nl.NKIObject):\n    def __init__(self, f):\n"
    "        self.f = f\nSTEP = Step(helper)\n" + K + "return STEP.f(x)",
    "jit at the call": "def launch(x):\n    return nki.jit(helper)(x)",
    "jit of a name": "kernel = nki.jit(helper)",
    "simulate": "def launch(x):\n    return nki.simulate(helper)(x)",
    "kernel in a class": "class Box:\n    @staticmethod\n    @nki.jit\n    def kernel(x):\n"
    "        return helper(x)",
    "kernel in a branch": "if True:\n    @nki.jit\n    def kernel(x):\n        return helper(x)",
    "under an alias": "other = helper\n" + K + "return other(x)",
}

NOT_REACHED = {
    "host only": "def launch(x):\n    return helper(kernel(x))\n" + K + "return x",
    "shadowed by a parameter": "@nki.jit\ndef kernel(x, helper):\n    return helper(x)",
    "shadowed by an assignment": K + "helper = nl.relu\n    y(helper, x)",
    "computes a constant": "READY = helper(3)\n" + K + "return x if READY else x",
    "in an annotation": "@nki.jit\ndef kernel(x: helper):\n    return x",
    "no kernel": "def kernel(x):\n    return helper(x)",
    "another jit": "from numba import jit\n@jit\ndef kernel(x):\n    return helper(x)",
}


@pytest.mark.parametrize("source", REACHED.values(), ids=REACHED)
def test_reached(source, tmp_path):
    assert found(tmp_path, HEADER + source) == [("main.py", 4)]


@pytest.mark.parametrize("source", NOT_REACHED.values(), ids=NOT_REACHED)
def test_not_reached(source, tmp_path):
    assert found(tmp_path, HEADER + source) == []


@pytest.mark.parametrize(
    "decorator",
    [
        "import nki\n@nki.jit",
        "import nki as n\n@n.jit",
        "import nki as n\n@n.jit(debug=True)",
        "from nki import jit\n@jit",
        "from nki import jit as compiled\n@compiled()",
        "try:\n    import nki\nexcept ImportError:\n    import stand_in as nki\n@nki.jit",
    ],
)
def test_a_kernel_however_nki_is_imported(decorator, tmp_path):
    source = f"{decorator}\ndef kernel(x):\n    return x is None"
    assert found(tmp_path, source) == [("main.py", source.count("\n") + 1)]


KERNEL = "import nki\n{}\n@nki.jit\ndef kernel(x):\n    return {}(x)\n"


@pytest.mark.parametrize(
    "statement, call",
    [
        ("from .tools import helper", "helper"),
        ("from .tools import helper as other", "other"),
        ("from . import tools", "tools.helper"),
        ("from .tools import *", "helper"),
        ("from .again import helper", "helper"),
        ("from .again import tools", "tools.helper"),
        ("from tools import helper", "helper"),
        ("import tools", "tools.helper"),
    ],
)
def test_across_files(statement, call, tmp_path):
    again = "from . import tools\nfrom .tools import helper\n"
    places = found(tmp_path, KERNEL.format(statement, call), tools=HELPER, again=again)
    assert places == [("tools.py", 3)]


def test_absolute_imports_inside_a_package(tmp_path):
    package = tmp_path / "kernels_of_mine"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("")
    (package / "tools.py").write_text(HELPER)
    main = package / "inner" / "main.py"
    main.write_text(KERNEL.format("from kernels_of_mine.tools import helper", "helper"))
    assert [finding.line for finding in check_paths([main])] == [3]


def test_files_that_import_each_other(tmp_path):
    source = KERNEL.format("from .tools import *", "helper")
    places = found(
        tmp_path, source, tools="from .main import *\nfrom .main import kernel\n" + HELPER
    )
    assert places == [("tools.py", 5)]


CLASS = """\
import nki
import nki.language as nl
class Thing(nl.NKIObject):
    def used(self, x):
        return x is None
    def unused(self, x):
        return x is None
    def __init__(self):
        self.ready = self is None
"""


@pytest.mark.parametrize(
    "body, lines",
    [
        ("return Thing().used(x)", [5, 9]),
        ("return Thing()", [9]),
        ("return x", []),
        ("thing = Thing()\n    return thing.unused", [7, 9]),
    ],
)
def test_methods_are_reached_by_name(body, lines, tmp_path):
    source = f"{CLASS}@nki.jit\ndef kernel(x):\n    {body}\n"
    assert found(tmp_path, source) == [("main.py", line) for line in lines]
