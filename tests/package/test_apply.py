"""`apply`, `report` and `undo`: what becomes of a model, its layers and what else holds them."""

import copy
import pickle
import types
import warnings

import pytest
import torch
from torch import nn

import neuron_vit as nv
from neuron_vit import _block_layer
from neuron_vit._replace import is_replaced
from tests.models.timm_blocks import timm
from tests.models.whole_models import HEADS, HIDDEN, LAYERS, WIDTH, build, run

transformers = pytest.importorskip("transformers")

F32 = torch.float32


@pytest.fixture
def required(simulated, monkeypatch):
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")


def applied(name="vit", dtype=F32):
    model = build(name, dtype)
    nv.apply(model)
    return model


def last(model, name="vit", dtype=F32, **arguments):
    output = run(name, model, dtype, **arguments)
    return output if isinstance(output, torch.Tensor) else output.last_hidden_state


def blocks_run(model, name="vit", dtype=F32):
    """How many blocks one call launches; the environment must ask for the simulator."""
    nv.reset_launches()
    last(model, name, dtype)
    return nv.launches().get("vit_block", 0)


def equal_to_plain(model, name="vit", dtype=F32):
    """The applied model computes what a plain one with its weights does."""
    plain = build(name, dtype)
    plain.load_state_dict(model.state_dict())
    found, expected = last(model, name, dtype), last(plain, name, dtype)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


# What stays as it was


@pytest.mark.parametrize("name", ["vit", "swin", "timm-eva"])
def test_nothing_else_changes(name):
    model, plain = build(name), build(name)
    before = dict(model.state_dict(keep_vars=True))
    shown, classes = str(model), [type(module) for module in model.modules()]
    nv.apply(model)
    after = model.state_dict(keep_vars=True)
    assert list(after) == list(before)
    assert all(after[key] is value for key, value in before.items())
    assert str(model) == shown
    for module, cls in zip(model.modules(), classes):
        assert isinstance(module, cls) and type(module).__name__ == cls.__name__
    assert not any(is_replaced(module) for module in plain.modules())
    assert not any(is_replaced(module) for module in build(name).modules())


def test_models_of_one_config_are_apart(simulated):
    config = build("vit").config
    first, second = transformers.ViTModel(config).eval(), transformers.ViTModel(config).eval()
    nv.apply(first)
    third = transformers.ViTModel(config).eval()
    assert blocks_run(first) == LAYERS
    assert blocks_run(second) == blocks_run(third) == 0
    assert config._attn_implementation == "sdpa"


@pytest.mark.parametrize("name", ["vit", "dinov3", "beit", "swin", "swin-padded", "timm-vit"])
def test_undo_gives_everything_back(name, simulated):
    model = build(name)
    classes = [type(module) for module in model.modules()]
    kept = [dict(vars(module)) for module in model.modules()]
    expected = last(model, name)
    told = nv.apply(model)
    assert not torch.equal(last(model, name), expected)
    undone = nv.undo(model)
    assert len(undone) >= len(told) and all(row.path == "torch" for row in undone)
    assert undone.summary.startswith(f"{len(told.blocks)} blocks and")
    assert [type(module) for module in model.modules()] == classes
    for module, before in zip(model.modules(), kept):
        assert vars(module).keys() == before.keys()
        assert not module._load_state_dict_post_hooks
    assert torch.equal(last(model, name), expected)


def test_undo_of_an_untouched_model_is_nothing():
    model = build("vit")
    assert len(nv.undo(model)) == 0
    assert not any(is_replaced(module) for module in model.modules())


def test_applying_twice_is_applying_once(simulated):
    model = applied()
    expected, classes = last(model), [type(module) for module in model.modules()]
    assert list(nv.apply(model)) == list(nv.report(model))
    assert [type(module) for module in model.modules()] == classes
    assert torch.equal(last(model), expected)
    assert blocks_run(model) == LAYERS
    nv.undo(model)
    assert not any(is_replaced(module) for module in model.modules())


@pytest.mark.parametrize("function", [nv.apply, nv.report, nv.undo])
@pytest.mark.parametrize("value", [None, {}, nn.Module])
def test_only_modules_are_taken(function, value):
    with pytest.raises(TypeError, match=f"{function.__name__}: model is .*torch.nn.Module"):
        function(value)


