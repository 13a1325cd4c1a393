"""Cases that an attack on the package broke once; each says what has to happen instead."""

import dataclasses
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import neuron_vit as nv
from neuron_vit import _dispatch
from neuron_vit._ops import ops


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
        attention_scale=max(head_dim, 1) ** -0.5,
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("kind", ["all keys", "mask", "lengths"])
def test_logits_up_to_a_million(dtype, kind, monkeypatch):
    """The limit that the documentation gives, with the largest logits on masked keys."""
    q, k, v = (torch.randn(1, 2, 20, 16).to(dtype) for _ in range(3))
    k[:, :, -1] = (3 * q[:, :, 0]).to(dtype)
    scale = 2.0**-3
    factor = (1e6 / (scale * (q.double() @ k.double().mT).abs().max())).sqrt().item()
    q, k = (q.double() * factor).to(dtype), (k.double() * factor).to(dtype)
    seen = torch.ones(20, 20, dtype=torch.bool)
    seen[:, 10:] = kind == "all keys"
    options = {"mask": {"attn_mask": seen}, "lengths": {"kv_lens": torch.tensor([10])}}
    exact, base = (
        torch.nn.functional.scaled_dot_product_attention(*tensors, seen, scale=scale).double()
        for tensors in ([t.double() for t in (q, k, v)], (q, k, v))
    )
    for simulator in "01":
        monkeypatch.setenv("NKI_SIMULATOR", simulator)
        out = nv.scaled_dot_product_attention(q, k, v, scale=scale, **options.get(kind, {}))
        error, base_error = ((found.double() - exact).abs().max() for found in (out, base))
        assert error <= 2 * base_error + 2e-2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("operand", ["query", "key", "value"])
def test_values_that_are_not_finite_stay_where_they_are(bad, operand, simulated):
    """In their image and, those of a query, at their position; where they belong, they show."""
    operands = {name: torch.randn(3, 2, 20, 32) for name in ("query", "key", "value")}
    operands[operand][1, 0, 3, 2] = bad
    out = nv.scaled_dot_product_attention(**operands)
    exact = torch.nn.functional.scaled_dot_product_attention(
        **{name: tensor.double() for name, tensor in operands.items()}
    )
    lost, right = ~out.isfinite(), ~exact.isfinite()
    assert nv.last_path() == "nki"
    assert lost[right].all() and not lost[0].any() and not lost[2].any()
    if operand == "query":
        assert not lost[1, :, :3].any() and not lost[1, :, 4:].any()
    if operand == "value":
        assert torch.equal(lost, right)
    torch.testing.assert_close(out[~lost].double(), exact[~lost], rtol=1e-4, atol=1e-4)


def test_a_token_that_is_not_finite_stays_in_its_image(simulated):
    x = torch.randn(3, 20, 48)
    x[1, 2, 3] = float("nan")
    params = block(48, 3, 16, 40)
    for out in (nv.vit_block(x, params), nv.vit_encoder(x, [params, params])):
        assert out[1].isnan().all() and out[0].isfinite().all() and out[2].isfinite().all()


def test_heads_of_no_size_are_refused():
    q = torch.randn(1, 2, 5, 0)
    with pytest.raises(ValueError, match="attention: query has shape .* must be at least 1"):
        nv.scaled_dot_product_attention(q, q, q)
    with pytest.raises(ValueError, match="flash_attn_func: q has shape"):
        nv.flash.flash_attn_func(q, q, q)
    with pytest.raises(ValueError, match="BlockParams: num_heads is 2; qkv_weight has 0 columns"):
        block(8, 2, 0, 10)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("attention", ("batch", "heads", "q_len", "k_len", "head_dim")),
        ("vit_block", ("batch", "tokens", "width", "heads", "head_dim", "hidden")),
        ("vit_encoder", ("batch", "tokens", "width", "heads", "head_dim", "hidden")),
        ("mlp", ("tokens", "width", "hidden", "out")),
        ("linear", ("tokens", "in_features", "out_features")),
        ("layer_norm", ("width",)),
        ("ada_rms_norm", ("width",)),
    ],
)
def test_supports_with_sizes_of_zero_and_less(name, sizes):
    good = dict.fromkeys(sizes, 4)
    assert nv.supports(name, **good)
    for size in sizes:
        found = nv.supports(name, **{**good, size: 0})
        assert not found and f"{name} {size}=0" in found.reason and found.remedy
        with pytest.raises(ValueError, match=f"supports: {size} is -3; it must not be negative"):
            nv.supports(name, **{**good, size: -3})


