"""The command: rows first, and tables and files that only print them."""

import dataclasses
import io
import json
import types

import pytest
import torch

import neuron_vit
from bench import device, page, paths, report, rows
from bench.__main__ import main
from bench.models import MODELS
from bench.progress import ProgressLine

TINY = ["--model", "vit-ti16", "--res", "32", "--repeats", "2", "--impl", "eager", "kernel"]


@pytest.fixture(scope="module", params=["block", "op", "encoder"])
def outcome(request, tmp_path_factory):
    """(printed text, rows of the JSON file, page) of a small run."""
    folder = tmp_path_factory.mktemp("bench")
    rows_path, page_path = folder / "rows.json", folder / "page.html"
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", printed)
        patch.setenv("NKI_SIMULATOR", "1")  # must not leak into the measured table
        files = ["--json", str(rows_path), "--html", str(page_path)]
        status = main([*TINY, "--level", request.param, "--dtype", "fp32", *files])
    assert status == 0
    found = json.loads(rows_path.read_text())["rows"]
    return printed.getvalue(), found, page_path.read_text()


def test_rows_have_every_key(outcome):
    for row in outcome[1]:
        assert tuple(row) == rows.KEYS


def test_rows_say_what_ran(outcome):
    for row in outcome[1]:
        assert (row["model"], row["res"], row["batch"], row["dtype"]) == ("vit-ti16", 32, 1, "fp32")
        assert row["tokens"] == 5
        if row["table"] == "measured":
            assert (row["path"], row["target"], row["lnc"]) == ("torch", None, None)
            assert (row["device"], row["launch_us"], row["floor_us"]) == ("cpu", None, None)
            assert row["us"] > 0 and row["us_spread"] >= 0 and row["repeats"] == 2
        else:
            assert (row["table"], row["target"], row["lnc"]) == ("modelled", "trn2", 1)
            assert row["path"] == ("nki" if row["impl"] == "kernel" else "torch")
            assert 0 < row["floor_us"] <= row["us_optimistic"] <= row["us"]
            assert row["launch_us"] > 0 and row["device"] is None and row["repeats"] is None
            assert row["trust"].startswith("modelled, not measured")
    kinds = [(row["table"], row["impl"]) for row in outcome[1]]
    assert kinds[:4] == [
        ("measured", "eager"), ("measured", "kernel"), ("modelled", "eager"), ("modelled", "kernel")
    ]  # fmt: skip


def test_rows_are_correct_results(outcome):
    assert all(row["cos"] > 0.99999 and row["max_abs_err"] < 1e-3 for row in outcome[1])


def test_speed_ups_stand_where_kernels_ran_and_nowhere_else(outcome):
    for row in outcome[1]:
        assert (row["speedup"] is not None) == (row["path"] == "nki"), row
    blocks = [row for row in outcome[1] if row["table"] == "modelled" and row["level"] != "op"]
    for eager, kernel in zip(blocks[0::2], blocks[1::2]):
        ratio = (eager["us"] + eager["launch_us"]) / (kernel["us"] + kernel["launch_us"])
        assert kernel["speedup"] == pytest.approx(ratio)
        blocks_run = MODELS["vit-ti16"].depth if eager["level"] == "encoder" else 1
        assert (eager["launches"], kernel["launches"]) == (10 * blocks_run, 1)


def test_tables_cannot_be_confused(outcome):
    measured, modelled, _ = outcome[0].split("\n\n")
    assert measured.startswith("wall-clock on this CPU; says nothing about Trainium\n")
    assert "No speed-up is shown: no NKI kernel ran in this table." in measured
    assert modelled.startswith("modelled time on the chip; nothing in this table was measured\n")
    assert " ms " not in modelled and "wall-clock" not in modelled
    assert measured.count(" torch\n") >= 2 and " nki\n" not in measured
    assert "median absolute error" in modelled, "the error of the regime stands with the figures"


def test_the_page_says_modelled_and_needs_no_network(outcome):
    page = outcome[2]
    assert "modelled, not measured" in page
    assert "modelled time on the chip" in page and "wall-clock on this CPU" in page
    assert page.count('<figure class="timeline">') >= 1
    assert "http" not in page.replace("http-equiv", "")


def test_speed_up_needs_nki_and_a_time():
    assert rows.speedup(10.0, 5.0, "nki") == 2.0
    assert rows.speedup(10.0, 5.0, "torch") is None
    assert rows.speedup(10.0, None, "nki") is None