# Copies


@pytest.mark.parametrize("name", ["vit", "swin-padded"])
def test_a_deep_copy_is_replaced_too(name, simulated):
    model = applied(name)
    twin = copy.deepcopy(model)
    assert torch.equal(last(twin, name), last(model, name))
    assert list(nv.report(twin)) == list(nv.report(model))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.5)
    assert not torch.equal(last(twin, name), last(model, name))
    equal_to_plain(twin, name)
    equal_to_plain(model, name)
    nv.undo(twin)
    assert any(is_replaced(module) for module in model.modules())


@pytest.mark.parametrize("name", ["vit", "swin-padded", "timm-vit"])
def test_a_pickle_holds_the_plain_model(name, simulated):
    model = applied(name)
    loaded = pickle.loads(pickle.dumps(model))
    assert not any(is_replaced(module) for module in loaded.modules())
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert not any(module._load_state_dict_post_hooks for module in loaded.modules())
    nv.apply(loaded)
    assert torch.equal(last(loaded, name), last(model, name))


@pytest.mark.parametrize("name", ["vit", "swin-padded"])
def test_a_pickle_does_not_know_the_package(name):
    """It loads where the package is absent, or has the name of another build from the Hub."""
    assert b"neuron_vit" not in pickle.dumps(applied(name))


# Weights that change


def test_weights_loaded_after_apply_count(simulated):
    model, other = applied(), build("vit")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.8)
    before = last(model)
    model.load_state_dict(other.state_dict())
    assert not torch.equal(last(model), before)
    equal_to_plain(model)
    model.load_state_dict({k: v.clone() * 0.9 for k, v in other.state_dict().items()}, assign=True)
    equal_to_plain(model)
    assert blocks_run(model) == LAYERS


def test_a_model_converted_after_apply(required):
    model = applied().to(torch.bfloat16)
    plain = build("vit").to(torch.bfloat16)
    assert last(model, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert blocks_run(model, dtype=torch.bfloat16) == LAYERS
    found, expected = (last(m, dtype=torch.bfloat16).float() for m in (model, plain))
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    model.float()
    equal_to_plain(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.attention.q_proj.weight.mul_(1.5),
        lambda layer: layer.layernorm_after.bias.add_(1.0),
        lambda layer: setattr(layer.mlp.fc1, "bias", nn.Parameter(torch.ones(HIDDEN))),
        lambda layer: setattr(layer.mlp.fc2.weight, "data", torch.ones(WIDTH, HIDDEN)),
        lambda layer: setattr(layer.mlp, "activation_fn", nn.ReLU()),
        lambda layer: (
            setattr(layer.layernorm_before, "eps", 0.5)
            or setattr(layer.layernorm_after, "eps", 0.5)
        ),
        lambda layer: setattr(layer.attention, "scaling", 1.0),
    ],
    ids=["in place", "bias", "parameter", "data", "activation", "eps", "scaling"],
)
def test_changes_in_a_layer_count(change, simulated):
    model, plain = applied(), build("vit")
    before = last(model)
    with torch.no_grad():
        change(model.layers[0])
        change(plain.layers[0])
    assert not torch.equal(last(model), before)
    torch.testing.assert_close(last(model), last(plain))
    assert blocks_run(model) == LAYERS


def test_a_part_that_cannot_be_packed_goes_back_to_torch(simulated):
    """As LoRA does: another module in the place of a Linear, after apply."""

    class Adapted(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base

        def forward(self, x):
            return 2 * self.base(x)

    model, plain = applied(), build("vit")
    for one in (model, plain):
        one.layers[0].attention.v_proj = Adapted(one.layers[0].attention.v_proj)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="v_proj is a Adapted"):
        found = last(model)
    torch.testing.assert_close(found, last(plain))
    told = nv.report(model)
    assert [row.path for row in told.blocks] == ["torch", "block"]
    assert "v_proj is a Adapted" in str(told)


def test_what_pytorch_does_not_count_is_seen_by_the_next_apply():
    model, plain = applied(), build("vit")
    for one in (model, plain):
        one.layers[0].mlp.fc1.weight.data.mul_(2.0)
    nv.apply(model)
    torch.testing.assert_close(last(model), last(plain))


