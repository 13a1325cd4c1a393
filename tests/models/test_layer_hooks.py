"""`hook_layers` and the norms and MLPs of every family, put in by `kernels.kernelize`."""

import copy
import sys

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.models.siglip.modeling_siglip import SiglipMLP

import neuron_vit as nv
from neuron_vit import layer_hooks
from tests.parity import rule

from .families import FAMILIES, block, stream, tables
from .test_blocks import run_layer
from .test_layouts import TRANSFORMERS, Checkout

pytest.importorskip("kernels")
from kernels import Mode, kernelize, use_kernel_mapping  # noqa: E402

# What a block of each family has, twice each norm.
RMS = ("internvit-6b", "aimv2", "pixtral", "qwen2.5-vl")
SOME = ["vit", "dinov2-swiglu", "internvit-6b", "aimv2", "pixtral", "qwen2.5-vl"]


@pytest.fixture(autouse=True)
def clean_state(monkeypatch):
    """No variable set, nothing launched, and the marks on classes taken away again."""
    for variable in ("NKI_SIMULATOR", "NEURON_VIT_REQUIRE_NKI"):
        monkeypatch.delenv(variable, raising=False)
    nv.reset_launches()
    kinds = [nn.LayerNorm]
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("transformers.models."):
            kinds += [kind for kind in vars(module).values() if isinstance(kind, type)]
    before = {kind for kind in kinds if "kernel_layer_name" in vars(kind)}
    yield
    for kind in set(kinds) - before:
        if "kernel_layer_name" in vars(kind):
            del kind.kernel_layer_name, kind.kernel_condition


@pytest.fixture
def simulated(monkeypatch):
    """NKI kernels or an error."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")


def kernelized(model, mode=Mode.INFERENCE):
    mapping = {name: {"cpu": Checkout(name)} for name in nv.hook_layers(model)}
    with use_kernel_mapping(mapping, inherit_mapping=False):
        return kernelize(model, mode=mode, device="cpu")


def ours(model):
    return [
        module
        for module in model.modules()
        if getattr(module.forward.__func__, "__module__", "") == nv.layers.__name__
    ]


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_family(name):
    family = FAMILIES[name]
    layer = block(family, family.small, torch.float64)
    plain = copy.deepcopy(layer)
    norm = "RMSNorm" if name in RMS else "LayerNorm"
    assert nv.hook_layers(layer) == sorted(["MLP", norm])
    kernelized(layer)
    # Norms of queries and keys are taken as well.
    extra = sum(hasattr(layer, "attention") and hasattr(layer.attention, n + "_norm") for n in "qk")
    assert len(ours(layer)) == 3 + (extra if name == "internvit-6b" else 0)
    x, angles = stream(family.small, torch.float64), tables(family, family.small, torch.float64)
    with torch.no_grad():
        found, expected = family.call(layer, x, angles), family.call(plain, x, angles)
    # RMS norms of transformers compute in float32.
    precision = 1e-5 if norm == "RMSNorm" else 1e-9
    torch.testing.assert_close(found, expected, rtol=precision, atol=precision)
    assert list(layer.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "name", [n if n in SOME else pytest.param(n, marks=pytest.mark.long) for n in TRANSFORMERS]
)
def test_parity_through_the_kernels(name, dtype, simulated):
    family = FAMILIES[name]
    layer = kernelized(block(family, family.small, dtype))
    x, angles = stream(family.small, dtype), tables(family, family.small, dtype)
    with torch.no_grad():
        outputs = [family.call(layer, x, angles) for _ in range(2)]
    base = run_layer(family, family.small, dtype, dtype)
    reference = run_layer(family, family.small, dtype, torch.float64)
    report = rule.judge(name, *outputs, base, reference)
    assert report.ok, str(report)
    assert sum(nv.launches().values()) == 2 * len(ours(layer))


@pytest.mark.parametrize("name", ["vit", "aimv2"])
def test_gradients(name):
    family = FAMILIES[name]
    layer = block(family, family.small, torch.float32)
    plain = copy.deepcopy(layer)
    kernelized(layer, Mode.TRAINING)
    x = stream(family.small, torch.float32)
    for each in (layer, plain):
        family.call(each, x, None).square().mean().backward()
    for mine, theirs in zip(layer.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)


class Config:
    hidden_size, intermediate_size = 32, 48

    def __init__(self, activation):
        self.hidden_act = activation


@pytest.mark.parametrize("activation", sorted(set(ACT2FN) - {"xielu"}))
def test_the_activation_is_the_modules(activation):
    """Every activation that transformers has: computed as it is, or left to transformers."""
    torch.manual_seed(0)
    mlp = SiglipMLP(Config(activation)).eval()
    plain, x = copy.deepcopy(mlp), 3.0 * torch.randn(5, 32)
    kernelized(mlp)
    with torch.no_grad():
        torch.testing.assert_close(mlp(x), plain(x), rtol=1e-5, atol=1e-5)
    known = activation in (
        *("gelu", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_new", "gelu_fast"),
        *("gelu_accurate", "quick_gelu", "silu", "swish", "relu"),
    )
    assert len(ours(mlp)) == known
    assert nv.last_path() == ("torch" if known else None)


def test_an_activation_that_is_exchanged_later():
    mlp = SiglipMLP(Config("gelu")).eval()
    x = torch.randn(5, 32)
    kernelized(mlp)
    with torch.no_grad():
        before = mlp(x)
        mlp.activation_fn = nn.ReLU()
        after = mlp(x)
        torch.testing.assert_close(after, mlp.fc2(mlp.fc1(x).relu()))
    assert not torch.allclose(before, after)


def test_activations_alone_keep_their_forward():
    family = FAMILIES["vit"]
    layer = kernelized(block(family, family.small, torch.float32))
    activation = layer.mlp.activation_fn
    assert activation.kernel_layer_name == "GeLU" and activation not in ours(layer)


class LayerNorm2d(nn.LayerNorm):
    """As timm's: over the channels of an image."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class LayerNorm(nn.Module):
    """Somebody else's class of that name."""

    def forward(self, x):
        return x


class Named(nn.LayerNorm):
    """Another name, and what the parent computes."""


def test_norms_that_are_something_else_are_left_alone():
    model = nn.Sequential(LayerNorm2d(8), LayerNorm(), nn.LayerNorm(8), Named(8))
    assert nv.hook_layers(model) == ["LayerNorm"]
    kernelized(model)
    assert ours(model) == [model[2], model[3]]
    model[0](torch.randn(2, 8, 3, 3))
    model[1](torch.randn(2))


def test_a_subclass_with_another_forward_is_left_alone():
    class Other(SiglipMLP):
        def forward(self, hidden_states):
            return hidden_states

    mlp = nn.Sequential(SiglipMLP(Config("gelu")), Other(Config("gelu")))
    kernelized(mlp)
    assert ours(mlp) == [mlp[0]]


def test_a_lone_condition_for_each_layer():
    assert set(layer_hooks._CONDITIONS) == {"LayerNorm", "RMSNorm", "MLP"}
    assert nv.hook_layers(nn.Linear(2, 2)) == []


def test_compiled_whole():
    torch.compiler.reset()
    family = FAMILIES["vit"]
    layer, x = block(family, family.small, torch.float32), stream(family.small, torch.float32)
    kernelized(layer, Mode.INFERENCE | Mode.TORCH_COMPILE)
    assert len(ours(layer)) == 3
    with torch.no_grad():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), layer(x))
