"""`import nki`: installed, removed, and left alone where the real one is."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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
    out = succeeds(
        ["-m", "nki_emulator", script, "0"], NEURON_PLATFORM_TARGET_OVERRIDE="trn3"
    )
    assert "nc_version.gen4" in out


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