# Gradients and training


@pytest.mark.parametrize("name", ["vit", "swin-padded", "timm-vit"])
def test_gradients_are_those_of_the_plain_model(name):
    gradients = []
    for model in (build(name), applied(name)):
        inputs = {"vit": "pixel_values", "swin-padded": "pixel_values", "timm-vit": "x"}[name]
        output = model(**{inputs: torch.ones(1, 3, 32, 32)})
        output = output if isinstance(output, torch.Tensor) else output.last_hidden_state
        output.square().mean().backward()
        gradients.append({key: p.grad for key, p in model.named_parameters()})
    plain, ours = gradients
    assert all((ours[key] is None) == (value is None) for key, value in plain.items())
    for key, value in plain.items():
        if value is not None:
            torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-6)


def test_an_optimizer_step_counts(simulated):
    model, pixels = applied(), torch.ones(1, 3, 32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="gradients of a layer's weights"):
        model(pixels).last_hidden_state.square().mean().backward()
    before = last(model)
    optimizer.step()
    assert not torch.equal(last(model), before)
    equal_to_plain(model)
    assert blocks_run(model) == LAYERS


def test_frozen_weights_let_gradients_of_the_input_through(required):
    model = applied().requires_grad_(False)
    pixels = torch.ones(1, 3, 32, 32, requires_grad=True)
    model(pixels).last_hidden_state.square().mean().backward()
    assert nv.launches()["vit_block"] == LAYERS
    plain = build("vit")
    twin = pixels.detach().clone().requires_grad_(True)
    plain(twin).last_hidden_state.square().mean().backward()
    torch.testing.assert_close(pixels.grad, twin.grad, rtol=1e-3, atol=1e-6)


def test_active_dropout_runs_as_the_layer_itself(simulated):
    model = build("vit")
    for layer in model.layers:
        layer.dropout.p = 0.5
    nv.apply(model.train())
    assert {row.path for row in nv.report(model).blocks} == {"torch"}
    assert "model.eval()" in str(nv.report(model))
    with pytest.warns(nv.NeuronVitFallbackWarning, match="no dropout"):
        first = last(model)
    assert not torch.equal(last(model), first)
    model.eval()
    assert blocks_run(model) == LAYERS
    # Dropout at inference, of a model in evaluation mode.
    for layer in model.layers:
        layer.dropout.train()
    assert not torch.equal(last(model), last(model))


# Calls that ask for more than a block does


def test_attention_weights_are_returned(simulated):
    model, plain = build("vit"), build("vit")
    for one in (model, plain):
        one.set_attn_implementation("eager")
    nv.apply(model)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="output_attentions"):
        found = run("vit", model, F32, output_attentions=True)
    expected = run("vit", plain, F32, output_attentions=True)
    assert len(found.attentions) == len(expected.attentions) == LAYERS
    for ours, theirs in zip(found.attentions, expected.attentions):
        torch.testing.assert_close(ours, theirs)
    # The recording hooks stay in the model, and do not keep blocks from running later.
    assert blocks_run(model) == LAYERS


def test_attention_weights_of_a_model_that_does_not_tell_its_layers(simulated):
    model = build("internvl")
    model.set_attn_implementation("eager")
    nv.apply(model)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="attention weights"):
        found = run("internvl", model, F32, output_attentions=True)
    assert len(found.attentions) == LAYERS


def test_attention_weights_asked_for_in_the_config(simulated):
    """Swin records them from what its layers return."""
    model, plain = build("swin"), build("swin")
    for one in (model, plain):
        one.set_attn_implementation("eager")
        one.config.output_attentions = one.encoder.config.output_attentions = True
    nv.apply(model)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="does not return attention weights"):
        found = run("swin", model, F32)
    expected = run("swin", plain, F32)
    assert len(found.attentions) == len(expected.attentions) == 2
    for ours, theirs in zip(found.attentions, expected.attentions):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_backbones_record_their_features(required):
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "mlp_ratio": 2, "image_size": 32}
    config = transformers.Dinov2Config(
        **sizes, patch_size=8, num_hidden_layers=2, out_features=["stage1", "stage2"]
    )
    model, pixels = transformers.Dinov2Backbone(config).eval(), torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(pixels).feature_maps
        nv.apply(model)
        found = model(pixels).feature_maps
    assert len(found) == len(expected) == 2 and nv.launches()["vit_block"] == 2
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_hooks_on_layers_fire(required):
    model, seen = applied(), []
    model.layers[1].register_forward_hook(lambda layer, args, out: seen.append(out))
    output = last(model)
    assert len(seen) == 1 and seen[0].shape == output.shape
    assert nv.launches()["vit_block"] == LAYERS


