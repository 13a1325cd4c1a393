"""The layers, put into models by the `kernels` library."""

import ast
import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import neuron_vit as nv

kernels = pytest.importorskip("kernels")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A built repository in a folder: the package as the variant torch-cpu."""
    root = tmp_path_factory.mktemp("repository")
    variant = root / "build" / "torch-cpu"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "kernels" / "neuron_vit", variant, ignore=ignored)
    operators = (variant / "_ops.py").read_text()
    name = "_neuron_vit_cpu_layers_test"
    (variant / "_ops.py").write_text(operators.replace("_neuron_vit_checkout", name))
    metadata = {
        "name": "neuron-vit",
        "id": name,
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (variant / "metadata.json").write_text(json.dumps(metadata))
    return root


@kernels.use_kernel_forward_from_hub("LayerNorm")
class LayerNorm(nn.LayerNorm):
    pass


@kernels.use_kernel_forward_from_hub("RMSNorm")
class RMSNorm(nn.Module):
    """As in transformers."""

    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * hidden_states * torch.rsqrt(variance + self.variance_epsilon)


def model():
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(12, 16),
        LayerNorm(16, eps=0.5),
        LayerNorm(16, elementwise_affine=False),
        LayerNorm(16, bias=False),
        RMSNorm(16, eps=0.5),  # last: a norm after it would hide a wrong scale
    )
    for parameter in layers.parameters():
        nn.init.normal_(parameter)
    return layers


def kernelized(layers, repository, mode):
    mapping = {
        name: {"cpu": kernels.LocalLayerRepository(repository, layer_name=name)}
        for name in ("LayerNorm", "RMSNorm")
    }
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        return kernels.kernelize(layers, mode=mode, device="cpu", use_fallback=False)


@pytest.mark.parametrize("training", [False, True])
def test_kernelize(repository, training):
    mode = kernels.Mode.TRAINING if training else kernels.Mode.INFERENCE
    x = torch.randn(2, 5, 12)
    plain, ours = model(), kernelized(model(), repository, mode | kernels.Mode.TORCH_COMPILE)
    replaced = [module for module in ours if "neuron_vit" in module.forward.__func__.__module__]
    assert len(replaced) == 4
    torch.testing.assert_close(ours(x), plain(x))
    if training:
        ours(x).square().sum().backward()
        plain(x).square().sum().backward()
        for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)


def test_kernelized_model_compiles(repository):
    torch.compiler.reset()
    mode = kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE
    ours, x = kernelized(model(), repository, mode), torch.randn(2, 5, 12)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), ours(x))


def test_kernelized_model_runs_the_kernel(repository, simulated):
    ours, x = kernelized(model(), repository, kernels.Mode.INFERENCE), torch.randn(2, 5, 12)
    with torch.no_grad():
        found = ours(x)
    package = kernels.get_local_kernel(repository)
    assert package.launches() == {"layer_norm": 3, "rms_norm": 1}
    assert nv.launches() == {}  # the checkout's copy of the package is another one
    torch.testing.assert_close(found, model()(x))


BLOCKS = sorted(nv.layouts._MODELS)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "MLP", *BLOCKS])
def test_layers_are_pure(name):
    """What `kernelize` asks for: no constructor, no state, nothing but forward and two flags."""
    layer = getattr(nv.layers, name)
    members = set(dir(layer)) - set(dir(nn.Module))
    assert members == {"can_torch_compile", "has_backward"}
    assert layer.__init__ is nn.Module.__init__ and layer.forward is not nn.Module.forward
    assert layer.can_torch_compile and layer.has_backward == (name not in BLOCKS)


def test_layers_are_listed_for_the_card():
    """The card lists the classes at the top of layers.py, so there is nothing else there."""
    tree = ast.parse((ROOT / "kernels" / "neuron_vit" / "layers.py").read_text())
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    listed = [name for name in classes if not name.startswith("_")]
    assert listed[:3] == ["LayerNorm", "RMSNorm", "MLP"] and sorted(listed[3:]) == BLOCKS
