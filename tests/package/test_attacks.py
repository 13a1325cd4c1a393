"""Cases that an attack on the package broke once; each says what has to happen instead."""

import warnings

import pytest
import torch
from torch import nn

import neuron_vit as nv
from neuron_vit import _dispatch


def block(width, heads, head_dim, hidden):
    embed = heads * head_dim
    return nv.BlockParams(
        norm1_weight=torch.ones(width),
        qkv_weight=0.1 * torch.randn(width, 3 * embed),
        proj_weight=0.1 * torch.randn(embed, width),
        norm2_weight=torch.ones(width),
        fc1_weight=0.1 * torch.randn(width, hidden),
        fc2_weight=0.1 * torch.randn(hidden, width),
        num_heads=heads,
        eps=1e-6,
        attention_scale=head_dim**-0.5,
    )


@pytest.mark.parametrize("simulator", ["0", "1"])
@pytest.mark.parametrize("shape", [(0, 5, 12), (2, 0, 12)])
def test_an_empty_block_is_empty(monkeypatch, simulator, shape):
    monkeypatch.setenv("NKI_SIMULATOR", simulator)
    assert nv.vit_block(torch.randn(shape), block(12, 3, 4, 10)).shape == shape


def test_wide_heads_in_one_group_fit(monkeypatch):
    """Heads several times wider than the tokens: many passes, each with tables of its own."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    x, params = torch.randn(3, 257, 768), block(768, 32, 72, 64)
    out = nv.vit_block(x, params)
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "0")
    monkeypatch.setenv("NKI_SIMULATOR", "0")
    torch.testing.assert_close(out, nv.vit_block(x, params), rtol=1e-4, atol=1e-4)


def test_large_scores_before_scaling_stay_finite_in_float16(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    q = torch.randn(1, 2, 4, 128, dtype=torch.float16)
    q[0, 0] = 200.0
    out = nv.scaled_dot_product_attention(q, q, q, scale=1e-3)
    assert nv.last_path() == "nki"
    assert torch.isfinite(out).all()
    assert torch.equal(out[0, 0], q[0, 0])


def test_a_mask_on_another_device_is_refused():
    q = torch.randn(1, 2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool, device="meta")
    with pytest.raises(ValueError, match="attn_mask is on meta, query is on cpu"):
        nv.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def test_the_hook_takes_four_dimensions():
    module = nn.Module()
    module.is_causal = False
    q = torch.randn(2, 5, 8)
    with pytest.raises(ValueError, match="must have 4 dimensions"):
        nv.flash_attn_forward(module, q, q, q, None)


def test_a_fallback_warning_turned_into_an_error_stays_one(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setattr(_dispatch, "_warned", set())
    x = torch.randn(2, 8, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(nv.NeuronVitFallbackWarning):
                nv.layer_norm(x, (8,))