def test_a_hook_within_a_layer_fires(simulated):
    model, seen = applied(), []
    handle = model.layers[0].mlp.register_forward_hook(lambda *_: seen.append(1))
    with pytest.warns(nv.NeuronVitFallbackWarning, match="hook on a ViTMLP within a layer"):
        last(model)
    assert seen == [1]
    handle.remove()
    assert blocks_run(model) == LAYERS


@pytest.mark.parametrize("before", [True, False], ids=["before apply", "after apply"])
@pytest.mark.parametrize("part", ["attention.q_proj", "mlp.fc1", "layernorm_after"])
def test_a_forward_pass_set_within_a_layer_counts(part, before, simulated):
    """As adapters and offloading set them, on one instance."""
    model, plain = build("vit"), build("vit")
    if not before:
        nv.apply(model)
    for one in (model, plain):
        inner = one.layers[0].get_submodule(part)
        inner.forward = lambda x, own=inner.forward: 2 * own(x)
    if before:
        told = nv.apply(model)
        assert "set a forward pass on a" in told.blocks[0].reason
        torch.testing.assert_close(last(model), last(plain))
        nv.apply(model)
    else:
        with pytest.warns(nv.NeuronVitFallbackWarning, match="set a forward pass on a"):
            torch.testing.assert_close(last(model), last(plain))
    assert blocks_run(model) == LAYERS - 1
    del inner.forward, model.layers[0].get_submodule(part).forward
    nv.apply(model)
    torch.testing.assert_close(last(model), last(plain))
    assert blocks_run(model) == LAYERS


def test_a_forward_pass_of_kernelize_may_be_left_out(required, monkeypatch):
    """It computes what the module's own does."""
    monkeypatch.setattr(nn.LayerNorm, "kernel_layer_name", "LayerNorm", raising=False)
    model = build("vit")
    expected = last(model)
    for layer in model.layers:
        norm = layer.layernorm_before
        norm.forward = types.MethodType(nn.LayerNorm.forward, norm)
    nv.apply(model)
    torch.testing.assert_close(last(model), expected)
    assert blocks_run(model) == LAYERS


def test_a_forward_pass_set_within_an_mlp_counts(simulated):
    """Of an MLP that runs as an operator, in a block that cannot run as one."""
    model, plain = build("vit"), build("vit")
    for one in (model, plain):
        one.layers[0].attention.q_proj.forward = one.layers[0].attention.q_proj.forward
    nv.apply(model)
    assert "mlp" in nv.report(model).blocks[0].reason.split("As operators: ")[1]
    for one in (model, plain):
        inner = one.layers[0].mlp.fc1
        inner.forward = lambda x, own=inner.forward: 2 * own(x)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="set a forward pass on a Linear"):
        torch.testing.assert_close(last(model), last(plain))
    assert "mlp" not in nv.apply(model).blocks[0].reason.split("As operators: ")[1]
    torch.testing.assert_close(last(model), last(plain))


def test_calls_beside_a_layer_that_is_read_anew(simulated, monkeypatch):
    """Threads share a model: none of them may meet a layer that another one is reading."""
    model, calls = applied(), []
    expected = last(model)
    with torch.no_grad():
        model.layers[0].mlp.fc1.weight.mul_(1.0)
    read = _block_layer.read_block

    def slow(layer):
        calls.append(layer)
        if len(calls) == 1:  # as another thread would in the middle of this
            torch.testing.assert_close(last(model), expected)
        return read(layer)

    monkeypatch.setattr(_block_layer, "read_block", slow)
    torch.testing.assert_close(last(model), expected)
    assert len(calls) == 2


