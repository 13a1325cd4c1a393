"""`vit_encoder` and `EncoderParams`: the same as one `vit_block` after another."""

import dataclasses

import pytest
import torch

import neuron_vit as nv

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDTH, HIDDEN, HEADS, SIZE, TOKENS = 48, 40, 3, 16, 9


def params(dtype, **changed):
    """A block with random weights and some biases."""

    def new(*shape):
        return (torch.randn(shape) * shape[0] ** -0.5).to(dtype)

    return nv.BlockParams(
        **{
            "norm1_weight": new(WIDTH),
            "norm1_bias": new(WIDTH),
            "qkv_weight": new(WIDTH, 3 * HEADS * SIZE),
            "proj_weight": new(HEADS * SIZE, WIDTH),
            "proj_bias": new(WIDTH),
            "norm2_weight": new(WIDTH),
            "fc1_weight": new(WIDTH, HIDDEN),
            "fc2_weight": new(HIDDEN, WIDTH),
            "scale2": new(WIDTH),
            "num_heads": HEADS,
            "eps": 1e-6,
            "attention_scale": SIZE**-0.5,
            **changed,
        }
    )


def blocks(kind, dtype):
    """Three blocks, and what all of them are called with."""
    options = {}
    if kind == "gated":
        options = {"gate_weight": torch.randn(WIDTH, HIDDEN).to(dtype), "activation": "silu"}
    if kind == "rotary":
        options = {"rope": "interleaved", "qk_norm": "rms"}
        options.update(
            {name: torch.ones(SIZE, dtype=dtype) for name in ("q_norm_weight", "k_norm_weight")}
        )
    calls = {
        "rotary": {"rope": tuple(torch.randn(2, TOKENS - 1, SIZE))},
        "masked": {"attn_mask": torch.rand(TOKENS, TOKENS) < 0.7},
        "lengths": {"kv_lens": torch.tensor([TOKENS, 4])},
    }
    return [params(dtype, **options) for _ in range(3)], calls.get(kind, {})


def one_after_another(x, layers, **options):
    for layer in layers:
        x = nv.vit_block(x, layer, **options)
    return x


KINDS = ("plain", "gated", "rotary", "masked", "lengths")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_block_after_block(kind, dtype, monkeypatch):
    """To the bit, as PyTorch operations and as kernels."""
    layers, options = blocks(kind, dtype)
    packed, x = nv.EncoderParams.from_blocks(layers), torch.randn(2, TOKENS, WIDTH).to(dtype)
    for simulator, path in (("0", "torch"), ("1", "nki")):
        monkeypatch.setenv("NKI_SIMULATOR", simulator)
        expected = one_after_another(x, layers, **options)
        nv.reset_launches()
        for given in (packed, layers):
            assert torch.equal(nv.vit_encoder(x, given, **options), expected)
        assert nv.last_path() == path
        assert nv.launches() == ({"vit_encoder": 2} if path == "nki" else {})


def test_packed_segments_stay_apart(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    layers, x = [params(torch.float32) for _ in "ab"], torch.randn(1, TOKENS, WIDTH)
    bounds = torch.tensor([0, 4, TOKENS])
    out = nv.vit_encoder(x, layers, cu_seqlens=bounds)
    assert torch.equal(out, one_after_another(x, layers, cu_seqlens=bounds))
    parts = [nv.vit_encoder(part, layers) for part in x.split([4, TOKENS - 4], 1)]
    torch.testing.assert_close(out, torch.cat(parts, 1), rtol=1e-4, atol=1e-4)


def test_an_empty_batch_is_empty(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    assert nv.vit_encoder(torch.randn(0, 5, WIDTH), [params(torch.float32)]).shape == (0, 5, WIDTH)
    assert nv.launches() == {}


def test_gradients_reach_every_block():
    layers = [params(torch.float64) for _ in "abc"]
    for layer in layers:
        layer.fc1_weight.requires_grad_()
    x = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    leaves = [layer.fc1_weight for layer in layers]
    ours, theirs = (
        torch.autograd.grad(call(x, layers).square().sum(), leaves)
        for call in (nv.vit_encoder, one_after_another)
    )
    torch.testing.assert_close(ours, theirs)


def test_no_kernel_without_its_sizes(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    narrow = params(torch.float32, attention_scale=2.0**11)
    x, mask = torch.randn(1, TOKENS, WIDTH), torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="vit_encoder attention_scale is not"):
        nv.vit_encoder(x, [narrow], attn_mask=mask)
    assert nv.last_path() == "torch"


def test_stacks_are_copies_in_the_order_of_the_blocks():
    layers = [params(torch.float32) for _ in "abc"]
    packed = nv.EncoderParams.from_blocks(layers)
    assert packed.layers == 3
    for name, stack in packed.stacks.items():
        for number, layer in enumerate(layers):
            assert torch.equal(stack[number], getattr(layer, name)), name
    assert set(packed.stacks) == {
        field.name
        for field in dataclasses.fields(nv.BlockParams)
        if isinstance(getattr(layers[0], field.name), torch.Tensor)
    }
    layers[0].fc1_weight.zero_()
    assert packed.stacks["fc1_weight"][0].any()


def test_to_converts_every_stack():
    packed = nv.EncoderParams.from_blocks([params(torch.float32) for _ in "ab"])
    low = packed.to(torch.bfloat16)
    assert low.form.dtype == torch.bfloat16 and packed.form.dtype == torch.float32
    for name, stack in packed.stacks.items():
        assert torch.equal(low.stacks[name], stack.bfloat16())
    assert packed.to("meta").form.device.type == "meta"


def test_the_layers_of_a_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=32, num_attention_heads=2, num_hidden_layers=3, intermediate_size=48
    )
    layers = transformers.ViTModel(config).eval().layers
    x = torch.randn(2, 7, 32)
    expected = x
    with torch.no_grad():
        for layer in layers:
            expected = layer(expected)
        for given in (layers, list(layers), torch.nn.Sequential(*layers)):
            found = nv.vit_encoder(x, nv.EncoderParams.from_module(given))
            torch.testing.assert_close(found, expected)
