"""`import nki`: installed, removed, and left alone where the real one is."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import nki_emulator.__main__ as command_line
from nki_emulator import startup

ROOT = Path(__file__).parents[2]


def run(code_or_arguments, cwd=None, extra_path=(), **environment):
    """A fresh interpreter with the repository on its path; returns (status, stdout, stderr)."""
    if isinstance(code_or_arguments, str):
        arguments = ["-c", textwrap.dedent(code_or_arguments)]
    else:
        arguments = [str(argument) for argument in code_or_arguments]
    path = ":".join(map(str, (*extra_path, ROOT)))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd or ROOT / "tests",
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout, done.stderr


def succeeds(*arguments, **options):
    status, out, err = run(*arguments, **options)
    assert status == 0, err
    return out


def test_install_and_uninstall():
    succeeds(
        """
        import sys
        import nki_emulator
        assert "nki" not in sys.modules
        nki = nki_emulator.install()
        import nki.language as nl, nki.isa as nisa
        from nki.isa.constants import engine, dge_mode
        from nki import jit
        import nki.collectives
        assert nki_emulator.install() is nki is sys.modules["nki"]
        assert sys.modules["nki.language"] is nl is nki.language and engine is nisa.engine
        nki_emulator.uninstall()
        assert not [name for name in sys.modules if name == "nki" or name.startswith("nki.")]
        try:
            import nki
        except ModuleNotFoundError:
            pass
        else:
            raise SystemExit("nki is still importable")
        nki_emulator.uninstall()
        assert nki_emulator.install() is sys.modules["nki"]
        """
    )


def make_module(folder, text):
    (folder / "nki").mkdir()
    (folder / "nki" / "__init__.py").write_text(text)


def test_the_real_nki_takes_precedence(tmp_path):
    make_module(tmp_path, "def jit(function):\n    return function\n")
    succeeds(
        """
        import nki_emulator
        nki = nki_emulator.install()
        assert not nki.__name__.startswith("nki_emulator") and nki.jit(3) == 3
        nki_emulator.uninstall()
        import sys
        assert sys.modules["nki"] is nki
        """,
        extra_path=[tmp_path],
    )


def test_a_placeholder_without_jit_counts_as_absent(tmp_path):
    make_module(tmp_path, "__version__ = '0.0'\n")
    succeeds(
        """
        import nki
        import nki_emulator
        emulated = nki_emulator.install()
        import nki.language
        assert emulated.__name__ == "nki_emulator.nki" and nki.language is emulated.language
        nki_emulator.uninstall()
        import sys
        import nki as placeholder
        assert placeholder.__version__ == "0.0"
        """,
        extra_path=[tmp_path],
    )


def test_a_real_nki_that_fails_to_import_is_not_hidden(tmp_path):
    make_module(tmp_path, "import neuron_library_that_is_missing\n")
    status, _, err = run("import nki_emulator; nki_emulator.install()", extra_path=[tmp_path])
    assert status != 0 and "neuron_library_that_is_missing" in err


def test_torch_is_not_imported_for_a_numpy_user():
    succeeds(
        """
        import sys
        import nki_emulator
        nki_emulator.install()
        import nki, nki.language as nl, nki.isa as nisa, numpy as np

        @nki.jit
        def kernel(x):
            t = nl.ndarray(x.shape, dtype=x.dtype)
            nisa.dma_copy(dst=t, src=x)
            nisa.activation(dst=t, op=nl.gelu, data=t)
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=t)
            return out

        kernel(np.zeros((2, 2), np.float32))
        assert "torch" not in sys.modules and "scipy" not in sys.modules
        """
    )


SCRIPT = """
import sys
import helper
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

@nki.jit
def kernel(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=helper.FACTOR)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out

if __name__ == "__main__":
    print(sys.argv[1:], kernel(np.ones((1, 3), np.float32)), nisa.get_nc_version())
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "helper.py").write_text("FACTOR = 3.0\n")
    path = tmp_path / "user_script.py"
    path.write_text(SCRIPT)
    return path


def test_running_a_script(script):
    status, out, err = run(["-m", "nki_emulator", script, "7", "--flag"])
    assert status == 7, err
    assert out == "['7', '--flag'] [[3. 3. 3.]] nc_version.gen3\n"


def test_running_a_script_on_another_target(script):
    out = succeeds(["-m", "nki_emulator", script, "0"], NEURON_PLATFORM_TARGET_OVERRIDE="trn3")
    assert "nc_version.gen4" in out


TORCH_SCRIPT = """
import sys
import nki
import nki.isa as nisa
import nki.language as nl
import torch

@nki.jit
def kernel(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out

for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
    ones = torch.ones(1, 2).to(dtype)
    print(kernel(ones), nki.simulate(kernel)(ones)[0])
"""
TORCH_OUTPUT = (
    "tensor([[2., 2.]]) tensor([2., 2.])\n"
    "tensor([[2., 2.]], dtype=torch.bfloat16) tensor([2., 2.], dtype=torch.bfloat16)\n"
    "tensor([[2., 2.]], dtype=torch.float8_e4m3fn) tensor([2., 2.], dtype=torch.float8_e4m3fn)\n"
)


