"""The public functions on CPU tensors: the values, shapes and dtypes of their torch twins."""

import pytest
import torch
from torch.nn import functional as F

import neuron_vit as nv
from neuron_vit import reference

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "relu": F.relu,
}


def parameters(*shapes, dtype):
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def packed(weight):
    """`weight` in torch's layout, stored as dense [in, out]."""
    return weight.t().contiguous().t()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("affine", ["weight and bias", "weight", "nothing"])
def test_layer_norm(dtype, affine):
    x, weight, bias = parameters((2, 3, 24), (24,), (24,), dtype=dtype)
    weight = None if affine == "nothing" else weight
    bias = bias if affine == "weight and bias" else None
    out = nv.layer_norm(x, (24,), weight, bias, 1e-3)
    torch.testing.assert_close(out, F.layer_norm(x, (24,), weight, bias, 1e-3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm(dtype, eps):
    # Small values, so that eps counts.
    x, weight = parameters((2, 3, 24), (24,), dtype=dtype)
    x = x * 2.0**-9
    out = nv.rms_norm(x, 24, weight, eps)
    torch.testing.assert_close(out, F.rms_norm(x, (24,), weight, eps))
    torch.testing.assert_close(nv.rms_norm(x, [24], eps=eps), F.rms_norm(x, (24,), eps=eps))


def test_norms_over_several_dimensions():
    x, weight, bias = parameters((5, 2, 3, 4), (3, 4), (3, 4), dtype=torch.float32)
    expected = F.layer_norm(x, (3, 4), weight, bias)
    torch.testing.assert_close(nv.layer_norm(x, (3, 4), weight, bias), expected)
    torch.testing.assert_close(nv.rms_norm(x, (3, 4), weight), F.rms_norm(x, (3, 4), weight))


@pytest.mark.parametrize("function", [nv.layer_norm, nv.rms_norm])
@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_with_residual_uses_the_unrounded_sum(function, dtype):
    x, residual, weight = parameters((4, 24), (4, 24), (24,), dtype=dtype)
    normalized, total = function(x, 24, weight, eps=1e-6, residual=residual)
    assert torch.equal(total, x + residual)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    expected = function(x.to(wide) + residual.to(wide), 24, weight.to(wide), eps=1e-6)
    assert torch.equal(normalized, expected.to(dtype))
    assert normalized.dtype == total.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
@pytest.mark.parametrize("layout", [torch.Tensor.contiguous, packed])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear(dtype, leading, layout, with_bias):
    x, weight, bias = parameters((*leading, 12), (7, 12), (7,), dtype=dtype)
    bias = bias if with_bias else None
    torch.testing.assert_close(nv.linear(x, layout(weight), bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("layouts", ["out_in", "in_out", "mixed"])
def test_mlp(dtype, activation, layouts):
    x, w1, b1, w2, b2 = parameters((2, 3, 12), (20, 12), (20,), (5, 20), (5,), dtype=dtype)
    hidden = F.linear(x, w1, b1)
    wide = hidden if dtype == torch.float64 else hidden.float()
    expected = F.linear(ACTIVATIONS[activation](wide).to(dtype), w2, b2)
    stored1 = w1 if layouts == "out_in" else packed(w1)
    stored2 = packed(w2) if layouts == "in_out" else w2
    out = nv.mlp(x, stored1, b1, stored2, b2, activation)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("storage", ["split", "packed rows", "packed columns"])
@pytest.mark.parametrize("norm", [None, "layer", "rms"])
def test_swiglu_mlp(dtype, storage, norm):
    x, w12, b12, w3, b3 = parameters((2, 3, 12), (40, 12), (40,), (5, 20), (5,), dtype=dtype)
    weight, bias = parameters((20,), (20,), dtype=dtype)
    bias = bias if norm == "layer" else None
    gate, up = F.linear(x, w12, b12).chunk(2, dim=-1)
    wide = gate if dtype == torch.float64 else gate.float()
    hidden = F.silu(wide).to(dtype) * up
    if norm == "layer":
        hidden = F.layer_norm(hidden, (20,), weight, bias, 1e-3)
    elif norm == "rms":
        hidden = F.rms_norm(hidden, (20,), weight, 1e-3)
    stored, w3 = (packed(w12), packed(w3)) if storage == "packed columns" else (w12, w3)
    halves = [half.clone() if storage == "split" else half for half in stored.chunk(2)]
    biases = b12.chunk(2)
    inner = dict(norm_weight=weight, norm_bias=bias, norm_eps=1e-3, norm=norm) if norm else {}
    out = nv.swiglu_mlp(x, halves[0], biases[0], halves[1], biases[1], w3, b3, **inner)
    torch.testing.assert_close(out, F.linear(hidden, w3, b3))


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_mlp_with_a_norm_inside(norm):
    x, w1, w2, weight = parameters((2, 3, 12), (20, 12), (5, 20), (20,), dtype=torch.float32)
    hidden = F.relu(F.linear(x, w1))
    twin = {"layer": F.layer_norm, "rms": F.rms_norm}[norm]
    hidden = twin(hidden, (20,), weight, eps=1e-2)
    out = nv.mlp(x, w1, None, w2, None, "relu", norm_weight=weight, norm_eps=1e-2, norm=norm)
    torch.testing.assert_close(out, F.linear(hidden, w2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_modulated_norms(dtype, expanded, kind):
    """In float32 and float64 the lines of a DiT block; narrower, those lines in float32."""
    x, residual, gate, shift, scale, weight = parameters(
        (2, 5, 12), (2, 5, 12), (2, 12), (2, 12), (2, 12), (12,), dtype=dtype
    )
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    total = residual.to(wide) + gate[:, None].to(wide) * x.to(wide)
    function = {"layer": nv.ada_layer_norm, "rms": nv.ada_rms_norm}[kind]
    twin = {"layer": F.layer_norm, "rms": F.rms_norm}[kind]

    def modulated(tensor, weight):
        weight = None if weight is None else weight.to(wide)
        normed = twin(tensor.to(wide), (12,), weight, eps=1e-3)
        return (normed * (1 + scale[:, None].to(wide)) + shift[:, None].to(wide)).to(dtype)

    rows = [row[:, None] if expanded else row for row in (shift, scale)]
    torch.testing.assert_close(function(x, *rows, eps=1e-3), modulated(x, None))
    out, stream = function(x, *rows, weight=weight, eps=1e-3, residual=residual, gate=gate)
    torch.testing.assert_close(out, modulated(total, weight))
    torch.testing.assert_close(stream, total.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(dtype, strided, scale):
    q, k, v = (t.transpose(1, 2) for t in parameters(*[(2, 9, 3, 8)] * 3, dtype=dtype))
    if not strided:
        q, k, v = (t.contiguous() for t in (q, k, v))
    out = nv.scaled_dot_product_attention(q, k, v, scale=scale)
    assert out.shape == q.shape and out.transpose(1, 2).is_contiguous()
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, scale=scale))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("value_size", [8, 5])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
def test_attention_takes_the_shapes_that_torch_takes(leading, value_size, mask):
    q = torch.randn(*leading, 7, 8)
    k = torch.randn(*leading[:-1], *leading[-1:] and (1,), 7, 8)  # one head for all
    v = torch.randn(*leading, 7, value_size)
    choices = {"bool": torch.rand(7, 7) < 0.7, "float": torch.randn(*leading, 7, 7)}
    arguments = {"attn_mask": choices.get(mask), "is_causal": mask == "causal"}
    out = nv.scaled_dot_product_attention(q, k, v, **arguments)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, **arguments))


def test_attention_with_more_keys_than_queries():
    q, k, v = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 9, 8), torch.randn(2, 3, 9, 8)
    out = nv.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v))


