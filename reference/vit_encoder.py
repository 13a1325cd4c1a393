"""Pre-norm Transformer encoder blocks, one after another."""

from typing import Optional

from torch import Tensor

from .vit_block import vit_block


def vit_encoder(
    x: Tensor,
    norm1_weight: Tensor,
    norm1_bias: Optional[Tensor],
    qkv_weight: Tensor,
    qkv_bias: Optional[Tensor],
    proj_weight: Tensor,
    proj_bias: Optional[Tensor],
    scale1: Optional[Tensor],
    norm2_weight: Tensor,
    norm2_bias: Optional[Tensor],
    fc1_weight: Tensor,
    fc1_bias: Optional[Tensor],
    fc2_weight: Tensor,
    fc2_bias: Optional[Tensor],
    scale2: Optional[Tensor],
    num_heads: int,
    eps: float,
    norm: str,
    activation: str,
    attention_scale: float,
    gate_weight: Optional[Tensor] = None,
    gate_bias: Optional[Tensor] = None,
    inner_weight: Optional[Tensor] = None,
    inner_bias: Optional[Tensor] = None,
    q_norm_weight: Optional[Tensor] = None,
    q_norm_bias: Optional[Tensor] = None,
    k_norm_weight: Optional[Tensor] = None,
    k_norm_bias: Optional[Tensor] = None,
    cos: Optional[Tensor] = None,
    sin: Optional[Tensor] = None,
    mask: Optional[Tensor] = None,
    kv_lens: Optional[Tensor] = None,
    cu_seqlens: Optional[Tensor] = None,
    inner_norm: Optional[str] = None,
    inner_eps: float = 0.0,
    qk_norm: Optional[str] = None,
    qk_eps: float = 0.0,
    rope: str = "half",
) -> Tensor:
    """`vit_block` after `vit_block`. Every weight and bias has an axis of L layers in front; what
    is None is None in all layers. The other arguments, and x [B, S, D], are those of `vit_block`
    and serve all layers; each block rounds its output to the dtype of x.
    """
    front = (
        norm1_weight,
        norm1_bias,
        qkv_weight,
        qkv_bias,
        proj_weight,
        proj_bias,
        scale1,
        norm2_weight,
        norm2_bias,
        fc1_weight,
        fc1_bias,
        fc2_weight,
        fc2_bias,
        scale2,
    )
    back = (
        gate_weight,
        gate_bias,
        inner_weight,
        inner_bias,
        q_norm_weight,
        q_norm_bias,
        k_norm_weight,
        k_norm_bias,
    )
    for layer in range(fc1_weight.shape[0]):
        x = vit_block(
            x,
            *_of_layer(front, layer),
            num_heads,
            eps,
            norm,
            activation,
            attention_scale,
            *_of_layer(back, layer),
            cos,
            sin,
            mask,
            kv_lens,
            cu_seqlens,
            inner_norm,
            inner_eps,
            qk_norm,
            qk_eps,
            rope,
        )
    return x


def _of_layer(stacks, layer):
    return [None if stack is None else stack[layer] for stack in stacks]