def test_what_falls_back_is_an_error_where_nki_is_required(required):
    model = applied()
    with pytest.raises(nv.NeuronVitUnsupported, match="gradients of a layer's weights"):
        model(torch.ones(1, 3, 32, 32))


def test_autocast_runs_as_before(simulated):
    model, plain = applied(), build("vit")
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(nv.NeuronVitFallbackWarning):
        found = last(model)
    with torch.autocast("cpu", torch.bfloat16):
        expected = last(plain)
    assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_masks_and_flash_arguments(simulated):
    model, plain = applied(), build("vit")
    layer, own = model.layers[0], plain.layers[0]
    x = torch.randn(1, 6, WIDTH)
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 4:] = False
    bounds = torch.tensor([0, 2, 6], dtype=torch.int32)
    segments = torch.block_diag(torch.ones(2, 2), torch.ones(4, 4))[None, None].bool()
    causal = torch.ones(6, 6).tril()[None, None].bool()
    with torch.no_grad():
        for given, theirs in (
            ({"attention_mask": mask}, mask),
            ({"attention_mask": mask.float()}, mask.float()),
            ({"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}, segments),
            ({"is_causal": True}, causal),
            ({"attention_mask": None, "output_hidden_states": True, "anything": 3}, None),
        ):
            torch.testing.assert_close(layer(x, **given), own(x, theirs))
            torch.testing.assert_close(layer(hidden_states=x, **given), own(x, theirs))
        assert nv.launches()["vit_block"] == 10
        with pytest.warns(nv.NeuronVitFallbackWarning, match="has 2 dimensions"):
            layer(x, attention_mask=torch.ones(6, 6, dtype=torch.bool))


def test_timm_masks(simulated):
    model, plain = applied("timm-vit"), build("timm-vit")
    layer, own, x = model.blocks[0], plain.blocks[0], torch.randn(1, 6, WIDTH)
    with torch.no_grad():
        for given in ({"is_causal": True}, {"attn_mask": torch.randn(6, 6)}, {}):
            torch.testing.assert_close(layer(x, **given), own(x, **given))
    assert nv.launches()["vit_block"] == 3


def test_both_towers_of_clip(required):
    sizes = {
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 1,
    }
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 50, "max_position_embeddings": 8},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
    )
    model = transformers.CLIPModel(config).eval()
    tokens = torch.randint(0, 49, (2, 8))
    given = {"input_ids": tokens, "pixel_values": torch.randn(2, 3, 32, 32)}
    with torch.no_grad():
        expected = model(**given).logits_per_image
        assert "2 of 2 blocks run" in nv.apply(model).summary
        torch.testing.assert_close(model(**given).logits_per_image, expected)
    assert nv.launches()["vit_block"] == 2


# Models that are not, or not as a whole, for the kernels


def test_blocks_of_another_kind_run_as_operators(required):
    model = timm.models.eva.Eva(
        img_size=32, patch_size=8, embed_dim=WIDTH, depth=2, num_heads=2, num_classes=10,
        use_post_norm=True, use_rot_pos_emb=True,
    ).eval()  # fmt: skip
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(x)
        told = nv.apply(model)
        torch.testing.assert_close(model(x), expected)
    assert {row.path for row in told.blocks} == {"op"}
    assert "no fused block for EvaBlockPostNorm" in told.blocks[0].reason
    assert "As operators: attn, norm1, mlp, norm2" in told.blocks[0].reason
    assert nv.launches()["attention"] == nv.launches()["mlp"] == 2
    assert "0 of 2 blocks run as vit_block; 2 in part as operators" in told.summary


@pytest.mark.parametrize("name", ["SAM", "Swin V2"])
def test_a_loud_message_for_attention_out_of_reach(name):
    if name == "SAM":
        from transformers.models.sam.modeling_sam import SamVisionEncoder

        config = transformers.SamVisionConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32,
            patch_size=8, output_channels=16, window_size=2, global_attn_indexes=[1], mlp_dim=48,
        )  # fmt: skip
        model = SamVisionEncoder(config).eval()
    else:
        config = transformers.Swinv2Config(
            image_size=32, patch_size=4, embed_dim=16, depths=[2], num_heads=[2], window_size=4
        )
        model = transformers.Swinv2Model(config).eval()
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(x).last_hidden_state
        with pytest.warns(nv.NeuronVitFallbackWarning, match=f"{name} .*no function which could"):
            told = nv.apply(model)
        torch.testing.assert_close(model(x).last_hidden_state, expected, rtol=1e-4, atol=1e-5)
    assert len(told.blocks) == 2
    assert all(row.path != "block" and name in row.reason for row in told.blocks)


