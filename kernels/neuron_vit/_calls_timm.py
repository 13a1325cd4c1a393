"""The calls of timm's blocks."""

from typing import Dict, Optional, Union

import torch
from torch import Tensor, nn

from ._calls import Call, Contract, Refusal, causal


def block(
    layer: nn.Module, x: Tensor, attn_mask: Optional[Tensor] = None, is_causal: bool = False
) -> Union[Call, Refusal]:
    """The block of vision_transformer."""
    return _masked(Call(x), attn_mask, is_causal)


def eva(
    layer: nn.Module,
    x: Tensor,
    rope: Optional[Tensor] = None,
    attn_mask: Optional[Tensor] = None,
    is_causal: bool = False,
) -> Union[Call, Refusal]:
    """The block of eva, whose rotary table holds sines and cosines side by side."""
    if rope is None:
        return _masked(Call(x), attn_mask, is_causal)
    if rope.dim() != 2 or rope.shape[0] + layer.attn.num_prefix_tokens != x.shape[1]:
        return Refusal(
            f"vit_block rotates all heads alike, by a table of two dimensions with a row for each "
            f"token after the prefix; the table has shape {tuple(rope.shape)}",
            "use a model without rope_type='mixed' and without patch dropout",
        )
    if rope.dtype not in (x.dtype, torch.float32):
        rope = rope.float()
    sin, cos = rope.chunk(2, dim=-1)
    return _masked(Call(x, rope=(cos, sin)), attn_mask, is_causal)


def beit(
    layer: nn.Module, x: Tensor, shared_rel_pos_bias: Optional[Tensor] = None
) -> Union[Call, Refusal]:
    """The block of beit, whose attention adds a bias of its own."""
    bias = shared_rel_pos_bias
    if layer.attn.relative_position_bias_table is not None:
        own = layer.attn._get_rel_pos_bias()
        bias = own if bias is None else own + bias
    return _masked(Call(x), bias, False)


def _masked(call: Call, mask: Optional[Tensor], is_causal: bool) -> Union[Call, Refusal]:
    if is_causal and mask is not None:
        return Refusal("vit_block takes causality or a mask", "put both into the mask")
    return call._replace(attn_mask=causal(call.x) if is_causal else mask)


CONTRACTS: Dict[str, Contract] = {
    "timm.vision_transformer.Block": block,
    "timm.eva.EvaBlock": eva,
    "timm.beit.Block": beit,
}