def masks(kind, dtype):
    """[2, 3, 7, 9] or smaller, with queries that see all, some or one of the keys."""
    seen = torch.rand(2, 3, 7, 9) < 0.6
    seen[..., 0] = True
    if kind == "bool":
        return seen
    if kind == "keys":
        return seen[:, :1, :1]
    if kind == "one key":
        return seen[:1, :, :, :1]
    if kind == "row":
        return seen[0, 0, 0]
    bias = torch.randn(2, 3, 7, 9).to(torch.float32 if kind == "float32" else dtype)
    return bias.masked_fill(~seen, float("-inf")) if kind == "infinite" else bias[:1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bool", "keys", "one key", "row", "float", "float32", "infinite"])
def test_attention_masks(dtype, kind):
    q, k, v = parameters((2, 3, 7, 8), (2, 3, 9, 8), (2, 3, 9, 8), dtype=dtype)
    mask = masks(kind, dtype)
    out = nv.scaled_dot_product_attention(q, k, v, mask)
    mask = mask[None] if kind == "row" else mask
    mask = mask if mask.dtype == torch.bool else mask.to(dtype)
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", ["bool", "infinite", "smallest"])
def test_a_query_without_a_key_gets_zeros(dtype, fill):
    q, k, v = parameters(*[(1, 2, 5, 8)] * 3, dtype=dtype)
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    mask = torch.ones(1, 2, 5, 5, dtype=torch.bool).tril()
    mask[:, 1, 2] = False
    mask[:, :, 4] = False
    blind = ~mask.any(-1)
    if fill != "bool":
        least = float("-inf") if fill == "infinite" else torch.finfo(dtype).min
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, least)
    out = nv.scaled_dot_product_attention(q, k, v, mask)
    assert (out[blind] == 0).all() and (out[~blind] != 0).any(-1).all()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_with_key_lengths(dtype):
    q, k, v = parameters((3, 2, 4, 8), (3, 2, 9, 8), (3, 2, 9, 8), dtype=dtype)
    for integers in (torch.int32, torch.int64):
        out = nv.scaled_dot_product_attention(
            q, k, v, scale=0.3, kv_lens=torch.tensor([9, 0, 4], dtype=integers)
        )
        for image, length in enumerate([9, 0, 4]):
            seen = [t[image : image + 1, :, :length] for t in (k, v)]
            expected = F.scaled_dot_product_attention(q[image : image + 1], *seen, scale=0.3)
            expected = expected if length else torch.zeros_like(expected)
            torch.testing.assert_close(out[image : image + 1], expected)


