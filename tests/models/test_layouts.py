"""The block classes of `layers`, put into transformers' layers as `kernelize` does it.

tests/hub/test_layouts.py has the way there through `KernelConfig` and the Hub.
"""

import copy
import warnings

import pytest
import torch
from transformers import ViTConfig, ViTModel
from transformers.models.clip import modeling_clip

import neuron_vit as nv
from neuron_vit import _dispatch, _packing, layouts
from tests.parity import rule

from .copies import WAYS, copied
from .families import FAMILIES, block, stream, tables
from .test_blocks import run_layer

pytest.importorskip("kernels")
from kernels import Mode, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping  # noqa: E402

TRANSFORMERS = [
    name
    for name, family in FAMILIES.items()
    if type(family.make(family.small)).__name__ in layouts._MODELS
]
# Every way of calling a block.
KINDS = ["vit", "dinov3", "internvit-6b", "pixtral", "qwen2.5-vl"]


class Checkout:
    """A repository of layers for `kernelize`: this checkout's."""

    def __init__(self, layer_name):
        self.layer_name = layer_name

    def load(self):
        return getattr(nv.layers, self.layer_name)


@pytest.fixture(autouse=True)
def clean_state(monkeypatch):
    for variable in ("NKI_SIMULATOR", "NEURON_VIT_REQUIRE_NKI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(_dispatch, "_warned", set())
    nv.reset_launches()


@pytest.fixture
def simulated(monkeypatch):
    """NKI kernels or an error."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")


def kernelized(layer, mode=Mode.INFERENCE):
    """The layer as its layout, kernelized by the kernels library, which validates our class."""
    name = type(layer).__name__
    layer.__class__ = getattr(nv.layers, name + "Layout")
    layer.__class__.kernel_layer_name = name  # as transformers does
    with use_kernel_mapping({name: {"cpu": Checkout(name)}}, inherit_mapping=False):
        return kernelize(layer, mode=mode, device="cpu")


def small(name, dtype=torch.float32):
    family = FAMILIES[name]
    return family, kernelized(block(family, family.small, dtype))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_computes_what_the_layer_computes(name):
    family, layer = small(name, torch.float64)
    x, angles = stream(family.small, torch.float64), tables(family, family.small, torch.float64)
    with torch.no_grad():
        found = family.call(layer, x, angles)
    expected = run_layer(family, family.small, torch.float64, torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert nv.last_path() == "torch"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "name", [n if n in KINDS else pytest.param(n, marks=pytest.mark.long) for n in TRANSFORMERS]
)
def test_runs_the_kernel(name, dtype, simulated):
    family, layer = small(name, dtype)
    x, angles = stream(family.small, dtype), tables(family, family.small, dtype)
    with torch.no_grad():
        outputs = [family.call(layer, x, angles) for _ in range(2)]
    base = run_layer(family, family.small, dtype, dtype)
    reference = run_layer(family, family.small, dtype, torch.float64)
    report = rule.judge(name, *outputs, base, reference)
    assert report.ok, str(report)
    assert nv.launches() == {"vit_block": 2}


@pytest.mark.parametrize("name", KINDS)
def test_a_layout_alone_is_the_librarys_layer(name):
    family = FAMILIES[name]
    layer = block(family, family.small, torch.float32)
    x, angles = stream(family.small, torch.float32), tables(family, family.small, torch.float32)
    expected = family.call(layer, x, angles)
    layer.__class__ = getattr(nv.layers, type(layer).__name__ + "Layout")
    found = family.call(layer, x, angles)
    assert torch.equal(found, expected) and found.requires_grad
    assert nv.last_path() is None


def test_layouts_are_found_by_name_and_nothing_else_is():
    assert nv.layers.ViTLayerLayout is nv.layers.ViTLayerLayout
    assert nv.layers.ViTLayerLayout.__module__ == nv.layers.__name__
    assert "forward" in vars(nv.layers.ViTLayerLayout)
    for name in ("ViTLayout", "Layout", "LayerNormLayout", "other"):
        assert not hasattr(nv.layers, name)


def test_a_plain_layer_can_be_kernelized():
    """Without a layout, by naming transformers' own class."""
    from transformers.models.vit.modeling_vit import ViTLayer

    family = FAMILIES["vit"]
    layer, x = block(family, family.small, torch.float32), stream(family.small, torch.float32)
    try:
        replace_kernel_forward_from_hub(ViTLayer, "ViTLayer")
        with use_kernel_mapping({"ViTLayer": {"cpu": Checkout("ViTLayer")}}, inherit_mapping=False):
            ours = kernelize(copy.deepcopy(layer), mode=Mode.INFERENCE, device="cpu")
    finally:
        del ViTLayer.kernel_layer_name, ViTLayer.kernel_condition
    with torch.no_grad():
        torch.testing.assert_close(ours(x), layer(x))
    assert nv.last_path() == "torch"


@pytest.mark.parametrize("change", ["load", "in place", "replace", "move"])
def test_changed_weights_are_packed_again(change):
    family, layer = small("vit")
    x = stream(family.small, torch.float32)
    other = block(family, family.small, torch.float32, seed=1)
    with torch.no_grad():
        before = layer(x)
        if change == "load":
            layer.load_state_dict(other.state_dict())
        elif change == "in place":
            for mine, theirs in zip(layer.parameters(), other.parameters(), strict=True):
                mine.copy_(theirs)
        elif change == "replace":
            layer.mlp = other.mlp
            layer.attention, layer.layernorm_before = other.attention, other.layernorm_before
            layer.layernorm_after = other.layernorm_after
        else:
            layer.load_state_dict(other.state_dict())
            layer.double()
            other.double()
            x = x.double()
        expected = other(x)
        torch.testing.assert_close(layer(x), expected)
    assert not torch.allclose(before, expected.float())


@pytest.mark.parametrize("how", WAYS)
def test_copies_have_their_own_weights(how):
    family, layer = small("vit")
    x = stream(family.small, torch.float32)
    with torch.no_grad():
        expected = layer(x)
        other = copied(layer, how)
        assert vars(other)[_packing._ATTRIBUTE].params is None  # nothing is carried along
        torch.testing.assert_close(other(x), expected)
        other.mlp.fc2.bias.add_(1.0)
        torch.testing.assert_close(other(x), expected + 1.0)
        torch.testing.assert_close(layer(x), expected)
    assert nv.last_path() == "torch"
    assert list(layer.state_dict()) == list(block(family, family.small, x.dtype).state_dict())


def test_inference_mode_before_anything_else():
    family, layer = small("vit")
    x = stream(family.small, torch.float32)
    with torch.inference_mode():
        expected = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected)
    with torch.inference_mode():
        made = kernelized(block(family, family.small, torch.float32))
        torch.testing.assert_close(made(x), expected)


