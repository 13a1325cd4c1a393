"""The expressions against implementations by others, in float64: the ground the rule stands on."""

import pytest
import torch
import torch.nn.functional as F
from transformers.activations import ACT2FN

from . import expressions, inputs, rule


def arguments_of(kernel, **settings):
    arguments = inputs.BUILDERS[kernel](inputs.Draw(torch.float32, seed=7), **settings)
    return [rule.upcast(argument) for argument in arguments]


@pytest.mark.parametrize("layout", inputs.LAYOUTS)
def test_attention_is_torch_s(layout):
    settings = dict(tokens=11, head_dim=8, batch=2, heads=3)
    arguments = arguments_of("attention", layout=layout, scale=0.3, **settings)
    q, k, v, scale, *views = arguments
    operands = [
        tensor if view is None else torch.as_strided(tensor, *view, tensor.storage_offset())
        for tensor, view in zip((q, k, v), views)
    ]
    expected = F.scaled_dot_product_attention(*operands, scale=scale).transpose(1, 2)
    torch.testing.assert_close(expressions.attention(*arguments), expected)


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        *(("gelu", "gelu_python"), ("gelu_tanh", "gelu_new"), ("quick_gelu", "quick_gelu")),
        *(("silu", "silu"), ("relu", "relu")),
    ],
)
def test_activations_are_those_of_transformers(activation, name):
    x = torch.linspace(-12, 12, 1001, dtype=torch.float64)
    torch.testing.assert_close(expressions.ACTIVATIONS[activation](x), ACT2FN[name](x))


@pytest.mark.parametrize("layout", ["in_out", "out_in"])
def test_linear_and_mlp_are_torch_s_modules(layout):
    x, weight1, bias1, weight2, bias2, *_ = arguments_of(
        "mlp", tokens=5, width=12, hidden=20, out=7, layout=layout
    )
    module = torch.nn.Sequential(
        torch.nn.Linear(12, 20), torch.nn.GELU(), torch.nn.Linear(20, 7)
    ).double()
    parameters = [weight1, bias1, weight2, bias2]
    for target, source in zip(module.parameters(), parameters):
        target.data.copy_(source.mT if layout == "in_out" and source.ndim == 2 else source)
    result = expressions.mlp(x, weight1, bias1, weight2, bias2, "gelu", layout)
    torch.testing.assert_close(result, module(x))


@pytest.mark.parametrize("packed", [None, "gate first", "gate last"])
def test_the_gated_mlp_of_the_definition(packed):
    arguments = arguments_of("swiglu_mlp", tokens=5, width=12, hidden=20, packed=packed, norm="rms")
    x, gate, gate_bias, up, up_bias, down, down_bias, _, _, weight, _, eps, _ = arguments
    if packed == "gate first":
        gate, up, gate_bias, up_bias = gate[:, :20], gate[:, 20:], gate_bias[:20], gate_bias[20:]
    elif packed == "gate last":
        gate, up, gate_bias, up_bias = up[:, 20:], up[:, :20], up_bias[20:], up_bias[:20]
    gates = x @ gate + gate_bias
    hidden = gates / (1 + (-gates).exp()) * (x @ up + up_bias)
    hidden = hidden / (hidden.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    torch.testing.assert_close(expressions.swiglu_mlp(*arguments), hidden @ down + down_bias)


def test_modulated_norms_of_the_definition():
    settings = dict(tokens=3, width=12, batch=2, affine=True, residual=True, gate=True)
    arguments = arguments_of("ada_layer_norm", **settings)
    x, shift, scale, weight, bias, residual, gate, eps = arguments
    out, total = expressions.ada_layer_norm(*arguments)
    for image in range(2):
        expected = residual[image] + gate[image] * x[image]
        torch.testing.assert_close(total[image], expected)
        normed = F.layer_norm(expected, (12,), weight, bias, eps)
        torch.testing.assert_close(out[image], normed * (1 + scale[image]) + shift[image])


def test_norms_of_the_definition():
    x, weight, bias, residual, eps = arguments_of("layer_norm", residual=True, eps=1e-2)
    total = x + residual
    centred = total - total.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * weight + bias
    result, returned = expressions.layer_norm(x, weight, bias, residual, eps)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(returned, total)
    expected = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    torch.testing.assert_close(expressions.rms_norm(x, weight, None, eps), expected)


def test_the_block_is_torch_s_encoder_layer():
    arguments = arguments_of("vit_block", tokens=9, batch=2, width=24, heads=3, head_dim=8)
    x, norm1_weight, norm1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias = arguments[:7]
    norm2_weight, norm2_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias = arguments[8:14]
    layer = torch.nn.TransformerEncoderLayer(
        24, 3, 512, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True,
        norm_first=True,
    ).double()  # fmt: skip
    for target, source in [
        (layer.self_attn.in_proj_weight, qkv_weight.T),
        (layer.self_attn.in_proj_bias, qkv_bias),
        (layer.self_attn.out_proj.weight, proj_weight.T),
        (layer.self_attn.out_proj.bias, proj_bias),
        (layer.linear1.weight, fc1_weight.T),
        (layer.linear1.bias, fc1_bias),
        (layer.linear2.weight, fc2_weight.T),
        (layer.linear2.bias, fc2_bias),
        (layer.norm1.weight, norm1_weight),
        (layer.norm1.bias, norm1_bias),
        (layer.norm2.weight, norm2_weight),
        (layer.norm2.bias, norm2_bias),
    ]:
        target.data.copy_(source)
    torch.testing.assert_close(expressions.vit_block(*arguments), layer(x))


def test_layer_scale_multiplies_each_branch():
    arguments = arguments_of("vit_block", tokens=9, width=24, heads=3, head_dim=8, layer_scale=True)
    scale1, scale2 = arguments[7], arguments[14]
    folded = list(arguments)
    folded[7], folded[14] = None, None
    folded[5], folded[6] = arguments[5] * scale1, arguments[6] * scale1
    folded[12], folded[13] = arguments[12] * scale2, arguments[13] * scale2
    torch.testing.assert_close(expressions.vit_block(*arguments), expressions.vit_block(*folded))


def test_rms_block_is_a_layer_block_on_centred_values():
    """With zero-mean rows and no weights the two norms agree; the block takes the one asked for."""
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    x = x - x.mean(-1, keepdim=True)
    both = [(None, None, 1e-6, norm) for norm in ("rms", "layer")]
    rms, layer = [expressions._norm(x, *arguments) for arguments in both]
    torch.testing.assert_close(rms, layer)
    rms, layer = [expressions._norm(x + 1, *arguments) for arguments in both]
    assert not torch.allclose(rms, layer)
