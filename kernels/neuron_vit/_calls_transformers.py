"""The calls of transformers' layers. Their keyword arguments go on to the attention function."""

from typing import Any, Dict, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from ._calls import Call, Contract, Refusal, causal, unusable_mask

Tables = Optional[Tuple[Tensor, Tensor]]

# Keywords that change what attention computes, or what is wanted of it.
_REFUSED = {
    "output_attentions": "call the model without output_attentions",
    "head_mask": "call the model without a head mask",
    "past_key_values": "call the model without past keys",
    "position_bias": "call the model without a position bias",
    "s_aux": "call the model without attention sinks",
    "sliding_window": "call the model without a sliding window",
    "softcap": "call the model without a soft cap",
}


def plain(
    layer: nn.Module, hidden_states: Tensor, attention_mask: Any = None, **kwargs: Any
) -> Union[Call, Refusal]:
    """Tokens and a mask."""
    return _attending(hidden_states, None, attention_mask, kwargs)


def rotated(
    layer: nn.Module,
    hidden_states: Tensor,
    attention_mask: Any = None,
    position_embeddings: Tables = None,
    **kwargs: Any,
) -> Union[Call, Refusal]:
    """Tokens, a mask and rotary tables."""
    if position_embeddings is None:
        return _NO_TABLES
    return _attending(
        hidden_states, _tables(hidden_states, position_embeddings), attention_mask, kwargs
    )


def alone(layer: nn.Module, hidden_states: Tensor) -> Call:
    """Tokens and nothing else."""
    return Call(hidden_states)


def packed(
    layer: nn.Module,
    hidden_states: Tensor,
    cu_seqlens: Tensor,
    position_embeddings: Tables = None,
    **kwargs: Any,
) -> Union[Call, Refusal]:
    """The tokens [tokens, width] of all images, or windows, and where each begins."""
    refusal = _refused(kwargs)
    if refusal is not None:
        return refusal
    if position_embeddings is None:
        return _NO_TABLES
    return Call(
        hidden_states[None],
        rope=_tables(hidden_states, position_embeddings),
        cu_seqlens=cu_seqlens,
        finish=_without_batch,
    )


def biased(
    layer: nn.Module,
    hidden_states: Tensor,
    attention_mask: Any = None,
    interpolate_pos_encoding: bool = False,
    resolution: Optional[Tuple[int, int]] = None,
    **kwargs: Any,
) -> Union[Call, Refusal]:
    """Tokens, a mask, and a bias of the layer that depends on the size of the image."""
    if layer.relative_position_bias is not None:
        height, width = resolution
        bias = layer.relative_position_bias(
            (height // layer.patch_size, width // layer.patch_size),
            interpolate_pos_encoding,
            dim_size=hidden_states.shape[1],
        )
        attention_mask = bias if attention_mask is None else bias + attention_mask
    return _attending(hidden_states, None, attention_mask, kwargs)


_NO_TABLES = Refusal(
    "the layer is called without position_embeddings", "call the model, which makes them"
)


def _attending(x: Tensor, rope: Tables, mask: Any, kwargs: Dict[str, Any]) -> Union[Call, Refusal]:
    refusal = _refused(kwargs) or unusable_mask(x, mask)
    if refusal is not None:
        return refusal
    bounds = kwargs.get("cu_seq_lens_q")
    if bounds is not None:
        if mask is not None or kwargs.get("cu_seq_lens_k") is not bounds or kwargs.get("is_causal"):
            return Refusal(
                "vit_block takes one cu_seq_lens for queries and keys, without a mask",
                'call model.set_attn_implementation("sdpa")',
            )
        return Call(x, rope=rope, cu_seqlens=bounds)
    if mask is None and kwargs.get("is_causal"):
        mask = causal(x)
    return Call(x, rope=rope, attn_mask=mask)


def _refused(kwargs: Dict[str, Any]) -> Optional[Refusal]:
    for name, remedy in _REFUSED.items():
        if kwargs.get(name) is not None and kwargs[name] is not False:
            return Refusal(f"vit_block has no {name}", remedy)
    return None


def _tables(x: Tensor, pair: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
    """(cos, sin) of a dtype that `vit_block` takes."""
    cos, sin = pair
    if cos.dtype in (x.dtype, torch.float32):
        return cos, sin
    return cos.float(), sin.float()


def _without_batch(y: Tensor) -> Tensor:
    return y[0]


CONTRACTS: Dict[str, Contract] = {
    "ViTLayer": plain,
    "DeiTLayer": plain,
    "Dinov2Layer": plain,
    "Dinov2WithRegistersLayer": plain,
    "DINOv3ViTLayer": rotated,
    "CLIPEncoderLayer": plain,
    "SiglipEncoderLayer": plain,
    "Siglip2EncoderLayer": plain,
    "InternVLVisionLayer": alone,
    "Aimv2EncoderLayer": plain,
    "PixtralAttentionLayer": rotated,
    "Qwen2VLVisionBlock": packed,
    "Qwen2_5_VLVisionBlock": packed,
    "Qwen3VLVisionBlock": packed,
    "BeitLayer": biased,
}