def torch_dispatch_pair(tensor):
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(tensor, tensor.clone())


class Marked(torch.Tensor):
    """A subclass as users write them."""


@pytest.mark.parametrize("simulator", ["0", "1"])
@pytest.mark.parametrize(
    "kind", ["subclass", "wrapper", "parameter", "negative view", "expanded", "inference"]
)
def test_unusual_tensors_give_the_usual_values(kind, simulator, monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", simulator)
    x = torch.randn(2, 5, 12)
    if kind == "negative view":
        given = torch.complex(x, x).conj().imag
        assert given.is_neg()
    elif kind == "expanded":
        given = x[:, :1].expand(2, 5, 12)
    elif kind == "inference":
        with torch.inference_mode():
            given = x.clone()
    else:
        makers = {"subclass": lambda t: t.as_subclass(Marked), "wrapper": torch_dispatch_pair}
        given = makers.get(kind, nn.Parameter)(x)
    plain = x[:, :1].repeat(1, 5, 1) if kind == "expanded" else -x if "neg" in kind else x
    weight = torch.randn(12, 12)
    with torch.no_grad():
        for call in (
            lambda x: nv.layer_norm(x, 12),
            lambda x: nv.linear(x, weight),
            lambda x: nv.scaled_dot_product_attention(x, x, x),
            lambda x: nv.vit_block(x, block(12, 3, 4, 10)),
        ):
            torch.manual_seed(1)
            out = call(given)
            torch.manual_seed(1)
            assert type(out) is (torch.Tensor if kind == "parameter" else type(given))
            out = out.a if kind == "wrapper" else out.as_subclass(torch.Tensor)
            torch.testing.assert_close(out, call(plain))


def test_meta_tensors_give_shapes(simulated):
    """Nothing runs, also with the simulator; so under a fake mode, where libraries plan memory."""
    x = torch.randn(2, 5, 12, device="meta")
    params = block(12, 3, 4, 10).to("meta")
    for out in (nv.layer_norm(x, 12), nv.vit_block(x, params), nv.vit_encoder(x, [params])):
        assert out.device.type == "meta" and out.shape == x.shape
    assert nv.launches() == {} and nv.last_path() is None


HUGE = [torch.iinfo(torch.int64).max, 2**32 + 3, 2**31]


@pytest.mark.parametrize("compiled", [False, True])
def test_lengths_beyond_int32_hide_nothing(compiled, simulated):
    x, params = torch.randn(3, 5, 12), block(12, 3, 4, 10)
    lens = torch.tensor(HUGE)

    def attend(x, lens):
        heads = x.unflatten(-1, (3, 4)).transpose(1, 2)
        return nv.scaled_dot_product_attention(heads, heads, heads, kv_lens=lens)

    def one(x, lens):
        return nv.vit_block(x, params, kv_lens=lens)

    def two(x, lens):
        return nv.vit_encoder(x, [params, params], kv_lens=lens)

    for function in (attend, one, two):
        expected = function(x, torch.full((3,), 5))
        called = torch.compile(function, fullgraph=True) if compiled else function
        torch.testing.assert_close(called(x, lens), expected, rtol=0, atol=0)
        assert nv.last_path() == "nki"


def test_bounds_beyond_int32_are_beyond_all_tokens(simulated, monkeypatch):
    """Compiled code does not look at values, so that they reach the kernel."""
    torch.compiler.reset()
    x, params = torch.randn(1, 50, 12), block(12, 3, 4, 10)
    heads = torch.randn(50, 3, 4)
    bounds = torch.tensor([0, 2**32 + 10, 50])
    packed = torch.compile(nv.flash.flash_attn_varlen_func, fullgraph=True)
    one = torch.compile(lambda x, bounds: nv.vit_block(x, params, cu_seqlens=bounds))
    two = torch.compile(lambda x, bounds: nv.vit_encoder(x, [params] * 2, cu_seqlens=bounds))
    calls = [lambda: packed(heads, heads, heads, bounds, bounds)]
    calls += [lambda: one(x, bounds), lambda: two(x, bounds)]
    found = [call() for call in calls]
    assert nv.last_path() == "nki"
    monkeypatch.setenv("NKI_SIMULATOR", "0")
    for call, out in zip(calls, found):
        torch.testing.assert_close(out, call(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("simulator", "01")
def test_lengths_that_are_not_checked(simulator, monkeypatch):
    """What the documentation says of them: a negative one hides all keys, as 0 does."""
    monkeypatch.setenv("NKI_SIMULATOR", simulator)
    q = torch.randn(3, 2, 5, 8)
    lens = torch.tensor([-1, -(2**32) + 3, 9])
    out = _lengths(q, lens)
    torch.testing.assert_close(out, _lengths(q, torch.tensor([0, 0, 5])), rtol=0, atol=0)
    assert not out[:2].any()


def _lengths(q, lens):
    return ops.attention(q, q, q, 0.5, None, lens, None, None)


def test_values_are_not_read_where_that_would_fail():
    """Under vmap, in fake mode and in make_fx."""
    q, lens = torch.randn(2, 3, 2, 5, 8), torch.tensor([[5, 4, 3], [2, 1, 0]])

    def attend(q, lens):
        return nv.scaled_dot_product_attention(q, q, q, kv_lens=lens)

    both = torch.stack([attend(*pair) for pair in zip(q, lens)])
    torch.testing.assert_close(torch.func.vmap(attend)(q, lens), both)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert attend(torch.empty(3, 2, 5, 8), lens[0]).shape == (3, 2, 5, 8)
    traced = make_fx(attend)(q[0], lens[0])
    torch.testing.assert_close(traced(q[1], lens[1]), both[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("scale", [2.0**-10, 0.25, 2.0**10])
@pytest.mark.parametrize("kind", ["every key", "one key", "all but one key"])
def test_biases_up_to_a_million(dtype, scale, kind, simulated):
    """The limit that the documentation gives; of float16 its largest value."""
    limit = 65504.0 if dtype == torch.float16 else 1e6
    q, k, v = (torch.randn(1, 2, 20, 16).to(dtype) for _ in range(3))
    q = (q.float() / max(1.0, 4 * scale)).to(dtype)
    bias = torch.zeros(20, 20)
    bias[:, slice(3, 4) if kind == "one key" else slice(None)] = limit
    if kind == "all but one key":
        bias = -bias
        bias[:, 5] = 0.0
    exact, base = (
        torch.nn.functional.scaled_dot_product_attention(
            *tensors, bias.to(tensors[0].dtype), scale=scale
        ).double()
        for tensors in ([t.double() for t in (q, k, v)], (q, k, v))
    )
    out = nv.scaled_dot_product_attention(q, k, v, bias, scale=scale)
    assert nv.last_path() == "nki"
    # Adding such a bias rounds the scores, in torch as here.
    assert (out.double() - exact).abs().max() <= 2 * (base - exact).abs().max() + 2e-2


@pytest.mark.parametrize("per_image", [False, True])
def test_empty_tables_rotate_nothing_as_a_kernel(per_image, simulated, monkeypatch):
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    x, plain = torch.randn(2, 5, 12), block(12, 3, 4, 10)
    rotated = dataclasses.replace(plain, rope="interleaved")
    tables = (torch.zeros((2, 0, 4) if per_image else (0, 4)),) * 2
    assert torch.equal(nv.vit_block(x, rotated, rope=tables), nv.vit_block(x, plain))
    out = nv.vit_encoder(x, [rotated] * 2, rope=tables)
    assert torch.equal(out, nv.vit_encoder(x, [plain] * 2))
    assert nv.launches() == {"vit_block": 2, "vit_encoder": 2}


@pytest.mark.parametrize("simulator", "01")
def test_a_block_without_hidden_features_has_no_kernel(simulator, monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", simulator)
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match="hidden=0" if simulator == "1" else "on cpu"):
        nv.vit_block(torch.randn(2, 5, 12), block(12, 3, 4, 0))