def test_running_a_script_with_torch(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "with_torch.py"
    path.write_text(TORCH_SCRIPT)
    assert succeeds(["-m", "nki_emulator", path], NKI_SIMULATOR="1") == TORCH_OUTPUT


# Which nki a script gets.

WHICH = "import nki.language\nimport nki\nprint(nki.__name__, nki.jit)\n"
REAL = "jit = 'the real one'\n"
PLACEHOLDER = "__version__ = '0.0'\n"


def make_nki(folder, text):
    make_module(folder, text)
    (folder / "nki" / "language.py").write_text("")


@pytest.fixture
def which(tmp_path):
    path = tmp_path / "scripts" / "which.py"
    path.parent.mkdir()
    path.write_text(WHICH)
    return path


@pytest.mark.parametrize(
    "text, expected", [(REAL, "nki the real one"), (PLACEHOLDER, "nki_emulator.nki <function")]
)
def test_a_script_gets_the_real_nki_but_no_placeholder(tmp_path, which, text, expected):
    make_nki(tmp_path, text)
    out = succeeds(["-m", "nki_emulator", which], extra_path=[tmp_path])
    assert out.startswith(expected)


# NKI_SIMULATOR=1 python script.py, in an environment where that was asked for.


@pytest.fixture
def environment(tmp_path):
    """A site-packages folder in which the emulator was enabled."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    assert Path(startup.enable(folder)) == folder / "nki_emulator.pth"
    # A folder on PYTHONPATH is not a site folder, whose .pth files Python reads when it starts.
    (tmp_path / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(folder)!r})\n")
    return tmp_path


def test_a_plain_script_runs_on_the_emulator(environment, script):
    options = {"extra_path": [environment], "NKI_SIMULATOR": "1"}
    status, out, err = run([script, "0"], **options)
    assert (status, out) == (0, "['0'] [[3. 3. 3.]] nc_version.gen3\n"), err
    succeeds(
        """
        import sys
        assert "nki_emulator" not in sys.modules and "numpy" not in sys.modules
        assert sys.path[1].endswith("startup") or sys.path[0].endswith("startup")
        from nki import jit
        import nki, nki_emulator
        assert nki is sys.modules["nki"] and nki_emulator.install() is nki
        assert not [entry for entry in sys.path if entry.endswith("startup")]
        """,
        **options,
    )


def test_a_plain_script_with_torch(environment, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "with_torch.py"
    path.write_text(TORCH_SCRIPT)
    assert succeeds([path], extra_path=[environment], NKI_SIMULATOR="1") == TORCH_OUTPUT


@pytest.mark.parametrize("variables", [{}, {"NKI_SIMULATOR": "0"}])
def test_without_the_variable_nothing_changes(environment, variables):
    succeeds(
        """
        import importlib.util, sys
        assert importlib.util.find_spec("nki") is None
        assert not [entry for entry in sys.path if entry.endswith("startup")]
        """,
        extra_path=[environment],
        **variables,
    )


@pytest.mark.parametrize(
    "text, expected", [(REAL, "nki the real one"), (PLACEHOLDER, "nki_emulator.nki <function")]
)
def test_a_plain_script_gets_the_real_nki_but_no_placeholder(environment, which, text, expected):
    make_nki(environment, text)
    out = succeeds([which], extra_path=[environment], NKI_SIMULATOR="1")
    assert out.startswith(expected)
    out = run([which], extra_path=[environment])[1]
    assert out == ("nki the real one\n" if text == REAL else "")


def test_the_folder_alone_does_not_provide_nki(which):
    """On the import path without the variable it behaves as if it were not there."""
    status, _, err = run([which], extra_path=[startup.FOLDER])
    assert status == 1 and "ModuleNotFoundError: No module named 'nki'" in err
    assert succeeds([which], extra_path=[startup.FOLDER], NKI_SIMULATOR="1").startswith("nki_emul")


def test_enable_and_disable_write_and_remove_one_file(tmp_path):
    path = Path(startup.enable(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["nki_emulator.pth"]
    assert path.read_text().count("\n") == 1 and path.read_text().startswith("import ")
    assert startup.enable(tmp_path) == str(path)
    assert startup.disable(tmp_path) == str(path) and not list(tmp_path.iterdir())
    assert startup.disable(tmp_path) is None


def test_the_command_names_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(startup.sysconfig, "get_path", lambda name: str(tmp_path / name))
    assert command_line.main(["enable"]) == 1
    assert "No such file or directory" in capsys.readouterr().err
    (tmp_path / "purelib").mkdir()
    file = tmp_path / "purelib" / "nki_emulator.pth"
    assert command_line.main(["enable"]) == 0 and file.exists()
    assert capsys.readouterr().out == f"wrote {file}\n"
    assert command_line.main(["disable"]) == 0 and not file.exists()
    assert capsys.readouterr().out == f"removed {file}\n"
    assert command_line.main(["disable"]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_an_error_in_a_script_shows_its_line(script):
    script.write_text(SCRIPT.replace("op0=nl.multiply", "op0=nl.exp"))
    status, _, err = run(["-m", "nki_emulator", script, "0"])
    assert status == 1 and "[operator]" in err
    assert "user_script.py:13 in kernel" in err


@pytest.mark.parametrize(
    "arguments, status, text",
    [
        ((), 2, "usage: python -m nki_emulator SCRIPT"), (("--help",), 0, "usage:"),
        (("-x",), 2, "unknown option: -x"), (("missing.py",), 2, "no such file: missing.py"),
    ],
)  # fmt: skip
def test_usage(arguments, status, text):
    got, out, err = run(["-m", "nki_emulator", *arguments])
    assert got == status and text in (out if status == 0 else err)
