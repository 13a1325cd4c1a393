"""print(), breakpoint() and tracebacks: what somebody sees who debugs a kernel."""

import gc
import io
import pdb
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

from nki_emulator import NkiError, memory_report, record
from nki_emulator.errors import PACKAGE_DIRECTORY

from .support import load, ml_dtypes, nisa, nki, nl, np, pytest, save, simulate, tile

ROOT = Path(__file__).parents[2]


# Values.


def shown(make):
    """What print() shows of a tensor made in a kernel; repr() and f-strings show the same."""
    texts = []

    def kernel():
        tensor = make()
        texts.extend((str(tensor), repr(tensor), f"{tensor}"))

    simulate(kernel)()
    assert len(set(texts)) == 1
    return texts[0]


def test_values_and_description():
    assert shown(lambda: tile((2, 3), nl.bfloat16, value=1.5)) == (
        "NkiTensor(bfloat16[2, 3] sbuf)\n[[1.5 1.5 1.5]\n [1.5 1.5 1.5]]"
    )
    assert shown(lambda: tile((1, 2), nl.int8, nl.psum, value=-3)) == (
        "NkiTensor(int8[1, 2] psum)\n[[-3 -3]]"
    )


def test_elements_that_nothing_has_written():
    def make():
        made = nl.ndarray((2, 3), dtype=nl.float32, name="part")
        nisa.memset(made[:, 1:2], value=0.5)
        return made

    assert shown(make) == "NkiTensor(float32[2, 3] sbuf 'part')\n[[- 0.5 -]\n [- 0.5 -]]"
    assert shown(lambda: nl.ndarray((1, 2), dtype=nl.float8_e5m2)).endswith("[[- -]]")


def test_views_show_their_own_elements():
    def make():
        made = tile((2, 4))
        nisa.memset(made[:, 1:3], value=7.0)
        return made[:, 1::2]

    assert shown(make).endswith("[[7. 0.]\n [7. 0.]]")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn_x4", "float4_e2m1fn_x4", "bool", "uint32"])
def test_every_kind_of_dtype_can_be_shown(dtype):
    assert f"NkiTensor({dtype}[1, 2] sbuf)" in shown(lambda: tile((1, 2), dtype, value=0))


@pytest.mark.parametrize("complete", [True, False])
def test_large_tiles_are_abbreviated(complete):
    def make():
        made = nl.ndarray((128, 20000), dtype=nl.int8)
        nisa.memset(made if complete else made[:, :-1], value=2)
        return made

    text = shown(make)
    assert len(text) < 500 and "..." in text and ("-]" in text) == (not complete)


def test_print_shows_the_values_of_an_instruction_just_run(capsys):
    def kernel(x):
        t = load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        print("doubled", t)
        return save(t)

    simulate(kernel)(np.ones((1, 2), ml_dtypes.bfloat16))
    assert capsys.readouterr().out == "doubled NkiTensor(bfloat16[1, 2] sbuf)\n[[2. 2.]]\n"


def test_print_in_both_programs(capsys):
    def kernel():
        data = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.core_barrier(data, (0, 1))
        print(nl.program_id(0), tile((1, 2), value=nl.program_id(0)))

    simulate(nki.jit(kernel)[2])()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "0 NkiTensor(float32[1, 2] sbuf)", "[[0. 0.]]", "1 NkiTensor(float32[1, 2] sbuf)",
        "[[1. 1.]]",
    ]  # fmt: skip


# breakpoint().


def paused(x):
    t = load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0 + nl.program_id(0))
    breakpoint()
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=10.0)
    return save(t)