def own_runs(layer, *arguments, **options):
    """What a call returns, and the one warning that it gives; the layer's own forward ran."""
    nv.reset_launches()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = layer(*arguments, **options)
        layer(*arguments, **options)
    assert nv.launches() == {} and nv.last_path() == "torch"
    (warning,) = caught
    assert warning.category is nv.NeuronVitFallbackWarning
    return result, str(warning.message)


def test_gradients_come_from_the_layer_itself(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    family, layer = small("vit")
    x, plain = stream(family.small, torch.float32), block(family, family.small, torch.float32)
    result, message = own_runs(layer, x)
    assert "ViTLayer may have to give gradients" in message and "torch.no_grad()" in message
    result.square().sum().backward()
    plain(x).square().sum().backward()
    for mine, theirs in zip(layer.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match="may have to give gradients"):
        layer(x)


def test_gradients_of_the_tokens_alone_go_through_the_kernel(simulated):
    family, layer = small("vit")
    layer.requires_grad_(False)
    x = stream(family.small, torch.float32).requires_grad_()
    plain = block(family, family.small, torch.float32)
    (found,) = torch.autograd.grad(layer(x).sum(), x)
    assert nv.launches() == {"vit_block": 1}
    (expected,) = torch.autograd.grad(plain(x).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_training_mode_leaves_the_layer_as_it_is():
    family = FAMILIES["vit"]
    layer = kernelized(block(family, family.small, torch.float32), Mode.TRAINING)
    layer(stream(family.small, torch.float32)).sum().backward()
    assert nv.last_path() is None
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_dropout_in_training_mode(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    family, layer = small("vit")
    layer.dropout.p = 0.5
    layer.train()
    with torch.no_grad():
        _, message = own_runs(layer, stream(family.small, torch.float32))
    assert "dropout.p is 0.5" in message and "layer.eval()" in message


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks(kind):
    family, layer = small("siglip2")
    plain, x = block(family, family.small, torch.float32), stream(family.small, torch.float32)
    mask = torch.rand(1, 1, x.shape[1], x.shape[1]) < 0.7
    if kind == torch.float32:
        mask = torch.where(mask, 0.0, -3.0)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, mask), plain(x, mask))
        assert nv.last_path() == "torch"
        assert not torch.allclose(layer(x, mask), layer(x, None))


def test_calls_that_the_kernel_does_not_cover(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    family, layer = small("clip")
    plain, x = block(family, family.small, torch.float32), stream(family.small, torch.float32)
    cases = {
        "causal attention": {"attention_mask": None, "is_causal": True},
        "the attention weights": {"attention_mask": None, "output_attentions": True},
        "the attention mask": {"attention_mask": torch.zeros(x.shape[1], x.shape[1])},
    }
    with torch.no_grad():
        for part, options in cases.items():
            result, message = own_runs(layer, x, **options)
            assert part in message and "CLIPEncoderLayer" in message
            torch.testing.assert_close(result, plain(x, **options))
    assert isinstance(layer, modeling_clip.CLIPEncoderLayer)


def vit_model(layers=2):
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32, num_attention_heads=2, intermediate_size=48,
        num_hidden_layers=layers, image_size=16, patch_size=4, attn_implementation="eager",
    )  # fmt: skip
    return ViTModel(config).eval()


@pytest.mark.parametrize("asked", ["in the call", "in the config"])
def test_attention_weights_of_a_model(asked, monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    plain, model, pixels = vit_model(), vit_model(), torch.randn(2, 3, 16, 16)
    for layer in model.layers:
        kernelized(layer)
    options = {}
    if asked == "in the call":
        options["output_attentions"] = True
    else:
        plain.config.output_attentions = model.config.output_attentions = True
    with torch.no_grad():
        found, message = own_runs(model, pixels, **options)
        expected = plain(pixels, **options).attentions
    assert "the attention weights" in message and len(expected) == 2
    for ours, theirs in zip(found.attentions, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    model.config.output_attentions = False
    with torch.no_grad():  # transformers' hooks stay, and do nothing
        model(pixels)
    assert nv.launches() == {"vit_block": 2}


def test_a_hook_within_a_layer(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    family, layer = small("vit")
    seen = []
    hook = layer.mlp.register_forward_hook(lambda *arguments: seen.append(1))
    x = stream(family.small, torch.float32)
    with torch.no_grad():
        _, message = own_runs(layer, x)
        assert "a ViTMLP within ViTLayer has a hook" in message and len(seen) == 2
        hook.remove()
        layer(x)
    assert nv.launches() == {"vit_block": 1}


def test_autocast(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    family, layer = small("vit")
    plain, x = block(family, family.small, torch.float32), stream(family.small, torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        result, message = own_runs(layer, x)
        assert "under autocast" in message
        assert torch.equal(result, plain(x))


def test_segments_of_a_packed_batch():
    family, layer = small("pixtral")
    plain = block(family, family.small, torch.float32)
    x, angles = stream(family.small, torch.float32), tables(family, family.small, torch.float32)
    bounds = torch.tensor([0, 20, x.shape[1]], dtype=torch.int32)
    segment = torch.bucketize(torch.arange(x.shape[1]), bounds[1:-1], right=True)
    mask = (segment[:, None] == segment)[None, None]
    with torch.no_grad():
        found = layer(x, None, angles, cu_seq_lens_q=bounds, cu_seq_lens_k=bounds)
        torch.testing.assert_close(found, plain(x, mask, angles))


class TestCompiled:
    """A model of kernelized layers under torch.compile."""

    def model(self):
        torch.compiler.reset()
        model = vit_model(layers=1)
        for layer in model.layers:
            kernelized(layer)
        return model, torch.randn(2, 3, 16, 16)

    def test_one_graph_without_a_second_compilation(self):
        model, x = self.model()
        with torch.no_grad():
            expected = model(x).last_hidden_state
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(compiled(x).last_hidden_state, expected)
            with torch.compiler.set_stance("fail_on_recompile"):
                torch.testing.assert_close(compiled(x).last_hidden_state, expected)

    def test_weights_that_change_are_noticed(self):
        model, x = self.model()
        with torch.no_grad():
            model(x)
            compiled = torch.compile(model, backend="aot_eager")
            compiled(x)
            model.layers[0].mlp.fc2.bias.add_(1.0)
            with pytest.raises(nv.NeuronVitUnsupported, match="changed since they were packed"):
                compiled(x)
            expected = model(x).last_hidden_state
            torch.testing.assert_close(compiled(x).last_hidden_state, expected)

    @pytest.mark.long
    def test_packing_is_not_traced(self):
        model, x = self.model()
        with torch.no_grad():
            compiled = torch.compile(model, backend="aot_eager")
            found = compiled(x).last_hidden_state
            torch.testing.assert_close(found, model(x).last_hidden_state)

    def test_export(self):
        model, x = self.model()
        layer = model.layers[0]
        tokens = torch.randn(1, 17, 32)
        with torch.no_grad():
            expected = layer(tokens)
            program = torch.export.export(layer, (tokens,))
            layer.mlp.fc2.bias.add_(1.0)
            torch.testing.assert_close(program.module()(tokens), expected)
