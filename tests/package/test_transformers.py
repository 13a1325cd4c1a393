"""The attention hook: a model of transformers with its attention through the package."""

import pytest
import torch
from torch import nn

import neuron_vit as nv

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "image_size": 16,
    "patch_size": 4,
}
MODELS = {
    "ViT": (transformers.ViTModel, transformers.ViTConfig, {}),
    "DeiT": (transformers.DeiTModel, transformers.DeiTConfig, {}),
    "Dinov2": (transformers.Dinov2Model, transformers.Dinov2Config, {}),
    "CLIP": (transformers.CLIPVisionModel, transformers.CLIPVisionConfig, {}),
    "Siglip": (transformers.SiglipVisionModel, transformers.SiglipVisionConfig, {}),
    # A bias for each head, the same for all images.
    "Beit": (
        transformers.BeitModel, transformers.BeitConfig, {"use_relative_position_bias": True},
    ),
    # Windows, whose bias has another mask where the windows wrap around.
    "Swin": (
        transformers.SwinModel, transformers.SwinConfig,
        {"embed_dim": 16, "depths": [2], "num_attention_heads": [2], "window_size": 2},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def registered():
    return nv.register_with_transformers()


def build(family, dtype=torch.float32):
    model, config, extra = MODELS[family]
    torch.manual_seed(0)
    return model(config(**{**SIZES, **extra})).eval().to(dtype)


def hidden(model, pixels):
    with torch.no_grad():
        return model(pixels).last_hidden_state


@pytest.mark.parametrize("family", MODELS)
def test_outputs_equal_eager(family, registered):
    model, pixels = build(family), torch.randn(2, 3, 16, 16)
    model.set_attn_implementation("eager")
    expected = hidden(model, pixels)
    assert nv.last_path() is None
    model.set_attn_implementation(registered)
    found = hidden(model, pixels)
    assert nv.last_path() == "torch"
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", MODELS)
def test_every_layer_runs_the_kernel(family, registered, simulated, monkeypatch):
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    model, pixels = build(family), torch.randn(2, 3, 16, 16)
    expected = hidden(model, pixels)
    model.set_attn_implementation(registered)
    found = hidden(model, pixels)
    assert nv.launches() == {"attention": 2}
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_gradients_through_the_hook(registered):
    model, pixels = build("ViT"), torch.randn(2, 3, 16, 16)

    def gradient(implementation):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        model(pixels).last_hidden_state.square().mean().backward()
        return model.layers[0].attention.q_proj.weight.grad.clone()

    torch.testing.assert_close(gradient(registered), gradient("eager"), rtol=1e-4, atol=1e-7)


def test_packed_sequences():
    q, k, v = (torch.randn(1, 10, 4, 8).transpose(1, 2) for _ in range(3))
    bounds = torch.tensor([0, 1, 7, 10], dtype=torch.int32)
    segments = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": 6}
    out, _ = nv.flash_attn_forward(Layer(is_causal=False), q, k, v, None, **segments)
    number = torch.tensor([0] + [1] * 6 + [2] * 3)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, number[:, None] == number)
    torch.testing.assert_close(out, expected.transpose(1, 2))
    mask = torch.ones(10, 10, dtype=torch.bool)
    for arguments in ({"attention_mask": mask}, {"dropout": 0.1}, {"cu_seq_lens_k": None}):
        with pytest.raises(nv.NeuronVitUnsupported, match="cu_seq_lens_q and cu_seq_lens_k go"):
            nv.flash_attn_forward(
                Layer(is_causal=False), q, k, v,
                **{"attention_mask": None, **segments, **arguments},
            )  # fmt: skip


def test_grouped_heads():
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    out, _ = nv.flash_attn_forward(Layer(is_causal=False), q, k, v, None)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(out, expected.transpose(1, 2))


class Layer(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        vars(self).update(attributes)


def operands():
    return [torch.randn(2, 5, 3, 8).transpose(1, 2) for _ in range(3)]


def test_contract():
    q, k, v = operands()
    out, weights = nv.flash_attn_forward(Layer(is_causal=False), q, k, v, None, 0.3, dropout=0.0)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, scale=0.3)
    assert weights is None and out.shape == (2, 5, 3, 8) and out.is_contiguous()
    torch.testing.assert_close(out, expected.transpose(1, 2))
    # Transformers only looks for the name; the mask it then builds is the one for sdpa.
    assert nv.supports_flash_attn and not hasattr(nv, "flash_attn_varlen_func")


@pytest.mark.parametrize("mask", ["bool", "float"])
def test_masks_are_applied(mask):
    q, k, v = operands()
    mask = torch.rand(2, 1, 5, 5) < 0.7 if mask == "bool" else torch.randn(2, 1, 5, 5)
    # A mask holds the causal pattern itself, as with sdpa.
    out, _ = nv.flash_attn_forward(Layer(is_causal=True), q, k, v, mask)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(out, expected.transpose(1, 2))


@pytest.mark.parametrize(
    ("layer", "keywords", "causal"),
    [
        (Layer(is_causal=False), {}, False),
        (Layer(is_causal=False), {"is_causal": None}, False),
        (Layer(is_causal=True), {"is_causal": False}, False),
        (Layer(is_causal=True), {}, True),
        (Layer(is_causal=False), {"is_causal": True}, True),
        (Layer(), {}, True),
    ],
)
def test_causal_is_resolved_as_by_sdpa_and_refused(layer, keywords, causal):
    q, k, v = operands()
    if causal:
        with pytest.raises(nv.NeuronVitUnsupported, match='Layer asks for causal.*"sdpa"'):
            nv.flash_attn_forward(layer, q, k, v, None, **keywords)
    else:
        nv.flash_attn_forward(layer, q, k, v, None, **keywords)
    nv.flash_attn_forward(layer, q[:, :, :1], k, v, None, **keywords)  # one query sees all keys


@pytest.mark.parametrize("name", ["s_aux", "softcap", "sliding_window", "position_bias"])
def test_arguments_that_change_the_result_are_refused(name):
    q, k, v = operands()
    nv.flash_attn_forward(Layer(is_causal=False), q, k, v, None, **{name: None}, unknown=1)
    with pytest.raises(nv.NeuronVitUnsupported, match=f"{name} is given"):
        nv.flash_attn_forward(Layer(is_causal=False), q, k, v, None, **{name: 5})