def test_a_model_of_which_nothing_is_known_says_so():
    with pytest.warns(nv.NeuronVitFallbackWarning, match="No layer of it is known"):
        told = nv.apply(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()))
    assert len(told) == 0 and "0 of 0 blocks" in str(told)


def test_no_warning_where_everything_is_replaced():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        applied("vit")
        applied("swin")


def layer_of(**changed):
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": HIDDEN}
    config = transformers.ViTConfig(**{**sizes, **changed}, num_hidden_layers=1, image_size=32)
    return transformers.ViTModel(config).eval()


class Quantised(torch.Tensor):
    """A stand-in for the tensors of quantisation and sharding."""


def quantised():
    model = layer_of()
    weight = model.layers[0].mlp.fc1.weight.detach().as_subclass(Quantised)
    model.layers[0].mlp.fc1.weight = nn.Parameter(weight, requires_grad=False)
    return model


def of_two_dtypes():
    model = layer_of()
    model.layers[0].layernorm_before.bfloat16()
    return model


def on_meta():
    return layer_of().to("meta")


def with_its_own_forward():
    model = layer_of()
    model.layers[0].forward = model.layers[0].forward
    return model


def with_other_arguments():
    model = layer_of()

    class ViTLayer(type(model.layers[0])):
        def forward(self, hidden_states, head_mask=None, output_attentions=False):
            return (hidden_states,)

    ViTLayer.__module__ = "transformers.models.vit.modeling_vit"
    model.layers[0].__class__ = ViTLayer
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: layer_of(hidden_size=384), "head_dim=192"),
        (lambda: layer_of(hidden_act="tanh"), "activation Tanh is none of these"),
        (quantised, "a weight is a Quantised"),
        (of_two_dtypes, "more than one dtype or device: bfloat16, float32"),
        (on_meta, "on the meta device"),
        (lambda: layer_of().double(), "dtype=float64"),
        (with_its_own_forward, "another tool set a forward pass"),
        (with_other_arguments, "takes hidden_states, head_mask, output_attentions; known is"),
    ],
)
@pytest.mark.filterwarnings("ignore::neuron_vit.NeuronVitFallbackWarning")
def test_layers_left_alone_and_why(make, reason):
    model = make()
    layer = model.layers[0]
    told = nv.apply(model)
    [row] = told.blocks
    assert row.path != "block" and reason in row.reason, row.reason
    assert not is_replaced(layer)


@pytest.mark.filterwarnings("ignore::neuron_vit.NeuronVitFallbackWarning")
def test_only_operators_that_run_are_reported(simulated, monkeypatch):
    """Heads of 192 values: the attention of the block has no kernel, its other parts have."""
    model = layer_of(hidden_size=384)
    [row] = nv.apply(model).blocks
    assert row.path == "op" and "head_dim=192 > 128" in row.reason
    assert row.reason.endswith("As operators: layernorm_before, layernorm_after, mlp")
    assert "no setting of the model changes that" in row.reason
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    nv.reset_launches()
    with torch.no_grad():
        model(torch.randn(1, 3, 32, 32))
    assert set(nv.launches()) == {"layer_norm", "mlp"}


@pytest.mark.filterwarnings("ignore::neuron_vit.NeuronVitFallbackWarning")
def test_a_model_in_float64_runs_nothing():
    told = nv.apply(layer_of().double())
    assert {row.path for row in told} == {"torch"}
    assert ".float(), then call apply again" in told.blocks[0].reason


def test_a_layer_replaced_by_another_copy_of_the_package():
    """Two versions from the Hub live in one process under two names."""
    model = layer_of()
    layer = model.layers[0]
    own = type(layer)
    members = {"forward": own.forward, "_neuron_vit_original": own}
    layer.__class__ = other = type("ViTLayer", (own,), members)
    for function in (nv.report, nv.apply, nv.report):
        assert "another copy of neuron-vit replaced it" in function(model).blocks[0].reason
    nv.undo(model)
    assert type(layer) is other


