"""`python -m nki_emulator check`: what it prints and how it exits; findings as data."""

import dataclasses
import json
import runpy
import sys
from pathlib import Path

import pytest

from nki_emulator.checker import RULES, CheckError, Finding, check_paths, main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Writes a kernel with a given body to ./kernels/kernel.py and returns its relative path."""
    monkeypatch.chdir(tmp_path)

    def write(*body):
        lines = "\n    ".join(body)
        Path("kernels").mkdir(exist_ok=True)
        Path("kernels/kernel.py").write_text(
            "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"
            f"@nki.jit\ndef kernel(x, y):\n    {lines}\n"
        )
        return "kernels/kernel.py"

    return write


def test_clean(kernel, capsys):
    kernel("return x")
    assert main(["kernels"]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_error(kernel, capsys):
    path = kernel("if x is None:", "    y = x", "return y")
    assert main([path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "kernels/kernel.py:8:8: E02-is `is` in `x is None`; comparisons are by value: == and !=; "
        "write == or !=, also for None  "
        "[migration/index.rst: 0.2 to 0.3, Replace is / is not]"
    )
    assert lines[1:] == ["    if x is None:", "1 error, 0 warnings"]


def test_warnings_do_not_fail(kernel, capsys):
    path = kernel("for i in nl.affine_range(2):", "    print(i)", "return x")
    assert main([path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("kernels/kernel.py:8:14: W01-range-alias ")
    assert lines[-2:] == ["0 errors, 1 warning", "ok"]


def test_all_findings_in_order(kernel, capsys):
    path = kernel("del y", "print(sum(x.shape), abs(3))", "return x")
    assert main([path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:-1:2]] == [
        ["kernels/kernel.py:8:5:", "E21-del"],
        ["kernels/kernel.py:9:11:", "E22-builtin"],
        ["kernels/kernel.py:9:25:", "E22-builtin"],
    ]
    assert lines[-1] == "3 errors, 0 warnings"


def test_json(kernel, capsys):
    path = kernel("nisa.tensor_copy(x, y, engine=nisa.vector_engine)", "return x is y")
    assert main([path, "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["kernels"], content["functions"]) == (1, 1)
    assert (content["errors"], content["warnings"]) == (1, 1)
    assert content["findings"] == [
        {**dataclasses.asdict(finding), "severity": severity}
        for finding, severity in zip(check_paths([path]), ("warning", "error"))
    ]
    assert content["findings"][0]["fix"] == "use nisa.engine.vector"


def test_finding_is_frozen_data(kernel):
    (finding,) = check_paths([kernel("return x is y")])
    assert isinstance(finding, Finding)
    assert (finding.line, finding.column, finding.snippet) == (8, 12, "return x is y")
    assert finding.is_error and finding.source == RULES["E02-is"].source
    with pytest.raises(dataclasses.FrozenInstanceError):
        finding.line = 1


def test_missing_path(capsys):
    assert main(["no/such/folder"]) == 2
    assert capsys.readouterr().err == (
        "no/such/folder: no such file or folder; name a Python file or a folder\n"
    )


def test_every_unusable_path_is_named(kernel, capsys):
    path = kernel("return x")
    Path("broken.py").write_text("def kernel(x:\n    return x\n")
    Path("empty").mkdir()
    assert main([path, "broken.py", "empty", "missing"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["broken.py", "empty", "missing"]
    assert lines[0].startswith("broken.py:1: not valid Python: ")


def test_a_broken_import_is_named(kernel):
    path = kernel("return helper(x)")
    text = Path(path).read_text()
    Path(path).write_text("from .tools import helper\n" + text)
    Path("kernels/tools.py").write_text("def helper(x)\n")
    with pytest.raises(CheckError) as caught:
        check_paths([path])
    assert caught.value.problems[0].startswith("kernels/tools.py:1: not valid Python: ")


def test_nothing_to_check_is_not_ok(tmp_path, capsys):
    (tmp_path / "host.py").write_text("def launch(x):\n    return x is None\n")
    assert main([str(tmp_path)]) == 2
    assert "no kernel" in capsys.readouterr().err
    assert check_paths([tmp_path]) == []


def test_no_path(capsys):
    assert main([]) == 2
    assert "name a Python file" in capsys.readouterr().err


def test_rules(capsys):
    assert main(["--rules"]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {rule} |" in printed for rule in RULES)


@pytest.mark.parametrize("command", [["nki_emulator", "check"], ["nki_emulator.checker"]])
@pytest.mark.parametrize("folder, status", [("nki_src", 0), ("tests/checker/bad", 1)])
def test_as_a_command(command, folder, status, monkeypatch, capsys):
    module, *arguments = command
    monkeypatch.setattr(sys, "argv", [module, *arguments, str(ROOT / folder)])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert caught.value.code == status
    assert (capsys.readouterr().out == "ok\n") == (status == 0)
