"""What a caller reads who passes something that does not fit: argument, finding, rule, remedy."""

import dataclasses

import pytest
import torch

import neuron_vit as nv
from neuron_vit import _environment

TABLE = torch.ones(5, 4)
X = torch.randn(2, 5, 12)
HEADS = torch.randn(2, 3, 5, 8)
WEIGHT = torch.randn(7, 12)
PARAMS = nv.BlockParams(
    norm1_weight=torch.randn(12),
    qkv_weight=torch.randn(12, 24),
    proj_weight=torch.randn(8, 12),
    norm2_weight=torch.randn(12),
    fc1_weight=torch.randn(12, 20),
    fc2_weight=torch.randn(20, 12),
    num_heads=2,
    eps=1e-6,
    attention_scale=0.5,
)
ENCODER = nv.EncoderParams.from_blocks([PARAMS, PARAMS])


def attend(q=HEADS, k=HEADS, v=HEADS, **options):
    return nv.scaled_dot_product_attention(q, k, v, **options)


def packed(cu_seqlens_q, cu_seqlens_k):
    q = HEADS[0].transpose(0, 1)
    return nv.flash.flash_attn_varlen_func(q, q, q, cu_seqlens_q, cu_seqlens_k)


def mlp(**changed):
    arguments = {
        "fc1_weight": torch.randn(20, 12),
        "fc1_bias": torch.randn(20),
        "fc2_weight": torch.randn(12, 20),
        "fc2_bias": torch.randn(12),
        **changed,
    }
    return nv.mlp(X, **arguments)


def swiglu(**changed):
    arguments = {
        "w_gate": torch.randn(20, 12),
        "b_gate": torch.randn(20),
        "w_up": torch.randn(20, 12),
        "b_up": torch.randn(20),
        "w_down": torch.randn(12, 20),
        "b_down": torch.randn(12),
        **changed,
    }
    return nv.swiglu_mlp(X, **arguments)


def params(**changed):
    return dataclasses.replace(PARAMS, **changed)


