"""Every public function under what PyTorch wraps around calls: compilation and export, transforms,
autocast, inference mode."""

import copy
import pickle

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

import neuron_vit as nv
from tests.package.compose_cases import NAMES, block_params, cases, flat, total

# Draws from a generator, or has no second derivative because of it.
DROPOUT = "attention, dropout"

# What the default run takes of grids that trace through Dynamo once more.
SOME = ("layer_norm + residual", "linear", "swiglu_mlp", "attention, mask", "vit_encoder, packed")


def same(found, expected, **tolerances):
    for ours, theirs in zip(flat(found), flat(expected), strict=True):
        torch.testing.assert_close(ours, theirs, **tolerances)


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *tensors):
        return self.function(*tensors)


@pytest.mark.parametrize(
    ("name", "grad"),
    [
        pytest.param(name, grad, marks=() if grad or name in SOME else pytest.mark.long)
        for name in NAMES
        for grad in (False, True)
    ],
)
def test_compiles_whole_and_once(name, grad, monkeypatch):
    torch.compiler.reset()
    function, tensors = cases()[name]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    compiled(*[tensor.requires_grad_(grad) for tensor in tensors])
    others = [torch.randn_like(tensor).requires_grad_(grad) for tensor in tensors]
    with torch.compiler.set_stance("fail_on_recompile"):
        out = compiled(*others)
        same(out, function(*others))
        if grad:
            same(torch.autograd.grad(total(out), others), gradients(function, others))
        # The path is chosen when the operator runs, so a variable set after compilation counts.
        monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
        with pytest.raises(nv.NeuronVitUnsupported):
            compiled(*others)


@pytest.mark.parametrize(
    ("name", "strict"),
    [
        pytest.param(name, strict, marks=pytest.mark.long if strict and name not in SOME else ())
        for name in NAMES
        for strict in (False, True)
    ],
)
def test_exported_programs_run_the_operators(name, strict):
    torch.compiler.reset()
    function, tensors = cases()[name]
    program = torch.export.export(Call(function), tensors, strict=strict)
    others = [torch.randn_like(tensor) for tensor in tensors]
    same(program.module()(*others), function(*others))
    names = [str(node.target) for node in program.graph.nodes]
    assert any(name.startswith("_neuron_vit") for name in names), names


@pytest.mark.parametrize("name", [name for name in NAMES if "lengths" not in name])
def test_exports_with_any_number_of_images(name):
    function, tensors = cases()[name]
    if name == "flash_attn_varlen_func" or name == "attention, mask":
        pytest.skip("its bounds or its mask are constants of two images")
    images = torch.export.Dim("images", min=2, max=64)
    shapes = tuple({0: images} if tensor.shape[0] == 2 else None for tensor in tensors)
    program = torch.export.export(Call(function), tensors, dynamic_shapes=(shapes,))
    more = [
        torch.cat([t, t.flip(0), t[:1]]) if shape else t
        for t, shape in zip(tensors, shapes, strict=True)
    ]
    same(program.module()(*more), function(*more))


@pytest.mark.parametrize("name", NAMES)
def test_inference_mode(name):
    function, tensors = cases()[name]
    expected = function(*tensors)
    with torch.no_grad():
        out = function(*[tensor.requires_grad_() for tensor in tensors])
        assert not any(one.requires_grad for one in flat(out))
    with torch.inference_mode():
        out = function(*tensors)
        same(out, expected, rtol=0, atol=0)
        assert all(one.is_inference() for one in flat(out))
        same(function(*[tensor.clone() for tensor in tensors]), expected, rtol=0, atol=0)


# --- Derivatives --------------------------------------------------------------------------------


def gradients(function, tensors):
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(total(function(*leaves)), leaves)


@pytest.mark.parametrize("name", NAMES)
def test_functional_gradients(name):
    function, tensors = cases(torch.float64)[name]
    every = tuple(range(len(tensors)))
    found = torch.func.grad(lambda *t: total(function(*t)), argnums=every)(*tensors)
    same(found, gradients(function, tensors))