@pytest.mark.parametrize("leading", [(6,), (2, 6), (2, 2, 6)])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads(leading, causal):
    q = torch.randn(*leading, 5, 8)
    k, v = (torch.randn(*leading[:-1], 2, 5, 8) for _ in range(2))
    options = {"is_causal": causal, "enable_gqa": True}
    out = nv.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, **options))
    mask = torch.randn(*leading, 5, 5)
    out = nv.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True))


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attn_func(causal):
    q, k, v = torch.randn(2, 5, 6, 8), torch.randn(2, 5, 3, 8), torch.randn(2, 5, 3, 8)
    out = nv.flash.flash_attn_func(q, k, v, softmax_scale=0.3, causal=causal)
    operands = [t.transpose(1, 2) for t in (q, k, v)]
    expected = F.scaled_dot_product_attention(
        *operands, is_causal=causal, scale=0.3, enable_gqa=True
    )
    assert out.is_contiguous()
    torch.testing.assert_close(out, expected.transpose(1, 2))
    with pytest.raises(nv.NeuronVitUnsupported, match="causal=True with 1 queries and 5 keys"):
        nv.flash.flash_attn_func(q[:, :1], k, v, causal=True)


def test_flash_attn_varlen_func():
    q, k, v = torch.randn(9, 4, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8)
    queries, keys = (0, 1, 4, 6, 9), (0, 3, 4, 4, 7)
    bounds = [torch.tensor(bound, dtype=torch.int32) for bound in (queries, keys)]
    out = nv.flash.flash_attn_varlen_func(q, k, v, *bounds, 3, 3, softmax_scale=0.3)
    assert out.shape == q.shape and out.is_contiguous()
    for index in range(4):
        rows, columns = slice(*queries[index : index + 2]), slice(*keys[index : index + 2])
        expected = nv.flash.flash_attn_func(
            q[None, rows], k[None, columns], v[None, columns], softmax_scale=0.3
        )[0]
        expected = torch.zeros_like(q[rows]) if columns.start == columns.stop else expected
        torch.testing.assert_close(out[rows], expected)
    for options in ({"causal": True}, {"dropout_p": 0.1}):
        with pytest.raises(nv.NeuronVitUnsupported, match="causal attention and dropout"):
            nv.flash.flash_attn_varlen_func(q, k, v, *bounds, **options)