CASES = {
    "a list": (lambda: nv.layer_norm([1.0], 1), "input is a list; it must be a torch.Tensor"),
    "integers": (
        lambda: nv.layer_norm(X.int(), 12),
        "input has dtype int32; it must be bfloat16, float16, float32 or float64. Convert it",
    ),
    "a scalar": (
        lambda: nv.layer_norm(torch.tensor(1.0), ()),
        "input has shape (); it must have at least 1 dimensions",
    ),
    "normalized_shape": (
        lambda: nv.layer_norm(X, 5),
        "normalized_shape is (5,); it must be the last sizes of input, whose shape is (2, 5, 12)",
    ),
    "no normalized_shape": (lambda: nv.rms_norm(X, ()), "normalized_shape is ()"),
    "negative eps": (lambda: nv.layer_norm(X, 12, eps=-1.0), "eps is -1.0; it must be a number"),
    "NaN eps": (lambda: nv.rms_norm(X, 12, eps=float("nan")), "eps is nan"),
    "norm weight": (
        lambda: nv.layer_norm(X, 12, torch.randn(11)),
        "layer_norm: weight has shape (11,); it must be (12,), which is normalized_shape",
    ),
    "norm bias": (
        lambda: nv.layer_norm(X, 12, None, torch.randn(1, 12)),
        "layer_norm: bias has shape (1, 12); it must be (12,)",
    ),
    "weight dtype": (
        lambda: nv.rms_norm(X.bfloat16(), 12, torch.randn(12)),
        "rms_norm: weight has dtype float32, input has bfloat16; they must be the same. Convert "
        "one, for example with weight.to(torch.bfloat16)",
    ),
    "residual": (
        lambda: nv.layer_norm(X, 12, residual=X[:1]),
        "residual has shape (1, 5, 12); it must be (2, 5, 12), the shape of input",
    ),
    "device": (
        lambda: nv.layer_norm(X, 12, torch.empty(12, device="meta")),
        "weight is on meta, input is on cpu; they must be on the same device",
    ),
    "linear weight": (
        lambda: nv.linear(X, WEIGHT.t()),
        "linear: weight has shape (12, 7); it must be (any, 12), that is (out_features, in_fe",
    ),
    "linear bias": (
        lambda: nv.linear(X, WEIGHT, torch.randn(12)),
        "linear: bias has shape (12,); it must be (7,), the rows of weight",
    ),
    "linear bias type": (lambda: nv.linear(X, WEIGHT, 0.0), "bias is a float; it must be a torch"),
    "mlp weight": (
        lambda: mlp(fc2_weight=torch.randn(12, 21)),
        "mlp: fc2_weight has shape (12, 21); it must be (any, 20)",
    ),
    "mlp bias": (lambda: mlp(fc1_bias=torch.randn(12)), "mlp: fc1_bias has shape (12,)"),
    "activation": (
        lambda: mlp(activation="mish"),
        "mlp: activation is 'mish'; it must be 'gelu' or 'gelu_tanh' or 'quick_gelu' or 'silu' or "
        "'relu'",
    ),
    "inner norm weight": (
        lambda: mlp(norm_weight=torch.randn(12)),
        "mlp: norm_weight has shape (12,); it must be (20,), the hidden features",
    ),
    "inner norm bias alone": (
        lambda: mlp(norm_bias=torch.randn(20)),
        "mlp: norm_bias is given without norm_weight; only a layer norm with a weight has a bias",
    ),
    "inner rms norm with a bias": (
        lambda: mlp(norm_weight=torch.randn(20), norm_bias=torch.randn(20), norm="rms"),
        "mlp: norm_bias is given with norm='rms'",
    ),
    "inner norm eps": (
        lambda: mlp(norm_weight=torch.randn(20), norm_eps=-1.0),
        "mlp: norm_eps is -1.0; it must be a number",
    ),
    "gate weight": (
        lambda: swiglu(w_gate=torch.randn(20, 11)),
        "swiglu_mlp: w_gate has shape (20, 11); it must be (any, 12), that is (out_features, in_fe",
    ),
    "up rows": (
        lambda: swiglu(w_up=torch.randn(19, 12), b_up=None),
        "swiglu_mlp: w_up has 19 rows; it must have those of w_gate, 20",
    ),
    "down weight": (
        lambda: swiglu(w_down=torch.randn(12, 40)),
        "swiglu_mlp: w_down has shape (12, 40); it must be (any, 20)",
    ),
    "shift": (
        lambda: nv.ada_layer_norm(X, X[0], X[:, 0]),
        "shift has shape (5, 12); it must be (2, 12), one row an image, or (2, 1, 12)",
    ),
    "modulated dimensions": (
        lambda: nv.ada_rms_norm(X[0], X[0, :1], X[0, :1]),
        "ada_rms_norm: x has shape (5, 12); it must have exactly 3 dimensions",
    ),
    "gate without residual": (
        lambda: nv.ada_layer_norm(X, X[:, 0], X[:, 0], gate=X[:, 0]),
        "gate is given without residual; it weighs x in the sum with residual",
    ),
    "query": (
        lambda: attend(HEADS[0, 0, 0]),
        "query has shape (8,); it must have at least 2 dimensions",
    ),
    "key dimensions": (
        lambda: attend(k=HEADS[0]),
        "key has shape (3, 5, 8); it must have as many dimensions as query",
    ),
    "key dtype": (lambda: attend(k=HEADS.half()), "key has dtype float16, query has float32"),
    "head size": (
        lambda: attend(k=HEADS[..., :4]),
        "key has head size 4; it must have that of query, 8",
    ),
    "value tokens": (
        lambda: attend(v=HEADS[:, :, :4]),
        "value has 4 tokens; it must have those of key, 5",
    ),
    "grouped heads": (
        lambda: attend(k=HEADS[:, :2], v=HEADS[:, :2]),
        "key has leading dimensions (2, 2); they must be those of query, (2, 3), or 1. For grouped "
        "heads pass enable_gqa=True",
    ),
    "number of groups": (
        lambda: attend(k=HEADS[:, :2], v=HEADS[:, :2], enable_gqa=True),
        "key has 2 heads and value 2; they must have the same number, which divides that of query",
    ),
    "groups without heads": (
        lambda: attend(HEADS[0, 0], HEADS[0, 0], HEADS[0, 0], enable_gqa=True),
        "query has shape (5, 8); with grouped heads it must have at least 3 dimensions",
    ),
    "lengths dtype": (
        lambda: attend(kv_lens=torch.ones(2)),
        "kv_lens has dtype float32; it must be int32 or int64. Convert it",
    ),
    "lengths shape": (
        lambda: attend(kv_lens=torch.ones(3, dtype=torch.int32)),
        "kv_lens has shape (3,), query (2, 3, 5, 8); it must be (batch,), and query [batch, heads",
    ),
    "lengths and a mask": (
        lambda: attend(attn_mask=torch.zeros(5, 5), kv_lens=torch.ones(2, dtype=torch.int32)),
        "kv_lens is given together with attn_mask, is_causal or dropout_p; only one of them may",
    ),
    "segment bounds": (
        lambda: packed(torch.tensor([0, 5]), torch.tensor([[0, 5]])),
        "flash_attn_varlen_func: cu_seqlens_k has shape (1, 2); it must be (segments + 1,)",
    ),
    "one bound": (
        lambda: packed(torch.tensor([5]), torch.tensor([5])),
        "cu_seqlens_q has shape (1,); it must be (segments + 1,)",
    ),
    "float bounds": (
        lambda: packed(torch.tensor([0.0, 5.0]), torch.tensor([0, 5])),
        "cu_seqlens_q has dtype float32; it must be int32 or int64",
    ),
    "a batch of packed sequences": (
        lambda: nv.flash_attn_forward(
            torch.nn.Module(),
            HEADS,
            HEADS,
            HEADS,
            None,
            is_causal=False,
            cu_seq_lens_q=torch.tensor([0, 5]),
            cu_seq_lens_k=torch.tensor([0, 5]),
        ),
        "flash_attn_forward: query has shape (2, 3, 5, 8), value (2, 3, 5, 8); packed sequences "
        "have a batch of 1",
    ),
    "dropout": (lambda: attend(dropout_p=1.5), "dropout_p is 1.5; it must be from 0 to 1"),
    "mask shape": (
        lambda: attend(attn_mask=torch.ones(5, 4, dtype=torch.bool)),
        "attn_mask has shape (5, 4); it must broadcast to (2, 3, 5, 5)",
    ),
    "mask dtype": (
        lambda: attend(attn_mask=torch.ones(5, 5, dtype=torch.float64)),
        "attn_mask has dtype float64, query has float32",
    ),
    "mask and causal": (
        lambda: attend(attn_mask=torch.ones(5, 5, dtype=torch.bool), is_causal=True),
        "attn_mask is given together with is_causal=True",
    ),
    "block input": (
        lambda: nv.vit_block(X[0], PARAMS),
        "vit_block: x has shape (5, 12); it must have exactly 3 dimensions",
    ),
    "block width": (
        lambda: nv.vit_block(X[..., :8], PARAMS),
        "x has shape (2, 5, 8); its last size must be the width of params, 12",
    ),
    "block dtype": (
        lambda: nv.vit_block(X.bfloat16(), PARAMS),
        "params has dtype torch.float32 on cpu, x has torch.bfloat16 on cpu; they must be the "
        "same. Convert once with params.to('cpu', torch.bfloat16)",
    ),
    "tables missing": (
        lambda: nv.vit_block(X, params(rope="half")),
        "vit_block: rope is None, params.rope is 'half'; tables are given if and only if",
    ),
    "tables not wanted": (
        lambda: nv.vit_block(X, PARAMS, rope=(TABLE, TABLE)),
        "rope is given, params.rope is None; tables are given if and only if",
    ),
    "one table": (
        lambda: nv.vit_block(X, params(rope="half"), rope=TABLE),
        "rope is a Tensor; it must be the pair (cos, sin) of tables",
    ),
    "table size": (
        lambda: nv.vit_block(X, params(rope="half"), rope=(TABLE, TABLE[:, :2])),
        "rope[1] has shape (5, 2); it must be (positions, 4) with at most 5 positions",
    ),
    "too many positions": (
        lambda: nv.vit_block(X[:, :4], params(rope="half"), rope=(TABLE, TABLE)),
        "rope[0] has shape (5, 4); it must be (positions, 4) with at most 4 positions",
    ),
    "table dtype": (
        lambda: nv.vit_block(X, params(rope="half"), rope=(TABLE.half(), TABLE.half())),
        "rope[0] has dtype float16, x has float32",
    ),
    "block mask": (
        lambda: nv.vit_block(X, PARAMS, attn_mask=torch.ones(5, 4, dtype=torch.bool)),
        "attn_mask has shape (5, 4); it must broadcast to (2, 2, 5, 5)",
    ),
    "block lengths": (
        lambda: nv.vit_block(X, PARAMS, kv_lens=torch.tensor([5])),
        "kv_lens has shape (1,), x (2, 5, 12); it must be (2,)",
    ),
    "block segments": (
        lambda: nv.vit_block(X, PARAMS, cu_seqlens=torch.tensor([0, 5])),
        "cu_seqlens has shape (2,), x (2, 5, 12); it must be (segments + 1,), for a batch of 1",
    ),
    "block segments dtype": (
        lambda: nv.vit_block(X[:1], PARAMS, cu_seqlens=torch.tensor([0.0, 5.0])),
        "cu_seqlens has dtype float32; it must be int32 or int64",
    ),
    "two restrictions": (
        lambda: nv.vit_block(X, PARAMS, attn_mask=torch.ones(5, 5), kv_lens=torch.tensor([5, 5])),
        "kv_lens is given together with attn_mask; only one of attn_mask, kv_lens and cu_seqlens",
    ),
    "inner weight alone": (
        lambda: params(inner_weight=torch.ones(20)),
        "inner_weight is given without inner_norm; it needs that",
    ),
    "head norm without weights": (
        lambda: params(qk_norm="rms", q_norm_weight=torch.ones(4)),
        "qk_norm is given without k_norm_weight; it needs that",
    ),
    "norm of all heads": (
        lambda: params(qk_norm="layer", q_norm_weight=torch.ones(8), k_norm_weight=torch.ones(8)),
        "qk_norm is 'layer' with 8 weights; a norm over all heads together must be 'rms'",
    ),
    "head norm size": (
        lambda: params(qk_norm="rms", q_norm_weight=torch.ones(8), k_norm_weight=torch.ones(4)),
        "k_norm_weight has shape (4,); it must be (8,)",
    ),
    "gate bias alone": (
        lambda: params(gate_bias=torch.ones(20)),
        "gate_bias is given without gate_weight; it needs that",
    ),
    "gate shape": (
        lambda: params(gate_weight=torch.ones(12, 19)),
        "gate_weight has shape (12, 19); it must be (12, 20)",
    ),
    "rope style": (
        lambda: params(rope="neox"),
        "rope is 'neox'; it must be 'half' or 'interleaved'",
    ),
    "not params": (
        lambda: nv.vit_block(X, {}),
        "params is a dict; it must be a BlockParams. Make one with BlockParams.from_module(layer)",
    ),
    "encoder input": (
        lambda: nv.vit_encoder(X[0], [PARAMS]),
        "vit_encoder: x has shape (5, 12); it must have exactly 3 dimensions",
    ),
    "encoder dtype": (
        lambda: nv.vit_encoder(X.bfloat16(), ENCODER),
        "vit_encoder: params has dtype torch.float32 on cpu, x has torch.bfloat16 on cpu",
    ),
    "encoder tables": (
        lambda: nv.vit_encoder(X, [params(rope="half")]),
        "vit_encoder: rope is None, params.rope is 'half'",
    ),
    "encoder mask": (
        lambda: nv.vit_encoder(X, ENCODER, attn_mask=torch.ones(5, 4)),
        "vit_encoder: attn_mask has shape (5, 4); it must broadcast to (2, 2, 5, 5)",
    ),
    "not an encoder": (
        lambda: nv.vit_encoder(X, PARAMS),
        "vit_encoder: params is a BlockParams; it must be an EncoderParams or a list of "
        "BlockParams. Call vit_block, which runs one block",
    ),
    "an encoder as a block": (
        lambda: nv.vit_block(X, ENCODER),
        "vit_block: params is a EncoderParams; it must be a BlockParams. Call vit_encoder, which",
    ),
    "no layers": (
        lambda: nv.EncoderParams.from_module([]),
        "EncoderParams: layers is empty; it must hold at least one layer. Pass the container",
    ),
    "integer mask": (
        lambda: attend(attn_mask=torch.ones(5, 5, dtype=torch.int64)),
        "attn_mask has dtype int64; it must be bool (True: the key takes part), or a bias that is "
        "added to the scores, in the dtype of query, float32, or float32. For a mask of ones and "
        "zeros pass attn_mask.bool(), which is attn_mask != 0",
    ),
    "integer mask of transformers": (
        lambda: nv.flash_attn_forward(
            torch.nn.Module(), HEADS, HEADS, HEADS, torch.ones(5, 5).int(), is_causal=False
        ),
        "flash_attn_forward: attention_mask has dtype int32; it must be bool",
    ),
    "integer mask of a block": (
        lambda: nv.vit_block(X, PARAMS, attn_mask=torch.ones(5, 5, dtype=torch.uint8)),
        "vit_block: attn_mask has dtype uint8; it must be bool (True",
    ),
    "integer mask of an encoder": (
        lambda: nv.vit_encoder(X, ENCODER, attn_mask=torch.ones(5, 5, dtype=torch.int32)),
        "vit_encoder: attn_mask has dtype int32; it must be bool (True",
    ),
    "negative lengths": (
        lambda: attend(kv_lens=torch.tensor([3, -2])),
        "kv_lens holds -2; lengths must be at least 0; 0 hides all keys",
    ),
    "negative lengths of an encoder": (
        lambda: nv.vit_encoder(X, ENCODER, kv_lens=torch.tensor([3, -(2**40)])),
        f"vit_encoder: kv_lens holds {-(2**40)}; lengths must be at least 0",
    ),
    "bounds from elsewhere": (
        lambda: nv.vit_block(X[:1], PARAMS, cu_seqlens=torch.tensor([1, 5])),
        "vit_block: cu_seqlens begins with 1; the bounds of segments must ascend from 0 to the "
        "number of tokens, 5. Make them",
    ),
    "bounds beyond the tokens": (
        lambda: packed(torch.tensor([0, 5]), torch.tensor([0, 2**32 + 5])),
        f"flash_attn_varlen_func: cu_seqlens_k ends with {2**32 + 5}; the bounds of segments must",
    ),
    "unsorted bounds": (
        lambda: packed(torch.tensor([0, 4, 2, 5]), torch.tensor([0, 1, 2, 5])),
        "cu_seqlens_q falls from 4 to 2 at position 2; the bounds of segments must ascend",
    ),
    "scale beyond float32": (
        lambda: attend(scale=1e39),
        "scale is 1e+39; it must be finite and at most 3.403e+38 in size, the largest float32",
    ),
    "attention_scale beyond float32": (
        lambda: params(attention_scale=-1e39),
        "attention_scale is -1e+39; it must be finite and at most 3.403e+38",
    ),
    "eps beyond float32": (
        lambda: nv.layer_norm(X, 12, eps=1e39),
        "eps is 1e+39; it must be a number from 0 to 3.403e+38, the largest float32",
    ),
    "qk_eps beyond float32": (lambda: params(qk_eps=10**400), "qk_eps is 1000"),
    "tables with a batch of one": (
        lambda: nv.vit_block(X, params(rope="half"), rope=(TABLE[None], TABLE[None])),
        "rope[0] has shape (1, 5, 4), with a batch of 1; tables of each image must have the batch "
        "of x, 2. Pass (cos[0], sin[0])",
    ),
    "tables of other images": (
        lambda: nv.vit_block(X, params(rope="half"), rope=(TABLE.expand(3, 5, 4),) * 2),
        "with a batch of 3; tables of each image must have the batch of x, 2. Give tables for",
    ),
    "no blocks": (
        lambda: nv.vit_encoder(X, []),
        "EncoderParams: blocks is empty; it must hold at least one BlockParams",
    ),
    "not a block": (
        lambda: nv.EncoderParams.from_blocks([PARAMS, {}]),
        "EncoderParams: blocks[1] is a dict; it must be a BlockParams",
    ),
    "another activation": (
        lambda: nv.EncoderParams.from_blocks([PARAMS, PARAMS, params(activation="relu")]),
        "EncoderParams: blocks[2].activation is 'relu', blocks[0] has 'gelu'; all blocks must "
        "have the same. Make an encoder of each run of equal blocks",
    ),
    "another norm": (
        lambda: nv.EncoderParams.from_blocks([PARAMS, params(norm="rms")]),
        "blocks[1].norm is 'rms', blocks[0] has 'layer'",
    ),
    "another width of the MLP": (
        lambda: nv.EncoderParams.from_blocks(
            [PARAMS, params(fc1_weight=torch.ones(12, 8), fc2_weight=torch.ones(8, 12))]
        ),
        "blocks[1].fc1_weight is a tensor (12, 8) of torch.float32 on cpu, blocks[0] has a "
        "tensor (12, 20) of torch.float32 on cpu",
    ),
    "another bias": (
        lambda: nv.EncoderParams.from_blocks([PARAMS, params(qkv_bias=torch.ones(24))]),
        "blocks[1].qkv_bias is a tensor (24,) of torch.float32 on cpu, blocks[0] has None",
    ),
    "another dtype": (
        lambda: nv.EncoderParams.from_blocks([PARAMS, PARAMS.to(torch.bfloat16)]),
        "of torch.bfloat16 on cpu, blocks[0] has a tensor (12,) of torch.float32 on cpu",
    ),
    "a model instead of its layers": (
        lambda: nv.EncoderParams.from_module(torch.nn.Linear(3, 3)),
        "EncoderParams: layers is a Linear; it must be a torch.nn.ModuleList, a "
        "torch.nn.Sequential or a list of layers",
    ),
    "head count": (
        lambda: params(num_heads=5),
        "num_heads is 5; qkv_weight has 24 columns, which must be 3 * num_heads * head_dim",
    ),
    "packed shape": (
        lambda: params(fc2_weight=torch.randn(12, 20)),
        "fc2_weight has shape (12, 20); it must be (20, 12), stored [in, out]",
    ),
    "rms with bias": (
        lambda: params(norm="rms", norm1_bias=torch.randn(12)),
        "norm is 'rms'; then norm1_bias and norm2_bias must be None",
    ),
    "norm name": (lambda: params(norm="batch"), "norm is 'batch'; it must be 'layer' or 'rms'"),
    "kernel name": (
        lambda: nv.supports("softmax"),
        "name is 'softmax'; it must be ada_layer_norm, ada_rms_norm, attention, layer_norm, "
        "linear, mlp, rms_norm, swiglu_mlp, vit_block or vit_encoder",
    ),
    "sizes": (
        lambda: nv.supports("linear", tokens=5),
        "supports: linear misses in_features, out_features; its sizes are tokens, in_features, "
        "out_features. Pass each of them by name.",
    ),
    "target": (
        lambda: nv.supports("layer_norm", width=8, target="trn1"),
        "target is 'trn1'; it must be trn2 or trn3",
    ),
    "registered name": (
        lambda: nv.register_with_transformers("flash_neuron"),
        "name is 'flash_neuron'; it must not contain 'flash'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, expected = CASES[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    assert expected in message
    assert message.startswith("neuron-vit: ")


@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("NKI_SIMULATOR", _environment.simulator_requested),
        ("NEURON_VIT_REQUIRE_NKI", _environment.nki_required),
        ("NEURON_LOGICAL_NC_CONFIG", _environment.logical_cores),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", _environment.target),
    ],
)
@pytest.mark.parametrize("value", ["", "true", "3", "01", " 1"])
def test_environment_is_read_strictly(variable, read, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"environment variable {variable} is {value!r}"):
        read()


@pytest.mark.parametrize(
    ("read", "variable", "values"),
    [
        (
            _environment.simulator_requested,
            "NKI_SIMULATOR",
            {None: False, "0": False, "1": True},
        ),
        (
            _environment.nki_required,
            "NEURON_VIT_REQUIRE_NKI",
            {None: False, "0": False, "1": True},
        ),
        (_environment.logical_cores, "NEURON_LOGICAL_NC_CONFIG", {None: 1, "1": 1, "2": 2}),
        (
            _environment.target,
            "NEURON_PLATFORM_TARGET_OVERRIDE",
            {None: "trn2", "trn2": "trn2", "gen3": "trn2", "trn3": "trn3", "gen4": "trn3"},
        ),
    ],
)
def test_environment_values(read, variable, values, monkeypatch):
    for text, value in values.items():
        if text is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, text)
        assert read() == value
        assert variable in _environment.__doc__
