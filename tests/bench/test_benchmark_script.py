"""benchmarks/benchmark.py through the functions behind `kernels benchmark`."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from kernels.cli.benchmark import (
    discover_benchmark_classes,
    discover_benchmark_scripts,
    run_benchmark_class,
)

import neuron_vit
from hub.build import build

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = {"attention", "layer_norm", "linear", "mlp", "vit_block"}


@pytest.fixture(scope="module")
def benchmark_class():
    (script,) = discover_benchmark_scripts(".", ROOT)
    (found,) = discover_benchmark_classes(script, ROOT)
    return found


def test_the_runner_verifies_every_workload(benchmark_class, tmp_path, capsys):
    build(ROOT, tmp_path / "build")
    results, _ = run_benchmark_class(
        benchmark_class, iterations=1, warmup=0, repo_id=str(tmp_path), is_local=True, revision=""
    )
    assert set(results) == WORKLOADS
    assert all(timing.verified for timing in results.values())
    assert "no NKI kernel" in capsys.readouterr().err


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_verification_notices_a_wrong_result(benchmark_class, workload):
    """A part of the computation is taken away; the runner's comparison must see it."""
    instance = benchmark_class()
    instance.kernel = neuron_vit
    getattr(instance, f"setup_{workload}")()
    expected = getattr(instance, f"verify_{workload}")()
    run = getattr(instance, f"benchmark_{workload}")
    run()
    assert torch.allclose(instance.out, expected, atol=1e-2)

    broken = {
        "attention": lambda: setattr(instance, "qkv", (instance.qkv[0],) * 2 + instance.qkv[2:]),
        "layer_norm": lambda: instance.bias.zero_(),
        "linear": lambda: instance.bias.zero_(),
        "mlp": lambda: instance.fc1_bias.zero_(),
        "vit_block": lambda: instance.params.proj_bias.zero_(),
    }
    broken[workload]()
    run()
    assert not torch.allclose(instance.out, expected, atol=1e-2)


def test_waits_for_a_neuron_device(benchmark_class, monkeypatch):
    waited = []
    neuron = SimpleNamespace(synchronize=lambda: waited.append(True))
    monkeypatch.setattr(torch, "neuron", neuron, raising=False)
    instance = benchmark_class()
    instance.kernel = neuron_vit
    instance.finish(torch.ones(1))
    assert waited == []
    instance.device = "neuron"
    instance.finish(torch.ones(1))
    assert waited == [True]
