"""The command: rows first, and tables and files that only print them."""

import io
import json
import types

import pytest
import torch

import neuron_vit
from bench import report, rows
from bench.__main__ import main
from bench.models import MODELS
from bench.progress import ProgressLine

TINY = ["--model", "vit-ti16", "--res", "32", "--repeats", "2"]


@pytest.fixture(scope="module", params=["block", "op"])
def outcome(request, tmp_path_factory):
    """(printed text, rows of the JSON file) of a small run."""
    path = tmp_path_factory.mktemp("bench") / "rows.json"
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", printed)
        patch.setenv("NKI_SIMULATOR", "1")  # must not leak into the measured table
        status = main([*TINY, "--level", request.param, "--dtype", "fp32", "--json", str(path)])
    assert status == 0
    return printed.getvalue(), json.loads(path.read_text())["rows"]


def test_rows_have_every_key(outcome):
    for row in outcome[1]:
        assert tuple(row) == rows.KEYS


def test_rows_say_what_ran(outcome):
    for row in outcome[1]:
        assert (row["model"], row["res"], row["batch"], row["dtype"]) == ("vit-ti16", 32, 1, "fp32")
        assert row["tokens"] == 5
        if row["table"] == "measured":
            assert (row["path"], row["target"], row["lnc"]) == ("torch", None, None)
            assert row["us"] > 0 and row["us_spread"] >= 0 and row["repeats"] == 2
        else:
            assert (row["table"], row["path"]) == ("emulated", "nki")
            assert (row["target"], row["lnc"], row["launches"]) == ("trn2", 1, 1)
    kinds = [(row["table"], row["impl"]) for row in outcome[1]]
    assert kinds[:3] == [("measured", "eager"), ("measured", "kernel"), ("emulated", "kernel")]


def test_rows_are_correct_results(outcome):
    assert all(row["cos"] > 0.99999 and row["max_abs_err"] < 1e-3 for row in outcome[1])


def test_an_emulated_row_has_no_time_and_no_row_a_speed_up(outcome):
    for row in outcome[1]:
        assert row["speedup"] is None
        if row["table"] == "emulated":
            assert row["us"] is None and row["us_spread"] is None


def test_tables_cannot_be_confused(outcome):
    measured, emulated, _ = outcome[0].split("\n\n")
    assert measured.startswith("wall-clock on this CPU; says nothing about Trainium\n")
    assert "No speed-up is shown: no NKI kernel ran in this table." in measured
    assert emulated.startswith("NKI kernels emulated on this CPU: launches and parity, no time")
    assert " ms " not in emulated and "speed-up" not in emulated
    assert measured.count(" torch\n") >= 2 and "nki" not in measured
    assert emulated.rstrip().endswith("nki")


def test_speed_up_needs_nki_and_a_time():
    assert rows.speedup(10.0, 5.0, "nki") == 2.0
    assert rows.speedup(10.0, 5.0, "torch") is None
    assert rows.speedup(10.0, None, "nki") is None


def stand_in(**functions):
    """The package with some of its functions replaced."""
    names = {name: getattr(neuron_vit, name) for name in neuron_vit.__all__}
    return types.SimpleNamespace(**{**names, **functions})


def run_tiny(package):
    setting = rows.Setting(MODELS["vit-ti16"], 32, 1, "fp32", "block")
    return rows.run([setting], package, repeats=2, warmup_seconds=0.0)


def test_a_refused_kernel_is_a_torch_row_with_the_reason(monkeypatch):
    refusal = neuron_vit.Support(False, "vit_block width=192 is odd", "use another")
    check = "neuron_vit.capability.check"
    monkeypatch.setattr(check, lambda *arguments: refusal)
    emulated = run_tiny(neuron_vit)[-1]
    assert (emulated["path"], emulated["launches"], emulated["speedup"]) == ("torch", 0, None)
    assert "width=192 is odd" in emulated["note"]
    assert "PyTorch operations ran" in report.text([emulated])
    assert "width=192 is odd" in report.text([emulated])


def test_a_wrong_package_shows_in_the_parity_columns(tmp_path):
    wrong = stand_in(vit_block=lambda x, params: -neuron_vit.vit_block(x, params))
    eager, measured, emulated = run_tiny(wrong)
    assert eager["cos"] > 0.99999
    assert measured["cos"] < -0.9 and emulated["cos"] < -0.9

    nothing = stand_in(vit_block=lambda x, params: neuron_vit.vit_block(x, params) * torch.nan)
    found = run_tiny(nothing)
    assert "nan" in report.text(found)
    report.write_json(found, tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text())["rows"][1]["cos"] is None


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_unknown_model(capsys):
    message = refused(capsys, "--model", "vit-b61")
    assert "unknown model 'vit-b61': did you mean vit-b16" in message


@pytest.mark.parametrize(
    "arguments, fragment",
    [
        (["--res", "8"], "resolution=8 is smaller than one patch of vit-b16"),
        (["--repeats", "1"], "at least 2"),
        (["--batch", "0"], "0 is not a positive number"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--level", "encoder"], "invalid choice: 'encoder'"),
    ],
)
def test_refused_arguments(capsys, arguments, fragment):
    assert fragment in refused(capsys, *arguments)


def test_list_shows_every_model(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["model", *MODELS]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_for_terminals():
    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        with ProgressLine(stream) as progress:
            progress("vit-b16 block")
        assert ("vit-b16 block" in stream.getvalue()) == shown
        if shown:
            assert stream.getvalue().endswith("\r\x1b[2K")
