"""The neuron path, on a stand-in device in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# The process starts once, so one worker runs these tests.
pytestmark = pytest.mark.xdist_group("stand-in device")

ROOT = Path(__file__).parents[2]
VARIABLES = (
    "NKI_SIMULATOR",
    "NEURON_VIT_REQUIRE_NKI",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_PLATFORM_TARGET_OVERRIDE",
)


@pytest.fixture(scope="module")
def shown():
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-m", "tests.package.device_script"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_runs_the_kernel_and_says_so(shown):
    assert shown["device"] == "neuron:0"
    assert shown["path"] == "nki"
    assert shown["names"] == ["layer_norm", "attention"]
    assert shown["counts"] == {"layer_norm": 1, "attention": 1}
    assert shown["layer_norm"] < 1e-5
    assert shown["attention"] < 1e-5


def test_launches_on_the_grid_that_the_runtime_is_set_to(shown):
    # The variable is unset for the first launch and 2 for the second.
    assert shown["grids"] == [1, 2]


def test_strided_operands_stay_where_they_are(shown):
    window = shown["window"]
    assert window["device"] == "neuron:0"
    assert window["shares"]
    assert window["offset"] == 2 * 10 * 2 * 32
    assert window["shape"] == [2 * 10 * 2 * 32]
    assert window["view"] == [[2, 2, 10, 32], [640, 32, 64, 1]]


def test_backward_runs_on_the_device_without_a_kernel(shown):
    assert shown["gradient"] < 1e-4
    assert shown["launches_after_backward"] == 3


def test_compiled_code_launches_the_kernel(shown):
    assert shown["compiled"] < 1e-5
    assert shown["launches_after_compiled"] == 4


def test_autocast_is_that_of_the_device(shown):
    assert shown["autocast"] == ["torch.bfloat16", "torch.bfloat16", "torch.float32"]
    assert shown["autocast_path"] == "nki"
    assert shown["launches_with_autocast"] == shown["launches_after_compiled"] + 2


def test_a_case_without_kernel_warns_once_at_the_callers_line(shown):
    [(category, message, filename)] = shown["warnings"]
    assert category == "NeuronVitFallbackWarning"
    assert Path(filename).name == "device_script.py"
    for part in ("head_dim=192 > 128", "Use torch.nn.functional", "neuron:0", "REQUIRE_NKI=1"):
        assert part in message
    assert shown["fallback_path"] == "torch"
    assert shown["fallback"] < 1e-5
    assert "head_dim=192 > 128" in shown["refused"]


def test_operands_on_two_devices_are_refused(shown):
    assert "weight is on cpu, input is on neuron:0" in shown["mixed"]