@pytest.mark.parametrize("name", [name for name in NAMES if name != DROPOUT])
def test_forward_mode_gives_the_derivative(name):
    """Against finite differences, through `torch.func.jvp` and through dual tensors."""
    function, tensors = cases(torch.float64)[name]
    direction = tuple(torch.randn_like(tensor) for tensor in tensors)

    def moved(step):
        return flat(function(*[t + step * d for t, d in zip(tensors, direction, strict=True)]))

    step = 1e-5
    expected = tuple(
        (ahead - behind) / (2 * step)
        for ahead, behind in zip(moved(step), moved(-step), strict=True)
    )
    out, tangent = torch.func.jvp(function, tensors, direction)
    same(out, function(*tensors))
    same(tangent, expected, rtol=1e-4, atol=1e-6)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, d) for t, d in zip(tensors, direction, strict=True)]
        unpacked = [forward_ad.unpack_dual(one).tangent for one in flat(function(*duals))]
    same(tuple(unpacked), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name != DROPOUT])
def test_second_derivatives(name):
    function, tensors = cases(torch.float64)[name]
    leaves = [tensor.requires_grad_() for tensor in tensors]
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


def test_hessian_and_gradients_of_each_sample():
    (function, (x, w, b)) = cases(torch.float64)["linear"]
    hessian = torch.func.hessian(lambda w: function(x, w).square().sum() / 2)(w)
    expected = torch.einsum(
        "oq,ij->oiqj", torch.eye(12).double(), x.flatten(0, 1).T @ x.flatten(0, 1)
    )
    same(hessian, expected)
    each = torch.func.vmap(torch.func.grad(lambda w, x: function(x, w, b).sum()), (None, 0))(w, x)
    same(each, x.sum(1)[:, None].expand(2, 12, 12))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(x),
    ],
)
def test_a_transformed_call_on_a_kernel_path_is_a_fallback(transform, simulated, monkeypatch):
    def function(x):
        return nv.layer_norm(x, 12)

    x = torch.randn(2, 5, 12)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="torch.func and forward-mode AD"):
        transform(function, x)
    assert nv.last_path() == "torch" and nv.launches() == {}
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match="torch.func and forward-mode AD"):
        transform(function, x)


def test_what_a_transform_does_not_differentiate_runs_the_kernel(simulated):
    frozen, x = torch.randn(5, 12), torch.randn(5, 12)
    found = torch.func.grad(lambda x: (nv.layer_norm(frozen, 12) * x).sum())(x)
    assert nv.launches() == {"layer_norm": 1}
    same(found, nv.layer_norm(frozen, 12))
    _, tangent = torch.func.jvp(lambda x: nv.layer_norm(frozen, 12) * x, (x,), (x,))
    assert nv.launches() == {"layer_norm": 3}
    same(tangent, found * x)


def test_compiled_transforms():
    torch.compiler.reset()
    function, tensors = cases(torch.float64)["layer_norm"]

    def gradient(*tensors):
        return torch.func.grad(lambda *t: total(function(*t)))(*tensors)

    compiled = torch.compile(gradient, fullgraph=True, backend="aot_eager")
    same(compiled(*tensors), gradients(function, tensors)[0])


def test_frozen_and_integer_inputs_get_no_gradient():
    q = torch.randn(2, 3, 5, 8, requires_grad=True)
    lens = torch.tensor([3, 5])
    out = nv.scaled_dot_product_attention(q, q.detach(), q.detach(), kv_lens=lens)
    out.sum().backward()
    assert q.grad is not None and lens.grad is None


# --- vmap ---------------------------------------------------------------------------------------


