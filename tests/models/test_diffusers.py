"""Models of diffusers, built from their configs, with the kernels in their modules."""

import contextlib
import copy
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict

import pytest
import torch
from torch import nn

import neuron_vit as nv
from neuron_vit import _dispatch
from neuron_vit.diffusers_modules import replace_diffusers_modules, restore_diffusers_modules
from tests.parity import rule

from .copies import WAYS, copied
from .test_blocks import StaysFloat64

diffusers = pytest.importorskip("diffusers")
from diffusers.models import attention_processor as processors  # noqa: E402
from diffusers.models.attention import BasicTransformerBlock, FeedForward  # noqa: E402
from diffusers.models.attention_dispatch import AttentionBackendName  # noqa: E402

TOKENS, TEXT = 16, 5


@dataclass(frozen=True)
class Family:
    """make() is a small model; given(dtype) its input; `paths` how many modules take a kernel."""

    make: Callable[[], nn.Module]
    given: Callable[[torch.dtype], Dict[str, Any]]
    paths: Dict[str, int]


def _draw(dtype, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def _flux_input(dtype):
    ids = torch.zeros(TOKENS, 3)
    ids[:, 1], ids[:, 2] = torch.arange(TOKENS) // 4, torch.arange(TOKENS) % 4
    return dict(
        hidden_states=_draw(dtype, 2, TOKENS, 16),
        encoder_hidden_states=_draw(dtype, 2, TEXT, 32),
        pooled_projections=_draw(dtype, 2, 24),
        timestep=torch.tensor([0.25, 0.5], dtype=dtype),
        img_ids=ids,
        txt_ids=torch.zeros(TEXT, 3),
    )


FAMILIES = {
    "dit": Family(
        lambda: diffusers.DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=24, num_layers=2, sample_size=8,
            in_channels=4, norm_num_groups=2, attention_bias=True,
        ),
        lambda dtype: dict(
            hidden_states=_draw(dtype, 2, 4, 8, 8),
            timestep=torch.tensor([3, 500]),
            class_labels=torch.tensor([1, 7]),
        ),
        {"scaled_dot_product_attention": 2, "mlp": 2, "ada_layer_norm": 4},
    ),
    "pixart": Family(
        lambda: diffusers.PixArtTransformer2DModel(
            num_attention_heads=2, attention_head_dim=24, num_layers=2, sample_size=8,
            cross_attention_dim=48, caption_channels=32, norm_num_groups=2,
            use_additional_conditions=False,
        ),
        lambda dtype: dict(
            hidden_states=_draw(dtype, 2, 4, 8, 8),
            encoder_hidden_states=_draw(dtype, 2, TEXT, 32),
            timestep=torch.tensor([3, 500]),
            encoder_attention_mask=torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]),
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ),
        {"scaled_dot_product_attention": 4, "mlp": 2, "ada_layer_norm": 2},
    ),
    "sd3": Family(
        lambda: diffusers.SD3Transformer2DModel(
            sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=24,
            num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=48,
            pooled_projection_dim=24, out_channels=4, pos_embed_max_size=8, qk_norm="rms_norm",
        ),
        lambda dtype: dict(
            hidden_states=_draw(dtype, 2, 4, 8, 8),
            encoder_hidden_states=_draw(dtype, 2, TEXT, 32),
            pooled_projections=_draw(dtype, 2, 24),
            timestep=torch.tensor([3, 500]),
        ),
        # The last block's text goes no further: it has no MLP and another norm.
        {"scaled_dot_product_attention": 2, "mlp": 3, "ada_layer_norm": 3},
    ),
    "flux": Family(
        lambda: diffusers.FluxTransformer2DModel(
            in_channels=16, num_layers=2, num_single_layers=2, attention_head_dim=24,
            num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=24,
            axes_dims_rope=(8, 8, 8),
        ),
        _flux_input,
        {"scaled_dot_product_attention": 4, "mlp": 4, "ada_layer_norm": 2 * 3 + 2},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def clean_state(monkeypatch):
    for variable in ("NKI_SIMULATOR", "NEURON_VIT_REQUIRE_NKI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(_dispatch, "_warned", set())
    nv.reset_launches()


def make(name, dtype=torch.float64):
    torch.manual_seed(0)
    model = FAMILIES[name].make().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        # Gates and modulations start at zero or close to it.
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.to(dtype)


def run(model, name, dtype=torch.float64, working=None):
    """The output for the input of `dtype`, computed in `working`."""
    given = {
        key: value.to(working) if working and torch.is_tensor(value) and value.dtype == dtype
        else value
        for key, value in FAMILIES[name].given(dtype).items()
    }  # fmt: skip
    exact = StaysFloat64() if (working or dtype) == torch.float64 else contextlib.nullcontext()
    with torch.no_grad(), exact:
        return model(**given, return_dict=False)[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_replaced_modules_compute_what_diffusers_does(name):
    model, plain = make(name), make(name)
    keys = list(model.state_dict())
    kinds = {key: type(module) for key, module in model.named_modules()}
    report = replace_diffusers_modules(model)
    counts = {}
    for entry in report:
        assert isinstance(model.get_submodule(entry.name), kinds[entry.name])
        assert entry.kind == kinds[entry.name].__name__
        assert (entry.path == "torch") == bool(entry.reason), entry
        counts[entry.path] = counts.get(entry.path, 0) + 1
    assert counts == FAMILIES[name].paths, report
    assert list(model.state_dict()) == keys
    torch.testing.assert_close(run(model, name), run(plain, name), rtol=1e-6, atol=1e-6)
    assert nv.last_path() == "torch"

    assert [entry[:3] for entry in replace_diffusers_modules(model)] == [e[:3] for e in report]
    restored = restore_diffusers_modules(model)
    assert sorted(restored) == sorted(entry.name for entry in report)
    assert {key: type(module) for key, module in model.named_modules()} == kinds
    nv.reset_launches()
    assert torch.equal(run(model, name), run(plain, name))
    assert nv.last_path() is None and restore_diffusers_modules(model) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", FAMILIES)
def test_parity_through_the_kernels(name, dtype, monkeypatch):
    base = run(make(name, dtype), name, dtype)
    reference = run(make(name, dtype).double(), name, dtype, torch.float64)
    model = make(name, dtype)
    replace_diffusers_modules(model)
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    outputs = [run(model, name, dtype) for _ in range(2)]
    report = rule.judge(name, *outputs, base, reference)
    assert report.ok, str(report)
    launches = nv.launches()
    assert launches["attention"] == 2 * FAMILIES[name].paths["scaled_dot_product_attention"]
    assert launches["mlp"] == 2 * FAMILIES[name].paths["mlp"]
    assert launches["ada_layer_norm"] > 0


def test_blocks_fuse_the_gated_sum_and_the_norm(monkeypatch):
    """A block of DiT: two norms, of which the second takes the sum with it."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    model = make("dit", torch.float32)
    replace_diffusers_modules(model)
    run(model, "dit", torch.float32)
    assert nv.launches() == {"ada_layer_norm": 4, "attention": 2, "mlp": 2}


@pytest.mark.parametrize("name", ["pixart", "sd3", "flux"])
def test_attention_processors(name, monkeypatch):
    model, plain = make(name, torch.float32), make(name, torch.float32)
    model.set_attn_processor(nv.diffusers_attn_processors(model))
    for ours, theirs in zip(
        model.attn_processors.values(), plain.attn_processors.values(), strict=True
    ):
        assert isinstance(ours, type(theirs)) and type(ours) is not type(theirs)
    torch.testing.assert_close(run(model, name, torch.float32), run(plain, name, torch.float32))
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    run(model, name, torch.float32)
    assert nv.launches() == {"attention": len(plain.attn_processors)}
    nv.reset_launches()
    run(plain, name, torch.float32)
    assert nv.launches() == {}
    assert restore_diffusers_modules(model)
    run(model, name, torch.float32)
    assert nv.launches() == {}


@pytest.mark.parametrize("shape", [(2, TOKENS), (2, 1, 1, TOKENS), (TOKENS, TOKENS)])
def test_masks_of_dispatched_attention(shape):
    torch.manual_seed(0)
    plain = make("flux").single_transformer_blocks[0].attn
    ours = nn.Sequential(copy.deepcopy(plain))
    replace_diffusers_modules(ours)
    x, mask = _draw(torch.float64, 2, TOKENS, 48), torch.rand(shape) < 0.6
    with torch.no_grad():
        expected = plain(x, attention_mask=mask)
        torch.testing.assert_close(ours[0](x, attention_mask=mask), expected)
        assert nv.last_path() == "torch"
        assert not torch.allclose(ours[0](x), expected)


def test_a_backend_that_is_chosen_later_is_used():
    plain = make("flux").single_transformer_blocks[0].attn
    ours = nn.Sequential(plain)
    replace_diffusers_modules(ours)
    plain.processor._attention_backend = AttentionBackendName._NATIVE_MATH
    with torch.no_grad():
        plain(_draw(torch.float64, 2, TOKENS, 48))
    assert nv.last_path() is None


def test_processors_that_compute_attention_otherwise():
    model = make("pixart", torch.float32)
    model.set_attn_processor(processors.AttnProcessor())
    assert nv.diffusers_attn_processors(model) == model.attn_processors
    report = {entry.name: entry for entry in replace_diffusers_modules(model)}
    entry = report["transformer_blocks.0.attn1"]
    assert entry.path == "torch"
    assert entry.reason == "AttnProcessor does not call F.scaled_dot_product_attention"


@pytest.mark.parametrize("value", [None, nn.Linear(2, 2), {}])
def test_processors_of_what_has_none(value):
    with pytest.raises(TypeError, match="model is .*; it must be a model of diffusers with"):
        nv.diffusers_attn_processors(value)


def test_another_attention_backend_stays():
    model = make("flux", torch.float32)
    for module in model.modules():
        if hasattr(module, "set_processor"):
            module.processor._attention_backend = "_native_math"
    reasons = {e.reason for e in replace_diffusers_modules(model) if e.kind == "FluxAttention"}
    assert reasons == {"its attention backend is _native_math, not native"}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["dit", "flux"])
def test_copies(name, how):
    model = make(name)
    report = replace_diffusers_modules(model)
    other = copied(model, how)
    assert torch.equal(run(other, name), run(model, name))
    assert len(restore_diffusers_modules(other)) == len(report)
    assert len(restore_diffusers_modules(model)) == len(report)


@pytest.mark.parametrize("name", ["dit", "flux"])
def test_gradients(name):
    results = []
    for replaced in (False, True):
        model = make(name)
        if replaced:
            replace_diffusers_modules(model)
        model(**FAMILIES[name].given(torch.float64), return_dict=False)[0].square().sum().backward()
        results.append([p.grad for p in model.parameters() if p.grad is not None])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["dit", "flux"])
def test_compiled_whole(name, monkeypatch):
    torch.compiler.reset()
    model, given = make(name, torch.float32), FAMILIES[name].given(torch.float32)
    replace_diffusers_modules(model)
    block = model.transformer_blocks[0]
    taken = {}
    hook = block.register_forward_pre_hook(
        lambda module, args, kwargs: taken.update(args=args, kwargs=kwargs), with_kwargs=True
    )
    with torch.no_grad():
        model(**given)
        hook.remove()
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        expected = block(*taken["args"], **taken["kwargs"])
        torch.testing.assert_close(compiled(*taken["args"], **taken["kwargs"]), expected)
        monkeypatch.setenv("NKI_SIMULATOR", "1")
        monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(*taken["args"], **taken["kwargs"])
    streams = 2 if name == "flux" else 1
    expected = {"attention": 1, "mlp": streams, "ada_layer_norm": 2 * streams}
    assert nv.launches() == expected


@pytest.mark.parametrize(
    "activation",
    ["gelu", "gelu-approximate", "geglu", "geglu-approximate", "swiglu", "linear-silu"],
)
def test_feed_forward(activation, monkeypatch):
    torch.manual_seed(0)
    plain = FeedForward(48, activation_fn=activation, final_dropout=True, bias=False).eval()
    ours = nn.Sequential(copy.deepcopy(plain))
    (entry,) = replace_diffusers_modules(ours)
    assert entry[:3] == ("0", "FeedForward", "mlp")
    x = 3.0 * torch.randn(2, 7, 48)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
        monkeypatch.setenv("NKI_SIMULATOR", "1")
        monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-5)
    assert sum(nv.launches().values()) == 1


class Adapted(nn.Linear):
    """A layer that computes something else, as an adapter's."""

    def forward(self, x):
        return super().forward(x) + 1.0


def test_a_module_that_changes_later_runs_as_it_is(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    model = nn.Sequential(FeedForward(48, activation_fn="gelu").eval())
    replace_diffusers_modules(model)
    model[0].net[2] = Adapted(192, 48)
    x = torch.randn(2, 7, 48)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        found = model(x)
        expected = model[0].net[2](model[0].net[0](x))
    torch.testing.assert_close(found, expected)
    assert nv.launches() == {}
    assert "FeedForward: one of its layers is a Adapted" in str(caught[0].message)
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match="FeedForward"):
        model(x)


def test_dropout_in_training():
    model = nn.Sequential(FeedForward(48, dropout=0.5, activation_fn="gelu").train())
    (entry,) = replace_diffusers_modules(model)
    assert entry[2:4] == ("torch", "it drops values in training")
    model.eval()
    replace_diffusers_modules(model)
    model.train()
    torch.manual_seed(0)
    assert (model(torch.zeros(64, 48)) == model[0].net[2].bias).sum() < 64 * 48
    assert nv.last_path() == "torch"


def test_blocks_of_other_models_stay():
    model = nn.Sequential(BasicTransformerBlock(48, 2, 24, cross_attention_dim=32))
    report = {entry.name: entry for entry in replace_diffusers_modules(model)}
    assert report["0"].reason == "its norm is layer_norm, not ada_norm_zero or ada_norm_single"
    assert type(model[0]) is BasicTransformerBlock
    assert report["0.ff"].path == "mlp"
    assert replace_diffusers_modules(nn.Sequential(nn.LayerNorm(4))) == []


def test_mixed_dtypes_are_diffusers_matter(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    model, plain = make("dit", torch.float32), make("dit", torch.float32)
    replace_diffusers_modules(model)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        with torch.autocast("cpu", torch.bfloat16):
            given = FAMILIES["dit"].given(torch.float32)
            found, expected = (m(**given, return_dict=False)[0] for m in (model, plain))
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(("size", "path"), [(128, "op"), (160, "torch")])
def test_heads_that_no_kernel_takes_are_left_alone_and_reported(size, path):
    model = nn.Sequential(processors.Attention(2 * size, heads=2, dim_head=size))
    [row] = nv.report(model)
    assert row.path == path and ("head_dim=160 > 128" in row.reason) == (path == "torch")
    before = model[0].processor
    replace_diffusers_modules(model)
    assert (model[0].processor is before) == (path == "torch")
