"""NKI_SIMULATOR=1: the public functions through the real kernels, against the CPU path.

tests/parity holds the grid of shapes and the parity rule; here it is only shown that every
function hands its kernel the right operands, also the ones that are strided, packed or absent.
"""

import pytest
import torch
from torch.nn import functional as F

import neuron_vit as nv
from tests.parity.rule import ulp

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDTH, HIDDEN, HEADS, SIZE, TOKENS = 96, 160, 3, 32, 19


def new(*shape, dtype):
    return torch.randn(shape).to(dtype)


def attention_operands(dtype, kind):
    qkv = new(2, TOKENS, 3, HEADS, SIZE, dtype=dtype)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    if kind == "dense":
        return q.contiguous(), k.contiguous(), v.contiguous()
    if kind == "sliced":  # a storage offset, and more keys than queries
        return q[1:, :, 3:9], k[1:, :, 1:], v[1:, :, 1:]
    if kind == "one head":
        return q, k[:, :1], v[:, :1]
    return q, k, v


def block(dtype):
    def weight(fan_in, fan_out):
        return (torch.randn(fan_in, fan_out) * fan_in**-0.5).to(dtype)

    return nv.BlockParams(
        norm1_weight=new(WIDTH, dtype=dtype),
        norm1_bias=new(WIDTH, dtype=dtype),
        qkv_weight=weight(WIDTH, 3 * HEADS * SIZE),
        qkv_bias=new(3 * HEADS * SIZE, dtype=dtype),
        proj_weight=weight(HEADS * SIZE, WIDTH),
        proj_bias=new(WIDTH, dtype=dtype),
        scale1=new(WIDTH, dtype=dtype),
        norm2_weight=new(WIDTH, dtype=dtype),
        norm2_bias=new(WIDTH, dtype=dtype),
        fc1_weight=weight(WIDTH, HIDDEN),
        fc1_bias=new(HIDDEN, dtype=dtype),
        fc2_weight=weight(HIDDEN, WIDTH),
        fc2_bias=new(WIDTH, dtype=dtype),
        scale2=new(WIDTH, dtype=dtype),
        num_heads=HEADS,
        eps=1e-6,
        attention_scale=SIZE**-0.5,
    )