def samples(tensors, batched):
    """Three of each tensor that is batched; the dimensions for vmap, at alternating places."""
    dims = [None if not b else (0 if i % 2 == 0 else 1) for i, b in enumerate(batched)]
    several = [
        tensor if dim is None else torch.randn(3, *tensor.shape, dtype=tensor.dtype).movedim(0, dim)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
    return several, tuple(dims)


def one_by_one(function, several, dims):
    outs = [
        flat(
            function(
                *(t if d is None else t.select(d, i) for t, d in zip(several, dims, strict=True))
            )
        )
        for i in range(3)
    ]
    return tuple(torch.stack(one) for one in zip(*outs, strict=True))


@pytest.mark.parametrize("which", ["first", "second", "all"])
@pytest.mark.parametrize("name", NAMES)
def test_vmap(name, which):
    function, tensors = cases()[name]
    batched = [which == "all" or (i == 0) == (which == "first") for i in range(len(tensors))]
    several, dims = samples(tensors, batched)
    options = {"randomness": "different"} if name == DROPOUT else {}
    found = torch.func.vmap(function, dims, **options)(*several)
    same(found, one_by_one(function, several, dims))


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("layer_norm", 1),
        ("ada_layer_norm + residual", 1),
        ("linear", 1),
        ("mlp", 1),
        ("attention, lengths", 1),
        ("flash_attn_varlen_func", 3),
        ("vit_block, rotary", 1),
        ("vit_encoder", 1),
    ],
)
def test_vmap_over_images_is_one_launch(name, launches, simulated):
    function, tensors = cases()[name]
    several, dims = samples(tensors, [i == 0 for i in range(len(tensors))])
    found = torch.func.vmap(function, dims)(*several)
    assert nv.last_path() == "nki" and sum(nv.launches().values()) == launches
    same(found, one_by_one(function, several, dims), rtol=1e-4, atol=1e-5)


def test_vmap_keeps_gradients():
    function, (x, w) = cases(torch.float64)["linear, packed"]
    several = torch.randn(3, *x.shape, dtype=x.dtype)
    same(
        gradients(torch.func.vmap(function, (0, None)), (several, w)),
        gradients(lambda several, w: torch.stack([function(x, w) for x in several]), (several, w)),
    )


def test_vmap_over_nothing():
    function, (x, w, b) = cases()["linear"]
    out = torch.func.vmap(function, (0, None, None))(x.new_empty(0, *x.shape), w, b)
    assert out.shape == (0, *x.shape)
    with pytest.raises(ValueError, match="neuron-vit: linear: torch.func.vmap over 0 samples"):
        torch.func.vmap(function, (None, 0, None))(x, w.new_empty(0, *w.shape), b)


# --- Autocast -----------------------------------------------------------------------------------

NORMS = ("layer_norm", "rms_norm", "ada_layer_norm", "ada_rms_norm")


