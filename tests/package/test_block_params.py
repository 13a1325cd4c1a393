"""BlockParams.from_module: the layers of transformers, and what it refuses."""

import dataclasses

import pytest
import torch
from torch import nn

import neuron_vit as nv
from neuron_vit._layer_reader import _LAYERS
from tests.models.timm_blocks import timm

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
MLP = {"intermediate_size": 48}


def vit(**changed):
    config = transformers.ViTConfig(**{**SIZES, **MLP, **changed})
    return transformers.ViTModel(config).layers[0]


def deit(**changed):
    config = transformers.DeiTConfig(**{**SIZES, **MLP, **changed})
    return first_layer(transformers.DeiTModel(config))


def dinov2(**changed):
    config = transformers.Dinov2Config(**{**SIZES, "mlp_ratio": 2, **changed})
    return first_layer(transformers.Dinov2Model(config))


def dinov2_with_registers(**changed):
    config = transformers.Dinov2WithRegistersConfig(**{**SIZES, "mlp_ratio": 2, **changed})
    return first_layer(transformers.Dinov2WithRegistersModel(config))


def clip(**changed):
    config = transformers.CLIPVisionConfig(**{**SIZES, **MLP, **changed})
    return first_layer(transformers.CLIPVisionModel(config))


def siglip(**changed):
    config = transformers.SiglipVisionConfig(**{**SIZES, **MLP, **changed})
    return first_layer(transformers.SiglipVisionModel(config))


FAMILIES = {
    "ViTLayer": vit,
    "DeiTLayer": deit,
    "Dinov2Layer": dinov2,
    "Dinov2WithRegistersLayer": dinov2_with_registers,
    "CLIPEncoderLayer": clip,
    "SiglipEncoderLayer": siglip,
}


def first_layer(model):
    """The first module of `model` that is a transformer layer, whatever the lists are called."""
    for module in model.modules():
        if type(module).__name__ in _LAYERS:
            return module
    raise AssertionError(f"no layer in {type(model).__name__}")


