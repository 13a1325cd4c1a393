"""The `kernels` command on this project's kernel: info, versions, benchmark."""

import json
import re
import shlex
import shutil

import pytest

from tests.hub.small_kernel import ROOT

pytestmark = pytest.mark.xdist_group("hub_load")

QUICK = ("--iterations", "1", "--warmup", "0")
WORKLOADS = ("attention", "layer_norm", "linear", "mlp", "vit_block")


def test_info_and_versions(client, package):
    human = client.kernels("info", "org/neuron-vit")
    assert human.returncode == 0, human.stderr
    lines = dict(line.split(": ", 1) for line in human.stdout.splitlines())
    # The dependencies are those of one of the variants, whichever comes first.
    assert lines.pop("Python dependencies") in ("-", "nki")
    assert lines == {
        "Repository": "org/neuron-vit",
        "Revision": "v1",
        "Name": "neuron-vit",
        "Version": "1",
        "Minimum kernels version": "-",
        "License": "Apache-2.0",
        "Upstream": "-",
        "Source": "-",
        "Backends": "cpu, neuron",
    }
    run = client.kernels("versions", "org/neuron-vit")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Version 1:\n")
    assert "torch-cpu" in run.stdout and "torch-neuron" in run.stdout


def test_info_of_a_missing_version(client, small):
    run = client.kernels("info", "org/small", "--version", "7")
    assert run.returncode == 1
    assert "Version 7 not found, available versions: 1" in run.stderr


def test_benchmark_of_the_checkout_runs_and_verifies(client, real_build):
    """`kernels benchmark .` where build/ and benchmarks/ lie side by side."""
    shutil.copytree(real_build, client.folder / "build")
    shutil.copytree(ROOT / "benchmarks", client.folder / "benchmarks")
    run = client.kernels("benchmark", ".", *QUICK, "--output", "results.json")
    assert run.returncode == 0, run.stderr
    for workload in WORKLOADS:
        (row,) = [line for line in run.stderr.splitlines() if f" {workload} " in line]
        assert "✓" in row
    results = json.loads((client.folder / "results.json").read_text())["results"]
    assert {result["workload"] for result in results} == {
        f"VitBenchmark.{workload}" for workload in WORKLOADS
    }
    assert all(result["verified"] for result in results)


def test_benchmark_that_does_not_verify(client, breakable):
    """A wrong result ends the benchmark; nothing is timed."""
    folder = shutil.copytree(breakable / "benchmarks", client.folder / "benchmarks")
    shutil.move(breakable, client.folder / "build")
    script = folder / "benchmark.py"
    script.write_text(script.read_text().replace("self.x + self.x", "self.x"))
    run = client.kernels("benchmark", ".", *QUICK)
    assert run.returncode == 1
    assert "Verification failed for double" in run.stderr
    assert "Mean" not in run.stderr


def test_benchmark_without_tabulate(client):
    run = client.kernels("benchmark", ".", before="import sys; sys.modules['tabulate'] = None")
    assert run.returncode == 1
    assert run.stderr == (
        "Error: Missing dependencies for benchmark: tabulate\n"
        "Install with: pip install 'kernels[benchmark]'\n"
    )


def test_benchmark_of_a_repository_goes_by_a_folder(client, small, small_build):
    """By its name a repository is looked for among the models; the card's commands work."""
    run = client.kernels("benchmark", "org/small@v1", *QUICK)
    assert run.returncode == 1
    assert "RepositoryNotFoundError" in run.stderr and "/api/models/org/small" in run.stderr

    card = (small_build / "CARD.md").read_text().replace("org/neuron-vit", "org/small")
    (block,) = re.findall(r"^## Benchmark$.*?^```\n(.*?)^```", card, re.DOTALL | re.MULTILINE)
    download, benchmark = (shlex.split(line) for line in block.splitlines())
    assert (download[0], benchmark[0]) == ("hf", "kernels")
    run = client.hf(*download[1:])
    assert run.returncode == 0, run.stderr
    run = client.kernels(*benchmark[1:], *QUICK)
    assert run.returncode == 0, run.stderr
    assert "✓" in run.stderr