def test_breakpoint_calls_the_hook_in_the_kernels_frame(monkeypatch):
    seen = []

    def hook():
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_locals["t"].array.tolist()))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    simulate(paused)(np.zeros((1, 2), np.float32))
    assert seen == [("paused", [[1.0, 1.0]])]
    seen.clear()

    def both(x):
        t = load(x)
        nisa.core_barrier(x, (0, 1))
        nisa.memset(t, value=float(nl.program_id(0)))
        breakpoint()

    simulate(nki.jit(both)[2])(np.zeros((1, 2), np.float32))
    assert seen == [("both", [[0.0, 0.0]]), ("both", [[1.0, 1.0]])]


@pytest.fixture
def no_collection():
    """A garbage collection runs callbacks, which a debugger that steps would stop in."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_debugger_with_its_own_streams(monkeypatch, no_collection):
    out = io.StringIO()

    def hook():
        commands = io.StringIO("t\nnext\np t\ncontinue\n")
        pdb.Pdb(stdin=commands, stdout=out, nosigint=True).set_trace(sys._getframe(1))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    simulate(paused)(np.zeros((1, 2), np.float32))
    text = out.getvalue()
    assert "[[1. 1.]]" in text and "[[11. 11.]]" in text and "in paused()" not in text


SCRIPT = """
import sys
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

def inner(t):
    breakpoint()
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=10.0)

@nki.jit
def kernel(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name="t")
    nisa.dma_copy(dst=t, src=x)
    if nl.num_programs() == 2:
        nisa.core_barrier(x, (0, 1))
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=float(nl.program_id(0)))
    inner(t)

x = np.full((1, 3), 5, np.float32)
(kernel[2] if "two" in sys.argv else kernel)(x)
print("done")
"""


def session(tmp_path, commands, *arguments):
    """A pdb session of SCRIPT that reads its commands from stdin; returns what it printed."""
    path = tmp_path / "debugged.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "nki_emulator", str(path), *arguments],
        input=textwrap.dedent(commands), capture_output=True, text=True, timeout=100,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done


def test_a_pdb_session(tmp_path):
    done = session(
        tmp_path,
        """\
        p t
        next
        print(t)
        p t.shape, t.dtype
        up
        p x.buffer, x
        where
        continue
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
    assert "NkiTensor(float32[1, 3] sbuf 't')\n[[5. 5. 5.]]" in done.stdout
    assert "[[15. 15. 15.]]" in done.stdout and "((1, 3), 'float32')" in done.stdout
    assert "NkiTensor(float32[1, 3] private_hbm 'x')\n[[5. 5. 5.]]" in done.stdout
    assert "-> inner(t)" in done.stdout


def test_a_pdb_session_with_two_programs(tmp_path):
    """First the breakpoint of program 0, then the one of program 1, in its own thread."""
    done = session(
        tmp_path,
        """\
        p nl.program_id(0), t.array.tolist()
        continue
        p nl.program_id(0), t.array.tolist()
        next
        p t
        continue
        """,
        "two",
    )
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert out.index("(0, [[5.0, 5.0, 5.0]])") < out.index("(1, [[6.0, 6.0, 6.0]])")
    assert "[[16. 16. 16.]]" in out and out.endswith("done\n")


@pytest.mark.parametrize("quit_in", [0, 1])
def test_leaving_the_debugger_ends_both_programs(tmp_path, quit_in):
    done = session(tmp_path, "continue\n" * quit_in + "quit\n", "two")
    assert done.returncode == 1 and "BdbQuit" in done.stderr and "done" not in done.stdout


# Tracebacks.


def innermost(t):
    nisa.tensor_copy(dst=t, src=tile((4, 3)))


def outer(kernel_only=False):
    innermost(tile((4, 4)))


def frames(error):
    """(file, function) of the error's traceback, outermost first, from this test's frame on."""
    found = traceback.extract_tb(error.__traceback__)
    return [("" if f.filename == __file__ else "e" * f.filename.startswith(PACKAGE_DIRECTORY),
             f.name) for f in found]  # fmt: skip


def caught(function, *arguments):
    with pytest.raises(Exception) as info:
        function(*arguments)
    return info.value