def test_a_class_that_another_tool_put_on_top_stays():
    """As sharding and parametrisations do."""
    model = applied()
    layer = model.layers[0]
    layer.__class__ = sharded = type("ShardedViTLayer", (type(layer),), {})
    assert "another tool changed its class" in nv.apply(model).blocks[0].reason
    assert "another tool changed its class" in nv.undo(model).blocks[0].reason
    assert type(layer) is sharded
    layer.__class__ = sharded.__bases__[0]
    nv.undo(model)
    assert not any(is_replaced(module) for module in model.modules())


def test_user_classes_with_known_names_are_left_alone():
    class LayerNorm(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    model = nn.Sequential(nn.LayerNorm(8), LayerNorm(8))
    told = nv.apply(model)
    assert [row.module for row in told] == ["0"]
    assert not is_replaced(model[1])


def test_the_model_may_be_a_layer(simulated):
    layer = build("vit").layers[0]
    told = nv.apply(layer)
    assert "(model)  ViTLayer  block" in str(told)
    with torch.no_grad():
        layer(torch.randn(1, 6, WIDTH))
    assert nv.launches() == {"vit_block": 1}


def test_layers_added_after_apply_are_named():
    model = applied()
    model.layers.append(build("vit").layers[0])
    told = nv.report(model)
    assert [row.path for row in told.blocks] == ["block"] * LAYERS + ["torch"]
    assert "it was not there when apply was called" in told.blocks[-1].reason
    assert [row.path for row in nv.apply(model).blocks] == ["block"] * (LAYERS + 1)


# Compiled code


@pytest.mark.parametrize(
    "name",
    [
        "vit",
        "swin-padded",
        "timm-eva",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("dinov3", "swin", "timm-beit")),
    ],
)
def test_compiles_whole_and_once(name):
    torch._dynamo.reset()
    model = applied(name)
    expected = last(model, name)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(last(compiled, name), expected)
    with torch.compiler.set_stance("fail_on_recompile"):
        torch.testing.assert_close(last(compiled, name), expected)


def test_compiled_code_runs_the_kernels(required):
    torch._dynamo.reset()
    compiled = torch.compile(applied(), fullgraph=True, backend="aot_eager")
    assert blocks_run(compiled) == LAYERS
    assert blocks_run(compiled) == LAYERS


def test_compiled_code_and_weights_that_change(simulated):
    torch._dynamo.reset()
    model, other = applied(), build("vit")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    before = last(compiled)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.8)
    model.load_state_dict(other.state_dict())
    assert not torch.equal(last(compiled), before)
    torch.testing.assert_close(last(compiled), last(other))
    with torch.no_grad():
        for one in (model, other):
            one.layers[0].mlp.fc1.weight.mul_(2.0)
    nv.apply(model)
    torch.testing.assert_close(last(compiled), last(other))
    model.to(torch.bfloat16)
    assert blocks_run(compiled, dtype=torch.bfloat16) == LAYERS


def test_compiled_training_has_gradients_and_says_so(simulated):
    torch._dynamo.reset()
    model, plain = applied(), build("vit")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    pixels = torch.ones(1, 3, 32, 32)
    with pytest.warns(nv.NeuronVitFallbackWarning, match="gradients of a layer's weights"):
        compiled(pixels).last_hidden_state.square().mean().backward()
    plain(pixels).last_hidden_state.square().mean().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_exports(simulated):
    layer, x = applied().layers[0], torch.randn(1, 6, WIDTH)
    with torch.no_grad():
        exported = torch.export.export(layer, (x,)).module()
        assert torch.equal(exported(x), layer(x))


def test_inference_mode(required):
    model = build("vit")
    with torch.inference_mode():
        nv.apply(model)
        output = model(torch.ones(1, 3, 32, 32)).last_hidden_state
    assert output.is_inference() and nv.launches()["vit_block"] == LAYERS
    # What was packed there serves outside as well.
    model.requires_grad_(False)
    model(torch.ones(1, 3, 32, 32, requires_grad=True)).last_hidden_state.sum().backward()