def stand_in(**functions):
    """The package with some of its functions replaced."""
    names = {name: getattr(neuron_vit, name) for name in neuron_vit.__all__}
    return types.SimpleNamespace(**{**names, **functions})


PLAN = rows.Plan(repeats=2, warmup_seconds=0.0, impls=("eager", "kernel"))


def run_tiny(package, plan=PLAN):
    setting = rows.Setting(MODELS["vit-ti16"], 32, 1, "fp32", "block")
    return rows.run([setting], package, plan)


def test_a_refused_kernel_is_a_torch_row_with_the_reason(monkeypatch):
    real = neuron_vit.capability.check
    refusal = neuron_vit.Support(False, "vit_block width=192 is odd", "use another")
    monkeypatch.setattr(
        "neuron_vit.capability.check",
        lambda kernel, *rest: refusal if kernel == "vit_block" else real(kernel, *rest),
    )
    kernel = run_tiny(neuron_vit)[-1]
    assert (kernel["path"], kernel["us"], kernel["launches"]) == ("torch", None, None)
    assert kernel["speedup"] is None and kernel["cos"] > 0.99999
    assert "width=192 is odd" in kernel["note"]
    assert "PyTorch operations ran" in report.text([kernel])
    assert "width=192 is odd" in report.text([kernel])


def test_a_wrong_package_shows_in_the_parity_columns(tmp_path):
    wrong = stand_in(vit_block=lambda x, params: -neuron_vit.vit_block(x, params))
    eager, measured, baseline, modelled = run_tiny(wrong)
    assert eager["cos"] > 0.99999 and baseline["cos"] > 0.99999
    assert measured["cos"] < -0.9 and modelled["cos"] < -0.9

    nothing = stand_in(vit_block=lambda x, params: neuron_vit.vit_block(x, params) * torch.nan)
    found = run_tiny(nothing)
    assert "nan" in report.text(found)
    report.write_json(found, tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text())["rows"][1]["cos"] is None


def test_a_device_is_waited_for_and_named():
    """A stand-in device: the CPU under another title, whose synchronisation is counted."""
    waits = []
    stand_in_device = device.Device("cpu", "wall-clock on a stand-in", lambda: waits.append(1))
    plan = dataclasses.replace(PLAN, device=stand_in_device)
    with paths.emulated_nki():  # on the device the kernels run
        found = run_tiny(neuron_vit, plan)
    measured = [row for row in found if row["table"] == "measured"]
    assert len(waits) >= 2 * PLAN.repeats, "every timed run ends with a wait"
    assert [row["path"] for row in measured] == ["torch", "nki"]
    assert measured[1]["launches"] == 1 and measured[1]["speedup"] > 0
    assert report.text(found, stand_in_device).startswith("wall-clock on a stand-in\n")


def test_a_neuron_device_is_found(monkeypatch):
    assert device.find() is device.CPU
    neuron = types.SimpleNamespace(is_available=lambda: True, synchronize=lambda: None)
    monkeypatch.setattr(torch, "neuron", neuron, raising=False)
    found = device.find()
    assert (found.name, found.synchronize) == ("neuron", neuron.synchronize)
    assert "Trainium, synchronised" in found.title


def test_every_case_is_compiled_from_a_clean_slate(monkeypatch):
    """Without that the ninth case would be eager under another name."""
    calls = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: calls.append("reset"))
    monkeypatch.setattr(torch, "compile", lambda function: calls.append("compile") or function)
    setting = rows.Setting(MODELS["vit-ti16"], 32, 1, "fp32", "op")
    rows.run([setting], neuron_vit, dataclasses.replace(PLAN, impls=("compile",)))
    assert calls == ["reset", "compile"] * 6


def test_compile_is_timed_and_its_failure_is_a_note(monkeypatch):
    plan = dataclasses.replace(PLAN, impls=("eager", "compile"))
    monkeypatch.setattr(torch, "compile", lambda function: function)
    found = run_tiny(neuron_vit, plan)
    assert [row["impl"] for row in found] == ["eager", "compile", "eager"]
    assert found[1]["us"] > 0 and found[1]["path"] == "torch"

    def broken(function):
        def call():
            raise RuntimeError("no C++ compiler")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    failed = [row for row in run_tiny(neuron_vit, plan) if row["impl"] == "compile"]
    assert failed[0]["us"] is None and "no C++ compiler" in failed[0]["note"]
    assert "no C++ compiler" in report.text(failed)


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
        (["--level", "model"], "invalid choice: 'model'"),
    ],
)
def test_refused_arguments(capsys, arguments, fragment):
    assert fragment in refused(capsys, *arguments)


