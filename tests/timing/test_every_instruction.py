"""Every instruction has a considered cost: finite, positive, larger for more, as documented."""

import json
import math
from pathlib import Path

import pytest

import nki_emulator
from nki_emulator.hardware import HARDWARE
from nki_emulator.timing.costs import CostModel, transfer
from nki_emulator.timing.formulas import FORMULAS

from .instructions import FIXED, FOURTH_GENERATION, ISSUE, PAIRED, QUERIES, traced

NAMES = [*ISSUE, *PAIRED]
TARGETS = ("trn2", "trn3")
# Two sizes that each instruction takes and that are not under its minimum.
SIZES = {"nc_transpose": (96, 128), "sendrecv gpsimd": (96, 192), "dma_transpose": (960, 1920)}


def functions():
    path = Path(nki_emulator.__file__).with_name("api_0_6.json")
    return json.loads(path.read_text())["modules"]["nki.isa"]["functions"]


def needs(name, target):
    if name in FOURTH_GENERATION and target != "trn3":
        pytest.skip("an instruction of the fourth generation")


def test_no_instruction_is_missing():
    assert {name.split()[0] for name in NAMES} | set(QUERIES) == set(functions())


def test_every_formula_has_a_source():
    for formulas in FORMULAS.values():
        assert all(len(formula.source) > 5 for formula in formulas.values())
        assert set(formulas) <= set(functions())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_a_cost_is_positive_and_grows(name, target, on_target):
    needs(name, target)
    on_target(target)
    times = []
    for size in SIZES.get(name, (192, 480)):
        event = traced(name, size)[-1]
        assert 0 < event.work < math.inf and 0 <= event.done - event.end < math.inf
        times.append(event.work)
    assert times[0] == times[1] if name in FIXED else times[0] < times[1]


@pytest.mark.parametrize("generation", sorted(HARDWARE))
@pytest.mark.parametrize("name", NAMES)
def test_the_optimistic_cost_is_not_above_the_literal_one(name, generation, on_target):
    on_target("trn3")
    hardware = HARDWARE[generation]
    for event in traced(name, 96):
        if event.transfer is None:
            costs = (CostModel(hardware, mode).compute(event.step) for mode in (True, False))
            optimistic, literal = (cost.occupancy for cost in costs)
        else:
            rates = (hardware.dma_peak_rate, hardware.dma_rate)
            optimistic, literal = (transfer(event.step, hardware, rate).time for rate in rates)
        assert 0 < optimistic <= literal


# Engine and cycles for 480 columns of float32 on trn2 and trn3 (None: the same, or not there).
DOCUMENTED = {
    "tensor_copy": ("vector", 240, None),
    "tensor_copy scalar": ("scalar", 480, None),
    "tensor_copy gpsimd": ("gpsimd", 480, None),
    "tensor_copy_predicated": ("vector", 960, None),
    "select_reduce": ("vector", 960, None),
    "range_select": ("vector", 480, None),
    "tensor_tensor": ("vector", 480, None),
    "tensor_tensor gpsimd": ("gpsimd", 150 + 480, None),
    "tensor_scalar": ("vector", 240, None),
    "scalar_tensor_tensor": ("vector", 480, None),
    "tensor_reduce": ("vector", 480, None),
    "tensor_scalar_reduce": ("vector", 480 + 64, None),
    "tensor_tensor_scan": ("vector", 960, None),
    "tensor_scalar_cumulative": ("vector", 960, None),
    "bn_stats": ("vector", 480, None),
    "bn_aggr": ("vector", 13 * 480 / 3, None),
    "reciprocal": ("vector", 8 * 480, None),
    "max8": ("vector", 480, None),
    "nc_find_index8": ("vector", 480, None),
    "nc_match_replace8": ("vector", 480, None),
    "nc_stream_shuffle": ("vector", 480, None),
    "nc_transpose vector": ("vector", 64, None),
    "dropout": ("vector", 480, None),
    "rng": ("vector", 480, None),
    "rng gpsimd": ("gpsimd", 150 + 480, None),
    "rand2": ("vector", None, 120),
    "set_rng_seed": ("vector", 64, None),
    "exponential": ("vector", None, 120),
    "quantize_mx": ("vector", None, 480),
    "activation": ("scalar", 480, None),
    "activation_reduce": ("scalar", 480 + 64, None),
    "activate2": ("scalar", None, 480),
    "affine_select": ("gpsimd", 150 + 480, None),
    "iota": ("gpsimd", 150 + 480, None),
    # Single 4-byte elements: (28 + 4) / 4 cycles each.
    "local_gather": ("gpsimd", 150 + 8 * 480, None),
    "nc_n_gather": ("gpsimd", 150 + 480, None),
    "topk": ("gpsimd", 4 * 480 + 8, None),
    "tensor_partition_reduce": ("gpsimd", 150 + 480, None),
    # Two outputs for each input, and one for the count.
    "sequence_bounds": ("gpsimd", 150 + 960, None),
    "nonzero_with_count": ("gpsimd", 150 + 481, None),
    # A stationary tile that is new takes 32 cycles.
    "nc_matmul": ("tensor", 480 + 32, None),
    "nc_matmul_mx": ("tensor", None, 480 + 32),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DOCUMENTED)
def test_cycles(name, target, on_target):
    needs(name, target)
    on_target(target)
    engine, third, fourth = DOCUMENTED[name]
    hardware = HARDWARE[3 if target == "trn2" else 4]
    event = traced(name, 480)[-1]
    assert event.step.engine == engine
    found = (event.end - event.start) * getattr(hardware, f"{engine}_clock")
    assert found == pytest.approx(fourth if target == "trn3" and fourth else third)