@pytest.mark.parametrize("simulator", ["0", "1"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_autocast_gives_the_dtypes_and_values_of_converted_arguments(
    name, dtype, simulator, monkeypatch
):
    """On both paths: products in autocast's dtype, norms and residual streams in their input's."""
    monkeypatch.setenv("NKI_SIMULATOR", simulator)
    function, tensors = cases()[name]
    with torch.autocast("cpu", dtype=dtype):
        out = function(*tensors)
        assert torch.is_autocast_enabled("cpu")
    if name.startswith(NORMS):
        same(out, function(*tensors), rtol=0, atol=0)
        return
    twin, narrow = cases(dtype)[name]
    expected = twin(*[tensor.to(dtype) for tensor in tensors])
    if name.startswith("vit"):
        assert out.dtype == torch.float32
        expected = function(*tensors)
        same(out, expected, rtol=0.1, atol=0.1)
        assert not torch.equal(out, expected)
    else:
        assert {one.dtype for one in flat(out)} == {dtype}
        assert name in ("attention, mask", "attention, bias") or torch.equal(out, expected)


@pytest.mark.parametrize("simulator", ["0", "1"])
def test_autocast_is_that_of_the_torch_twins(simulator, monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", simulator)
    x, w = torch.randn(2, 5, 12), torch.randn(12, 12)
    q, v, bias = torch.randn(2, 3, 5, 8), torch.randn(12), torch.randn(5, 5)
    low = x.bfloat16()
    calls = [
        lambda n: n.linear(x, w),
        lambda n: n.linear(low, w, v),
        lambda n: n.layer_norm(x, (12,), v, v),
        lambda n: n.layer_norm(low, (12,), v, v),
        lambda n: n.rms_norm(x, (12,), v),
        lambda n: n.scaled_dot_product_attention(q, q.half(), q, bias),
    ]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in calls:
            ours, theirs = call(nv), call(F)
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.1)
        # A residual stream in float32 stays that, as `+` would have it.
        _, total_ = nv.layer_norm(low, 12, v, residual=x)
        assert torch.equal(total_, low + x)
        out, stream = nv.ada_layer_norm(low, x[:, 0], x[:, 1], residual=low, gate=low[:, 0])
        assert out.dtype == stream.dtype == torch.float32
        double = x.double()
        assert nv.linear(double, w.double()).dtype == F.linear(double, w.double()).dtype
    with torch.autocast("cpu", enabled=False), pytest.raises(ValueError, match="weight has dtype"):
        nv.linear(low, w)


def test_operators_themselves_do_not_look_at_autocast():
    """They do as their fakes say, whoever calls them."""
    x, w = torch.randn(5, 12), torch.randn(12, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nv._ops.ops.linear(x, w, None, "out_in").dtype == torch.float32


def test_a_block_under_autocast_is_the_narrow_block_with_a_wide_stream():
    params, x = block_params(), torch.randn(2, 5, 12)
    expected = nv.vit_block(x.bfloat16(), params.to(torch.bfloat16)).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for given in (params, params.to(torch.bfloat16)):
            assert torch.equal(nv.vit_block(x, given), expected)
        assert nv.vit_block(x.bfloat16(), params).dtype == torch.bfloat16
        assert nv.vit_encoder(x, [params, params]).dtype == torch.float32
        masked = nv.vit_block(x, params, attn_mask=torch.zeros(5, 5, dtype=torch.float16))
        assert torch.equal(masked, expected)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_under_autocast(name):
    """Of the dtype of what they belong to, also where the backward pass runs within autocast."""
    function, tensors = cases()[name]
    leaves = [tensor.requires_grad_() for tensor in tensors]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = total(function(*leaves))
        within = torch.autograd.grad(result, leaves, retain_graph=True)
    outside = torch.autograd.grad(result, leaves)
    same(within, outside, rtol=0, atol=0)
    same(outside, gradients(function, tensors), rtol=0.5, atol=2.0)


@pytest.mark.parametrize("name", ["layer_norm", "attention", "vit_block"])
def test_compiled_under_autocast(name):
    torch.compiler.reset()
    function, tensors = cases()[name]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    without = compiled(*tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = compiled(*tensors), function(*tensors)
    same(found, expected, rtol=0, atol=0)
    same(compiled(*tensors), without, rtol=0, atol=0)


# --- Packed weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
@pytest.mark.parametrize("trained", [False, True])
def test_copies_of_packed_weights(copied, trained):
    x = torch.randn(2, 5, 12)
    block = block_params()
    encoder = nv.EncoderParams.from_blocks([block, block_params()])
    for tensor in (*block._tensors().values(), *encoder.stacks.values()):
        tensor.requires_grad_(trained)
    encoder = encoder.to(torch.float32)
    for params, call in ((block, nv.vit_block), (encoder, nv.vit_encoder)):
        again = copied(params)
        assert torch.equal(call(x, again), call(x, params))
    assert {stack.requires_grad for stack in again.stacks.values()} == {trained}
    # The form still looks into the stacks, and neither into those of the original.
    with torch.no_grad():
        for stack in again.stacks.values():
            stack.fill_(1.0)
    assert (again.form.fc1_weight == 1).all() and not (encoder.form.fc1_weight == 1).any()
    low = again.to(torch.bfloat16)
    assert low.form.dtype == torch.bfloat16 and nv.vit_encoder(x.bfloat16(), low).isfinite().all()