def test_attention_with_dropout_is_torchs():
    q = torch.randn(2, 3, 9, 8)
    torch.manual_seed(1)
    out = nv.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    torch.manual_seed(1)
    assert torch.equal(out, F.scaled_dot_product_attention(q, q, q, dropout_p=0.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_reference_keeps_scores_and_softmax_wide(dtype):
    """Logits of +-1e4 neither overflow nor lose the small differences between them."""
    q, k, v = parameters(*[(1, 2, 50, 16)] * 3, dtype=torch.float64)
    q, k = q * 50, k * 50
    q, k, v = (t.to(dtype) for t in (q, k, v))
    out = reference.attention(q, k, v, 1.0, None, None, None)
    scores = q.double() @ k.double().transpose(-1, -2)
    assert 1e4 < scores.abs().max() < 1e5
    exact = (scores.softmax(-1) @ v.double()).transpose(1, 2)
    # Float32 keeps scores of 1e4 to about 1e-3, so the weights are good to as much.
    torch.testing.assert_close(out.double(), exact, rtol=2e-2, atol=2e-2)
    assert out.dtype == dtype


def test_attention_reference_reads_windows():
    storage = torch.randn(2 * 9 * 3 * 8 + 11)
    view = ((2, 3, 9, 8), (216, 8, 24, 1))
    window = storage[11:]
    strided = torch.as_strided(storage, *view, 11)
    expected = reference.attention(strided, strided, strided, 0.5, None, None, None)
    out = reference.attention(window, window, window, 0.5, view, view, view)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("value_dtype", [torch.float32, torch.float64])
def test_references_keep_float64(value_dtype):
    """The same function is the truth when its inputs are float64: no float32 inside."""
    x = torch.randn(3, 16, dtype=value_dtype)
    norm = reference.layer_norm(x, None, None, None, 0.0)
    deviation = (norm.double().pow(2).mean(-1) - 1).abs().max()
    assert deviation < (1e-14 if value_dtype == torch.float64 else 1e-5)
    assert norm.dtype == value_dtype


def test_empty_batches_give_empty_results():
    empty = torch.empty(0, 4, 8)
    weight = torch.randn(8)
    square = torch.randn(8, 8)
    assert nv.layer_norm(empty, 8, weight).shape == (0, 4, 8)
    assert [t.shape for t in nv.rms_norm(empty, 8, residual=empty)] == [(0, 4, 8)] * 2
    assert nv.linear(empty, torch.randn(3, 8)).shape == (0, 4, 3)
    assert nv.mlp(empty, square, None, square, None).shape == (0, 4, 8)
    heads = torch.empty(0, 2, 4, 8)
    assert nv.scaled_dot_product_attention(heads, heads, heads).shape == (0, 2, 4, 8)
    assert torch.equal(
        nv.linear(torch.empty(3, 0), torch.empty(2, 0), weight[:2]), weight[:2].expand(3, 2)
    )


def test_meta_tensors_give_shapes():
    x = torch.empty(2, 5, 8, device="meta")
    assert nv.layer_norm(x, 8).shape == x.shape
    assert nv.linear(x, torch.empty(3, 8, device="meta")).shape == (2, 5, 3)
    heads = torch.empty(2, 3, 5, 8, device="meta")
    out = nv.scaled_dot_product_attention(heads, heads, heads)
    assert out.shape == heads.shape and out.device.type == "meta"


def test_the_cpu_path_is_reported():
    assert nv.last_path() is None
    nv.layer_norm(torch.randn(2, 8), 8)
    assert nv.last_path() == "torch"
    assert nv.launches() == {}