def calls(dtype):
    x, residual = (new(2, TOKENS, WIDTH, dtype=dtype) for _ in range(2))
    columns = new(WIDTH, 2, TOKENS, dtype=dtype).permute(1, 2, 0)
    weight, bias = new(WIDTH, dtype=dtype), new(WIDTH, dtype=dtype)
    w1, b1 = new(HIDDEN, WIDTH, dtype=dtype) * 0.1, new(HIDDEN, dtype=dtype)
    w2, b2 = new(WIDTH, HIDDEN, dtype=dtype) * 0.1, new(WIDTH, dtype=dtype)
    packed1, packed2 = w1.t().contiguous().t(), w2.t().contiguous().t()
    w12, b12 = torch.cat([w1, w1.flip(0)]), torch.cat([b1, -b1])
    gate, up = w12.chunk(2)
    bias_gate, bias_up = b12.chunk(2)
    left, right = w12.t().contiguous().t().chunk(2)
    inner, inner_bias = new(HIDDEN, dtype=dtype), new(HIDDEN, dtype=dtype)
    shift, scale, mix = (new(2, WIDTH, dtype=dtype) for _ in range(3))
    params = block(dtype)
    bare = nv.BlockParams(
        **{
            name: getattr(params, name)
            for name in nv.BlockParams.__dataclass_fields__
            if not name.endswith("_bias") and not name.startswith("scale")
        }
    )

    encoder = nv.EncoderParams.from_blocks([params, block(dtype)])

    def attend(kind, **options):
        return lambda: nv.scaled_dot_product_attention(*attention_operands(dtype, kind), **options)

    seen = torch.rand(2, HEADS, TOKENS, TOKENS) < 0.6
    seen[:, :, 3] = False
    added = new(1, HEADS, TOKENS, TOKENS, dtype=dtype)
    infinite = added.masked_fill(~seen[:1], float("-inf"))
    lens, bounds = torch.tensor([TOKENS, 4]), torch.tensor([0, 1, 12, TOKENS])
    packed_heads = new(TOKENS, 2 * HEADS, SIZE, dtype=dtype)

    return {
        "layer_norm": lambda: nv.layer_norm(x, WIDTH, weight, bias, 1e-6),
        "layer_norm bare": lambda: nv.layer_norm(x, WIDTH),
        "layer_norm strided": lambda: nv.layer_norm(columns, WIDTH, weight),
        "layer_norm residual": lambda: nv.layer_norm(x, WIDTH, weight, bias, residual=residual),
        "rms_norm": lambda: nv.rms_norm(x, WIDTH, weight),
        "rms_norm residual": lambda: nv.rms_norm(x, WIDTH, None, 1e-5, residual=residual),
        "linear": lambda: nv.linear(x, w1, b1),
        "linear packed": lambda: nv.linear(columns, packed1),
        "mlp": lambda: nv.mlp(x, w1, b1, w2, b2),
        "mlp packed": lambda: nv.mlp(x, packed1, None, packed2, b2, "gelu_tanh"),
        "mlp mixed": lambda: nv.mlp(x, packed1, b1, w2, None, "quick_gelu"),
        "mlp norm": lambda: nv.mlp(x, w1, b1, w2, b2, norm_weight=inner, norm_bias=inner_bias),
        "swiglu_mlp": lambda: nv.swiglu_mlp(x, gate, bias_gate, up, bias_up, w2, b2),
        "swiglu_mlp columns": lambda: nv.swiglu_mlp(
            x, left, bias_gate, right, bias_up, packed2, b2
        ),
        "swiglu_mlp gate last": lambda: nv.swiglu_mlp(x, right, None, left, bias_up, packed2, b2),
        "swiglu_mlp mixed": lambda: nv.swiglu_mlp(x, left, None, up, bias_up, packed2, None),
        "swiglu_mlp norm": lambda: nv.swiglu_mlp(
            x, gate, None, up, None, w2, None, norm_weight=inner, norm="rms"
        ),
        "ada_layer_norm": lambda: nv.ada_layer_norm(x, shift, scale[:, None], weight=weight),
        "ada_layer_norm residual": lambda: nv.ada_layer_norm(
            x, shift, scale, weight=weight, bias=bias, residual=residual, gate=mix
        ),
        "ada_rms_norm": lambda: nv.ada_rms_norm(x, shift, scale, residual=residual),
        "attention strided": attend("strided"),
        "attention dense": attend("dense"),
        "attention sliced": attend("sliced"),
        "attention one head": attend("one head"),
        "attention mask": attend("strided", attn_mask=seen),
        "attention mask of keys": attend("strided", attn_mask=seen[:, :1, :1]),
        "attention mask of one row": attend("strided", attn_mask=seen[0, 0, 0]),
        "attention bias": attend("strided", attn_mask=added),
        "attention bias transposed": attend("strided", attn_mask=added.mT),
        "attention bias float32": attend("dense", attn_mask=infinite.float()),
        "attention kv_lens": attend("strided", kv_lens=lens),
        "attention groups": lambda: nv.scaled_dot_product_attention(
            packed_heads.view(1, TOKENS, 6, SIZE).transpose(1, 2),
            *attention_operands(dtype, "sliced")[1:],
            enable_gqa=True,
        ),
        "attention segments": lambda: nv.flash.flash_attn_varlen_func(
            packed_heads, packed_heads[:, :2], packed_heads[:, 2:4], bounds, bounds
        ),
        "vit_block": lambda: nv.vit_block(x, params),
        "vit_block bare": lambda: nv.vit_block(x, bare),
        "vit_encoder": lambda: nv.vit_encoder(x, encoder),
        "vit_encoder bare": lambda: nv.vit_encoder(x, [bare]),
        "vit_encoder lengths": lambda: nv.vit_encoder(x, [params] * 2, kv_lens=lens),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", calls(torch.float32))
def test_kernel_and_reference_agree(name, dtype, monkeypatch):
    def run():
        torch.manual_seed(0)
        result = calls(dtype)[name]()
        return result if isinstance(result, tuple) else (result,)

    expected = run()
    assert nv.last_path() == "torch"
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    found = run()
    kernel = name.split()[0]
    assert nv.last_path() == "nki" and nv.launches() == {kernel: 1}
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype == dtype and ours.shape == theirs.shape
        # Operands that are mixed up are off by the size of the values; what is allowed is a few
        # roundings of the largest, more in float32, where the order of the sums shows.
        steps = 16 if dtype == torch.float32 else 2
        limit = steps * ulp(dtype, theirs.double().abs().max().item())
        assert (ours.double() - theirs.double()).abs().max() <= limit


@pytest.mark.parametrize("name", ["layer_norm", "attention strided", "vit_block"])
def test_two_cores_give_the_result_of_one(name, simulated, monkeypatch):
    def run(cores):
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", cores)
        torch.manual_seed(0)
        return calls(torch.float32)[name]()

    assert torch.equal(run("2"), run("1"))
    assert nv.launches() == {name.split()[0]: 2}


def test_an_unsupported_head_size_never_gives_a_wrong_number(simulated, monkeypatch):
    q = torch.randn(1, 2, 9, 192)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="head_dim=192 > 128"):
        out = nv.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, q, q))
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match="head_dim=192 > 128"):
        nv.scaled_dot_product_attention(q, q, q)


def test_gradients_of_a_simulated_forward(monkeypatch):
    def gradient():
        torch.manual_seed(0)
        x = torch.randn(2, TOKENS, WIDTH, requires_grad=True)
        nv.vit_block(x, block(torch.float32)).square().sum().backward()
        return x.grad

    expected = gradient()
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    found = gradient()
    assert nv.launches() == {"vit_block": 1}
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_compiled_code_runs_the_kernel(monkeypatch):
    torch.compiler.reset()
    params, x = block(torch.float32), torch.randn(2, TOKENS, WIDTH)
    compiled = torch.compile(
        lambda x: nv.vit_block(x, params) + 1, fullgraph=True, backend="aot_eager"
    )
    expected = compiled(x)
    assert nv.launches() == {}
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    found = compiled(x)
    assert nv.launches() == {"vit_block": 1}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