def randomized(layer):
    """Every parameter random, so that a dropped or swapped one shows."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return layer.eval()


def output(layer, x):
    result = layer(x, attention_mask=None)
    return result[0] if isinstance(result, tuple) else result


def check(layer):
    layer = randomized(layer).double()
    x = torch.randn(2, 7, 32, dtype=torch.float64)
    params = nv.BlockParams.from_module(layer)
    with torch.no_grad():
        torch.testing.assert_close(nv.vit_block(x, params), output(layer, x), rtol=1e-9, atol=1e-9)
    return params


@pytest.mark.parametrize("family", FAMILIES)
def test_computes_what_the_layer_computes(family):
    layer = FAMILIES[family]()
    assert type(layer).__name__ == family
    params = check(layer)
    assert (params.width, params.num_heads, params.head_dim, params.norm) == (32, 2, 16, "layer")
    assert (params.scale1 is not None) == family.startswith("Dinov2")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("hidden_act", "activation"),
    [
        ("gelu", "gelu"),
        ("gelu_python", "gelu"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("gelu_accurate", "gelu_tanh"),
        ("quick_gelu", "quick_gelu"),
        ("silu", "silu"),
        ("relu", "relu"),
    ],
)
def test_reads_activation_and_eps_from_the_module(family, hidden_act, activation):
    params = check(FAMILIES[family](hidden_act=hidden_act, layer_norm_eps=0.25))
    assert params.activation == activation and params.eps == 0.25


@pytest.mark.parametrize("hidden_act", ["mish", "relu6", "tanh", "gelu_10", "linear"])
def test_refuses_other_activations(hidden_act):
    with pytest.raises(nv.NeuronVitUnsupported, match="ViTMLP: its activation .* is none of these"):
        nv.BlockParams.from_module(vit(hidden_act=hidden_act).eval())


def test_no_biases_and_no_key_bias():
    assert check(vit(qkv_bias=False)).qkv_bias is None
    layer = vit()
    layer.attention.k_proj.bias = None
    params = check(layer)
    assert torch.equal(params.qkv_bias[32:64], torch.zeros(32, dtype=torch.float64))
    layer.mlp.fc1.bias = None
    layer.attention.o_proj.bias = None
    layer.layernorm_before.bias = None
    params = check(layer)
    assert params.fc1_bias is params.proj_bias is params.norm1_bias is None


def test_score_factor_is_read_from_the_module():
    layer = vit()
    layer.attention.scaling = 0.7
    assert check(layer).attention_scale == 0.7


def test_a_subclass_with_the_same_forward_is_taken():
    class Renamed(type(vit())):
        pass

    layer = vit()
    layer.__class__ = Renamed
    check(layer)


def test_a_subclass_with_another_forward_is_refused():
    class PostNorm(type(vit())):
        def forward(self, hidden_states, attention_mask=None):
            return self.layernorm_after(super().forward(hidden_states, attention_mask))

    layer = PostNorm(transformers.ViTConfig(**SIZES, **MLP)).eval()
    with pytest.raises(nv.NeuronVitUnsupported, match="forward pass of .*PostNorm.*ViTLayer"):
        nv.BlockParams.from_module(layer)


def test_a_model_instead_of_a_layer_is_told_which_to_pass():
    model = transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=24, num_attention_heads=3, intermediate_size=48, num_hidden_layers=2
        )
    ).eval()
    name = next(n for n, module in model.named_modules() if type(module).__name__ == "ViTLayer")
    with pytest.raises(nv.NeuronVitUnsupported) as caught:
        nv.BlockParams.from_module(model)
    message = str(caught.value)
    assert f"a module with 2 of them. Pass one of these, for example {name}, a ViTLayer" in message
    assert "PixtralAttentionLayer" not in message and message.endswith("from_module.")


def test_refuses_layers_that_only_look_alike():
    """A post-norm layer has the submodules of a pre-norm one; so has a causal text layer."""
    with pytest.raises(nv.NeuronVitUnsupported, match="EvaBlockPostNorm.*must be one of"):
        nv.BlockParams.from_module(timm.models.eva.EvaBlockPostNorm(32, 2))
    with pytest.raises(nv.NeuronVitUnsupported, match="a Linear"):
        nv.BlockParams.from_module(nn.Linear(3, 3))


def test_refuses_parts_it_does_not_know():
    def changed(change):
        layer = vit().eval()
        change(layer)
        return layer

    class Wrapped(nn.Linear):
        pass

    def wrap(layer):
        layer.mlp.fc1 = Wrapped(32, 48)

    def renorm(layer):
        layer.layernorm_after = nn.RMSNorm(32, eps=1e-12)

    def group(layer):
        layer.layernorm_after = nn.GroupNorm(2, 32)

    def unstable(layer):
        layer.layernorm_after = nn.RMSNorm(32)

    def uneven(layer):
        layer.layernorm_after.eps = 0.5

    def causal(layer):
        layer.attention.is_causal = True

    def unweighted(layer):
        layer.layernorm_before = nn.LayerNorm(32, elementwise_affine=False, eps=1e-12)

    def learned(layer):
        layer.mlp.activation_fn = nn.PReLU()

    def bare(layer):
        del layer.mlp.fc2

    for change, message in (
        (wrap, "fc1 is a Wrapped; it must be a torch.nn.Linear"),
        (renorm, "its norms are layer with eps 1e-12 and rms with eps 1e-12; it must be equal"),
        (group, "layernorm_after is a GroupNorm; it must be a LayerNorm or an RMSNorm"),
        (unstable, "its eps is None"),
        (uneven, "its norms are layer with eps 1e-12 and layer with eps 0.5; it must be equal"),
        (causal, "ViTAttention: it is causal"),
        (unweighted, "it has no weight"),
        (learned, "PReLU has parameters"),
        (bare, "its parts are activation_fn, fc1; it must have fc2"),
    ):
        with pytest.raises(nv.NeuronVitUnsupported, match=message):
            nv.BlockParams.from_module(changed(change))

    def own_attention(layer):
        layer.attn.forward = None
        layer.attn.__class__ = type("Gathered", (type(layer.attn),), {"forward": lambda x: x})

    def gate(layer):
        layer.attn.gate = nn.Linear(32, 32)

    def inner_norm(layer):
        layer.attn.norm = nn.LayerNorm(32)

    def half_normed(layer):
        layer.attn.q_norm = nn.LayerNorm(16)

    for change, message in (
        (own_attention, "Gathered: its forward pass is that of .*Gathered"),
        (gate, "gate is a Linear; it must have no gate"),
        (inner_norm, "norm is a LayerNorm; it must have no norm"),
        (half_normed, "its q_norm and k_norm differ"),
    ):
        layer = timm.models.vision_transformer.Block(32, 2).eval()
        change(layer)
        with pytest.raises(nv.NeuronVitUnsupported, match=message):
            nv.BlockParams.from_module(layer)


def test_packed_gates_of_either_order_are_taken_apart():
    packed = [
        timm.layers.GluMlp(32, 48, act_layer=nn.SiLU, gate_last=last).double().eval()
        for last in (False, True)
    ]
    packed[1].load_state_dict(packed[0].state_dict())
    x = torch.randn(1, 7, 32, dtype=torch.float64)
    for mlp in packed:
        layer = randomized(timm.models.vision_transformer.Block(32, 2)).double()
        layer.mlp = mlp
        params = nv.BlockParams.from_module(layer)
        with torch.no_grad():
            torch.testing.assert_close(nv.vit_block(x, params), layer(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (lambda: vit(hidden_dropout_prob=0.1), "dropout.p is 0.1"),
        (lambda: vit(attention_probs_dropout_prob=0.1), "attention.attention_dropout is 0.1"),
        (lambda: clip(attention_dropout=0.1), "self_attn.dropout is 0.1"),
        (lambda: dinov2(drop_path_rate=0.1), "drop_path.drop_prob is 0.1"),
    ],
)
def test_dropout_in_training_mode_is_refused(layer, name):
    layer = layer()
    assert layer.training
    with pytest.raises(nv.NeuronVitUnsupported, match=f"training mode and {name}.*layer.eval()"):
        nv.BlockParams.from_module(layer)
    nv.BlockParams.from_module(layer.eval())


def test_params_are_copies():
    layer = randomized(vit())
    params = nv.BlockParams.from_module(layer)
    before = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    before = {n: v.clone() for n, v in before.items() if isinstance(v, torch.Tensor)}
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    for name, value in before.items():
        assert torch.equal(getattr(params, name), value), name
        assert not getattr(params, name).requires_grad and getattr(params, name).is_contiguous()


def test_to_converts_every_tensor_and_keeps_the_rest():
    params = nv.BlockParams.from_module(randomized(dinov2()))
    low = params.to(torch.bfloat16)
    for field in dataclasses.fields(params):
        value, converted = getattr(params, field.name), getattr(low, field.name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(converted, value.bfloat16())
        else:
            assert converted == value
    assert low.dtype == torch.bfloat16 and params.dtype == torch.float32
    assert params.to("meta").device.type == "meta"


def test_the_activation_probe_runs_no_hooks():
    layer = vit().eval()
    layer.mlp.activation_fn.register_forward_hook(lambda *_: pytest.fail("the probe was seen"))
    nv.BlockParams.from_module(layer)
