"""Reading a transformer layer of a model library into the arguments of `BlockParams`.

What a layer computes with is read from its modules. The names of the classes that define `forward`
are asked only how a forward pass puts its parts together, which no attribute says: layers that
rotate queries and keys, or that add before they normalise, may have the submodules of those that do
not.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor, nn

from ._layer_parts import (
    activation_name,
    copy,
    defining_class,
    joined,
    known,
    layer_scale,
    linear,
    part,
    read_norm,
    read_optional_norm,
    refuse_active_dropout,
    refused,
    require_absent,
    transposed,
)
from .errors import NeuronVitUnsupported

_LAYERS = (
    "ViTLayer",
    "DeiTLayer",
    "Dinov2Layer",
    "Dinov2WithRegistersLayer",
    "DINOv3ViTLayer",
    "CLIPEncoderLayer",
    "SiglipEncoderLayer",
    "Siglip2EncoderLayer",
    "InternVLVisionLayer",
    "Aimv2EncoderLayer",
    "PixtralAttentionLayer",
    "Qwen2VLVisionBlock",
    "Qwen2_5_VLVisionBlock",
    "Qwen3VLVisionBlock",
    "timm.vision_transformer.Block",
    "timm.eva.EvaBlock",
)

# Layers that are one of these, with scores of their own, which whoever calls `vit_block` adds.
_BIASED = ("BeitLayer", "SwinLayer", "timm.beit.Block")

# How an attention module rotates queries and keys: not at all, one way, or as its attribute
# `rotate_half` says.
_BY_ATTRIBUTE = "rotate_half"
ROTATIONS = {
    "ViTAttention": None,
    "DeiTAttention": None,
    "Dinov2Attention": None,
    "Dinov2WithRegistersAttention": None,
    "DINOv3ViTAttention": "half",
    "CLIPAttention": None,
    "SiglipAttention": None,
    "Siglip2Attention": None,
    "InternVLVisionAttention": None,
    "Aimv2Attention": None,
    "PixtralAttention": "half",
    "VisionAttention": "half",
    "Qwen2_5_VLVisionAttention": "half",
    "Qwen3VLVisionAttention": "half",
    "BeitAttention": None,
    "SwinAttention": None,
    "timm.attention.Attention": None,
    "timm.beit.Attention": None,
    "timm.eva.EvaAttention": _BY_ATTRIBUTE,
    "timm.attention.AttentionRope": _BY_ATTRIBUTE,
}

# The MLPs by the names of their layers. "packed" is one layer for both halves of a gated MLP.
PLAIN_MLPS = (
    "ViTMLP",
    "DeiTMLP",
    "Dinov2MLP",
    "Dinov2WithRegistersMLP",
    "DINOv3ViTMLP",
    "CLIPMLP",
    "SiglipMLP",
    "Siglip2MLP",
    "InternVLVisionMLP",
    "VisionMlp",
    "Qwen3VLVisionMLP",
    "BeitMLP",
    "SwinMLP",
    "timm.mlp.Mlp",
)
_GATED = (
    "Dinov2SwiGLUFFN",
    "Dinov2WithRegistersSwiGLUFFN",
    "DINOv3ViTGatedMLP",
    "Aimv2MLP",
    "PixtralMLP",
    "Qwen2_5_VLMLP",
    "timm.mlp.SwiGLU",
)
_PACKED = ("timm.mlp.GluMlp",)


def read_layer(layer: nn.Module) -> Dict[str, Any]:
    """The arguments of `BlockParams` for `layer`; `BlockParams.from_module` says the rest."""
    kind = defining_class(layer)
    if kind in _BIASED:
        raise NeuronVitUnsupported(
            f"neuron-vit: BlockParams.from_module: {type(layer).__name__} computes a bias of the "
            "attention scores in every call, which is no part of BlockParams; neuron_vit.apply("
            "model) runs it as vit_block all the same."
        )
    if kind not in _LAYERS:
        raise NeuronVitUnsupported(
            f"neuron-vit: BlockParams.from_module: the layer is a {type(layer).__name__} with the "
            f"forward pass of {kind}; {_instead(layer)}."
        )
    refuse_active_dropout(layer)
    return read_parts(layer)


def _instead(layer: nn.Module) -> str:
    """What is allowed instead of a layer of another class, and what to do."""
    named = layer.named_modules() if isinstance(layer, nn.Module) else ()
    inner = [(name, module) for name, module in named if defining_class(module) in _LAYERS]
    if inner:
        name, module = inner[0]
        return (
            f"it must be one layer, and not a module with {len(inner)} of them. Pass one of "
            f"these, for example {name}, a {type(module).__name__}; for all of them use "
            "EncoderParams.from_module"
        )
    return (
        f"it must be one of {', '.join(_LAYERS)}. Build BlockParams from the layer's tensors, if "
        "it computes the same block"
    )


def read_parts(layer: nn.Module) -> Dict[str, Any]:
    """As `read_layer`, of a layer whose forward pass is known and does not drop values."""
    norm1 = read_norm(
        layer, "layernorm_before", "norm1", "layer_norm1", "rms_norm1", "attention_norm"
    )
    norm2 = read_norm(layer, "layernorm_after", "norm2", "layer_norm2", "rms_norm2", "ffn_norm")
    if norm1.eps != norm2.eps or norm1.kind != norm2.kind:
        found = f"{norm1.kind} with eps {norm1.eps} and {norm2.kind} with eps {norm2.eps}"
        raise refused(layer, f"its norms are {found}", "be equal")
    return {
        "norm1_weight": norm1.weight,
        "norm1_bias": norm1.bias,
        "norm2_weight": norm2.weight,
        "norm2_bias": norm2.bias,
        "norm": norm1.kind,
        "eps": norm1.eps,
        "scale1": layer_scale(layer, "layer_scale1", "lambda_1", "ls1", "gamma_1"),
        "scale2": layer_scale(layer, "layer_scale2", "lambda_2", "ls2", "gamma_2"),
        **_attention(part(layer, "attention", "self_attn", "attn")),
        **_mlp(part(layer, "mlp", "ffn", "feed_forward")),
    }


def _attention(attention: nn.Module) -> Dict[str, Any]:
    rotation = ROTATIONS[known(attention, tuple(ROTATIONS))]
    if rotation == _BY_ATTRIBUTE:
        rotation = "half" if attention.rotate_half else "interleaved"
    if getattr(attention, "is_causal", False):
        raise refused(attention, "it is causal", "be bidirectional")
    for name in ("norm", "gate"):  # of the result, before the projection
        require_absent(attention, name)
    weight, bias = _qkv(attention)
    output = linear(attention, "o_proj", "out_proj", "projection_layer", "proj")
    arguments = {
        "qkv_weight": transposed(weight),
        "qkv_bias": bias,
        "proj_weight": transposed(output.weight),
        "proj_bias": copy(output.bias),
        "num_heads": int(part(attention, "num_attention_heads", "num_heads")),
        "attention_scale": _score_factor(attention),
        "rope": rotation,
    }
    q_norm = read_optional_norm(attention, "q_norm")
    k_norm = read_optional_norm(attention, "k_norm")
    if q_norm is None and k_norm is None:
        return arguments
    if q_norm is None or k_norm is None or (q_norm.kind, q_norm.eps) != (k_norm.kind, k_norm.eps):
        raise refused(attention, "its q_norm and k_norm differ", "have both, of one kind and eps")
    return {
        **arguments,
        "q_norm_weight": q_norm.weight,
        "q_norm_bias": q_norm.bias,
        "k_norm_weight": k_norm.weight,
        "k_norm_bias": k_norm.bias,
        "qk_norm": q_norm.kind,
        "qk_eps": q_norm.eps,
    }


def _qkv(attention: nn.Module) -> Tuple[Tensor, Optional[Tensor]]:
    """Weight [3*H*d, D] and bias of queries, keys and values, from one layer or from three."""
    if getattr(attention, "qkv", None) is not None:
        packed = linear(attention, "qkv")
        own = [getattr(attention, name, None) for name in ("q_bias", "k_bias", "v_bias")]
        if all(bias is None for bias in own):
            return packed.weight, copy(packed.bias)
        if packed.bias is not None:
            raise refused(attention, "qkv has a bias and so have its parts", "have one of them")
        return packed.weight, joined(own, [packed.out_features // 3] * 3, packed.weight)
    layers = [linear(attention, name) for name in ("q_proj", "k_proj", "v_proj")]
    sizes = [layer.out_features for layer in layers]
    if len(set(sizes)) > 1:
        raise refused(attention, f"q, k and v have {sizes} features", "have equally many heads")
    weight = torch.cat([layer.weight.detach() for layer in layers])
    return weight, joined([layer.bias for layer in layers], sizes, weight)


def _score_factor(attention: nn.Module) -> float:
    if getattr(attention, "fused_attn", False):
        # timm leaves the factor to torch here, whatever its attribute says.
        features = linear(attention, "proj").in_features
        return float((features // attention.num_heads) ** -0.5)
    return float(part(attention, "scaling", "scale"))


def _mlp(mlp: nn.Module) -> Dict[str, Any]:
    kind = known(mlp, (*PLAIN_MLPS, *_GATED, *_PACKED))
    up = linear(mlp, "fc1", "up_proj", "linear_fc1", "fc1_x")
    down = linear(mlp, "fc2", "down_proj", "linear_fc2")
    arguments = {
        "activation": activation_name(mlp, part(mlp, "activation_fn", "act_fn", "act")),
        "fc2_weight": transposed(down.weight),
        "fc2_bias": copy(down.bias),
        **_inner_norm(mlp),
    }
    if kind in _PACKED:
        order = ("fc1", "gate") if mlp.gate_last else ("gate", "fc1")
        for name, weight in zip(order, up.weight.chunk(2)):
            arguments[f"{name}_weight"] = transposed(weight)
        if up.bias is not None:
            for name, bias in zip(order, up.bias.chunk(2)):
                arguments[f"{name}_bias"] = copy(bias)
        return arguments
    arguments["fc1_weight"], arguments["fc1_bias"] = transposed(up.weight), copy(up.bias)
    if kind in _GATED:
        gate = linear(mlp, "gate_proj", "fc1_g")
        arguments["gate_weight"], arguments["gate_bias"] = transposed(gate.weight), copy(gate.bias)
    return arguments


def _inner_norm(mlp: nn.Module) -> Dict[str, Any]:
    """timm's norm of the hidden values of an MLP; other libraries have none."""
    norm = read_optional_norm(mlp, "norm")
    if norm is None:
        return {}
    return {
        "inner_weight": norm.weight,
        "inner_bias": norm.bias,
        "inner_norm": norm.kind,
        "inner_eps": norm.eps,
    }