@pytest.mark.parametrize("entry", ["call", "simulate", "two", "record", "memory_report"])
def test_a_traceback_shows_the_caller_and_the_kernel(entry):
    kernel = {
        "call": nki.jit(outer), "simulate": simulate(outer), "two": nki.jit(outer)[2],
        "record": record(outer), "memory_report": memory_report(outer),
    }[entry]  # fmt: skip
    error = caught(kernel)
    assert isinstance(error, NkiError)
    assert frames(error) == [("", "caught"), ("e", "entry"), ("", "outer"), ("", "innermost")]


def test_a_traceback_of_the_second_program():
    def kernel(x):
        nisa.core_barrier(x, (0, 1))
        if nl.program_id(0) == 1:
            outer()
        nisa.core_barrier(x, (0, 1))

    error = caught(nki.jit(kernel)[2], np.zeros((2, 2), np.float32))
    assert frames(error) == [
        ("", "caught"), ("e", "entry"), ("", "kernel"), ("", "outer"), ("", "innermost"),
    ]  # fmt: skip


def test_an_ordinary_exception_keeps_where_it_was_raised():
    def kernel():
        np.zeros(3).reshape(2)

    error = caught(nki.jit(kernel))
    assert isinstance(error, ValueError)
    assert frames(error)[:3] == [("", "caught"), ("e", "entry"), ("", "kernel")]


def test_a_defect_of_the_emulator_keeps_its_frames(monkeypatch):
    from nki_emulator.engines import copies

    monkeypatch.setattr(copies, "read_raw", None)
    error = caught(nki.jit(lambda: nisa.tensor_copy(tile((2, 2)), tile((2, 2)))))
    assert isinstance(error, TypeError) and "NoneType" in str(error)
    names = [name for _, name in frames(error)]
    assert names[:3] == ["caught", "entry", "<lambda>"] and "tensor_copy" in names[3:]


def test_wrong_arguments_show_the_call_only():
    error = caught(nki.jit(outer), 1, 2)
    assert isinstance(error, TypeError)
    assert frames(error) == [("", "caught"), ("e", "entry")]


def test_nested_kernels_are_plain_calls():
    inner = nki.jit(innermost)

    def kernel():
        inner(tile((4, 4)))

    assert [name for _, name in frames(caught(nki.jit(kernel)))] == [
        "caught", "entry", "kernel", "innermost",
    ]  # fmt: skip


def test_callbacks_of_loops_show_no_frames_in_between():
    def kernel():
        def body(i):
            outer()

        nl.fori_loop(0, 1, body)

    assert [name for _, name in frames(caught(nki.jit(kernel)))] == [
        "caught", "entry", "kernel", "body", "outer", "innermost",
    ]  # fmt: skip


def test_all_frames_on_request(monkeypatch):
    monkeypatch.setenv("NKI_EMULATOR_TRACEBACK", "full")
    names = [name for _, name in frames(caught(nki.jit(outer)))]
    assert "launch" in names and "call_kernel_function" in names and names[-1] != "innermost"


def test_an_error_raised_while_another_is_handled_keeps_its_context():
    def kernel():
        try:
            {}["missing"]
        except KeyError:
            outer()

    error = caught(nki.jit(kernel))
    assert isinstance(error, NkiError) and isinstance(error.__context__, KeyError)


def test_a_script_shows_its_own_frames_only(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text(SCRIPT.replace("breakpoint()", "nisa.memset(x_that_is_missing, value=0)"))
    done = subprocess.run(
        [sys.executable, "-m", "nki_emulator", str(path)], capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, timeout=100,
    )  # fmt: skip
    assert done.returncode == 1
    files = [line.split('"')[1] for line in done.stderr.splitlines() if '  File "' in line]
    assert [name for name in files if name != str(path)] == [PACKAGE_DIRECTORY + "tracebacks.py"]
    assert files[0] == str(path) == files[-1] and "NameError" in done.stderr