def test_list_shows_every_model(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["model", *MODELS]


def test_an_output_that_cannot_be_written_is_refused_first(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("bench.__main__.run", lambda *_: pytest.fail("ran"))
    for option in ("--json", "--html"):
        message = refused(capsys, option, str(tmp_path / "none" / "rows"))
        assert "none" in message and "does not exist" in message
        assert "is a folder" in refused(capsys, option, str(tmp_path))
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "cannot be written" in refused(capsys, "--json", str(tmp_path / "rows"))
    assert not (tmp_path / "rows").exists()


def test_what_does_not_fit_in_memory_is_refused_first(capsys, monkeypatch):
    monkeypatch.setattr("bench.__main__.run", lambda *_: pytest.fail("ran"))
    message = refused(capsys, "--model", "vit-b16", "--batch", "1", "100000000")
    assert "vit-b16 block 224px batch 100000000 bf16 needs" in message and "GiB" in message


def test_every_combination_runs_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "bench.__main__.run", lambda settings, *_: asked.extend(map(str, settings)) or []
    )
    assert main(["--level", "op", "block", "op", "--batch", "1", "4", "1"]) == 0
    assert asked == [
        "vit-b16 op 224px batch 1 bf16", "vit-b16 block 224px batch 1 bf16",
        "vit-b16 op 224px batch 4 bf16", "vit-b16 block 224px batch 4 bf16",
    ]  # fmt: skip


def test_progress_covers_the_whole():
    told = []
    setting = rows.Setting(MODELS["vit-ti16"], 32, 1, "fp32", "block")
    rows.run([setting, setting], neuron_vit, PLAN, lambda text, done: told.append(done))
    assert told == sorted(told) and told[0] == 0 and told[-1] == 0.5


def test_a_family_without_eager_launches_says_why(tmp_path):
    shape = dataclasses.replace(MODELS["dinov3-s16"], depth=1)
    setting = rows.Setting(shape, 32, 1, "fp32", "block")
    found = rows.run([setting], neuron_vit, PLAN)
    modelled = {row["impl"]: row for row in found if row["table"] == "modelled"}
    eager, kernel = modelled["eager"], modelled["kernel"]
    assert eager["note"] == "no eager launches for rotary embeddings" and eager["us"] is None
    assert kernel["path"] == "nki" and kernel["us"] > 0 and kernel["speedup"] is None
    assert kernel["cos"] > 0.99999 and kernel["note"] == ""
    text = report.text(found)
    assert "eager launches: no eager launches for rotary embeddings" in text
    assert "speed-up: modelled" not in text
    report.write_json(found, tmp_path / "rows.json")
    page.write(found, page.Timelines(), device.CPU, tmp_path / "page.html")
    assert "rotary embeddings" in (tmp_path / "page.html").read_text()


def test_long_attention_is_a_regime_of_its_own():
    for resolution, regime in ((32, False), (512, True)):
        setting = rows.Setting(MODELS["vit-ti16"], resolution, 1, "bf16", "op")
        plan = dataclasses.replace(PLAN, impls=("kernel",))
        found = {row["op"]: row for row in rows.run([setting], neuron_vit, plan)}
        assert (found["attention"]["regime"] == "attention") == regime
        assert all(row["regime"] in row["trust"] for row in found.values())


def test_engine_shares_stand_in_the_table(outcome):
    modelled = outcome[0].split("\n\n")[1]
    assert "T   V   S   G dma" in modelled
    for row in outcome[1]:
        if row["table"] == "modelled":
            shares = [row["busy"][name] for name in ("tensor", "vector", "scalar", "gpsimd", "dma")]
            assert " ".join(f"{100 * share:3.0f}" for share in shares) in modelled


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_for_terminals():
    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        with ProgressLine(stream) as progress:
            progress("vit-b16 block", 0.25)
        assert ("[#####...............]  25%" in stream.getvalue()) == shown
        assert ("vit-b16 block" in stream.getvalue()) == shown
        if shown:
            assert stream.getvalue().endswith("\r\x1b[2K")
