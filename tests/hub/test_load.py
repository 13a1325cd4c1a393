"""Loading what was published with the real kernels library.

Each client starts with an empty cache, so that everything it loads has come from the loopback Hub.
"""

import json
import re
import shutil

import pytest

from hub.build import build
from hub.check import check
from tests.hub.small_kernel import ROOT, commit, git

# A host on which torch has a Neuron device, as far as the kernels library can tell.
NEURON_HOST = "torch.neuron = types.SimpleNamespace()\n"
WITH_NKI = """
import importlib.machinery
sys.modules["nki"] = types.ModuleType("nki")
sys.modules["nki"].__spec__ = importlib.machinery.ModuleSpec("nki", None)
"""


# One test process for all of them: publishing is done once.
pytestmark = pytest.mark.xdist_group("hub_load")


def test_a_cpu_host_loads_the_cpu_variant(client, small):
    shown = client(
        """
from kernels import get_kernel
from kernels.importer import get_loaded_kernels

kernel = get_kernel("org/small", version=1, trust_remote_code=True)
metadata = get_loaded_kernels()[0].metadata
show(
    result=kernel.double(torch.ones(2)).tolist(),
    names=kernel.__all__,
    identifier=metadata.id,
    version=metadata.version,
    own=sorted(n for n in torch.ops._dir if n.startswith("_neuron_vit")),
)
"""
    )
    assert shown["result"] == [2, 2]
    assert shown["names"] == ["double", "layers"]
    assert shown["version"] == 1
    assert shown["own"] == [shown["identifier"]]
    assert shown["identifier"].startswith("_neuron_vit_cpu_")


def test_a_neuron_host_loads_both_variants_side_by_side(client, small):
    shown = client(
        NEURON_HOST
        + WITH_NKI
        + """
from kernels import get_kernel, get_loaded_kernels

neuron = get_kernel("org/small", version=1, trust_remote_code=True)
cpu = get_kernel("org/small", version=1, trust_remote_code=True, backend="cpu")
show(
    neuron=neuron.double(torch.ones(1)).tolist(),
    cpu=cpu.double(torch.ones(1)).tolist(),
    same=neuron.__all__ == cpu.__all__,
    identifiers=[loaded.metadata.id for loaded in get_loaded_kernels()],
    depends=[loaded.metadata.python_depends for loaded in get_loaded_kernels()],
    own=sorted(n for n in torch.ops._dir if n.startswith("_neuron_vit")),
)
"""
    )
    assert shown["neuron"] == shown["cpu"] == [2]
    assert shown["same"]
    neuron, cpu = shown["identifiers"]
    assert neuron.startswith("_neuron_vit_neuron_") and cpu.startswith("_neuron_vit_cpu_")
    assert shown["depends"] == [["nki"], []]
    # Each variant registered its operators under its own name.
    assert shown["own"] == sorted([neuron, cpu])


def test_the_package_loads_and_computes_on_a_cpu(client, package):
    shown = client(
        """
from kernels import get_kernel

kernel = get_kernel("org/neuron-vit", version=1, trust_remote_code=True)
torch.manual_seed(0)
x, weight, bias = torch.randn(5, 48), torch.randn(48), torch.randn(48)
expected = torch.nn.functional.layer_norm(x, (48,), weight, bias)
found = kernel.layer_norm(x, (48,), weight, bias)
show(
    error=(found - expected).abs().max().item(),
    path=kernel.last_path(),
    missing=[name for name in kernel.__all__ if not hasattr(kernel, name)],
    names=kernel.__all__,
    bare=sorted({"nki", "nki_src", "reference", "neuron_vit", "nki_emulator"} & set(sys.modules)),
)
"""
    )
    assert shown["error"] < 1e-5
    assert shown["missing"] == []
    assert {"layer_norm", "scaled_dot_product_attention", "vit_block"} <= set(shown["names"])
    assert shown["bare"] == []


def test_the_cards_quickstart_runs_as_printed(client, package, real_build):
    card = (real_build / "CARD.md").read_text()
    functions, whole_model = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    model = "model = torch.nn.Sequential(torch.nn.LayerNorm(8))"
    report = "show(shape=list(out.shape), paths=[row.path for row in nv.report(model)])"
    shown = client("\n".join([functions, model, whole_model, report]))
    assert shown["shape"] == [1, 12, 197, 64]
    assert shown["paths"] == ["op"]


def test_the_package_passes_its_checks(real_build):
    assert [str(finding) for finding in check(real_build)] == []


def test_the_package_builds_the_same_elsewhere(tmp_path):
    """From the same commit, in another folder: this project's files, committed and cloned."""
    first, second = tmp_path / "first", tmp_path / "second" / "clone"
    ignored = shutil.ignore_patterns("__pycache__", ".*", "build")
    for name in ("kernels", "nki_src", "reference", "torch-ext", "benchmarks", "tests/parity"):
        shutil.copytree(ROOT / name, first / name, symlinks=True, ignore=ignored)
    for name in ("build.toml", "CARD.md", "LICENSE", "pyproject.toml", "constraints.txt"):
        shutil.copyfile(ROOT / name, first / name)
    commit(first)
    git(tmp_path, "clone", "--quiet", str(first), str(second))
    variants = build(first, first / "build")
    build(second, second / "build")
    assert contents(first / "build") == contents(second / "build")
    digests = [json.loads((path / "metadata.json").read_text())["digest"] for path in variants]
    assert all(len(digest["files"]) > 20 for digest in digests)


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
