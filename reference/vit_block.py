"""A whole pre-norm transformer block.

Traffic in elements for B*S = T tokens of width D, H heads of size d, I hidden units, as one
operation: reads T*D for x and D*3Hd + Hd*D + 2*D*I for the weights, writes T*D. Everything between
the two residual sums can stay on the chip except what does not fit there.
"""

from typing import Optional

from torch import Tensor

from .attention import attention
from .linear import linear
from .mlp import mlp
from .norm import layer_norm, rms_norm
from .precision import wide


def vit_block(
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
) -> Tensor:
    """y = x + scale1 * proj(attention(norm1(x))); out = y + scale2 * fc2(act(fc1(norm2(y)))).

    x: [B, S, D]; qkv_weight: [D, 3*H*d] with the columns of the H query heads first, then those of
    the key heads, then those of the value heads; proj_weight: [H*d, D]; fc1_weight: [D, I];
    fc2_weight: [I, D], all "in_out"; scale1, scale2: LayerScale [D]. `norm` is "layer" or "rms"
    (then without biases). x and y stay in float32 from one residual sum to the next.
    """
    batch, tokens, _ = x.shape

    def normalize(stream: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        if norm == "layer":
            return layer_norm(stream, weight, bias, None, eps)
        if norm == "rms":
            return rms_norm(stream, weight, None, eps)
        raise ValueError(f"norm is {norm!r}; it must be 'layer' or 'rms'")

    stream = wide(x)
    normalized = normalize(stream, norm1_weight, norm1_bias).to(x.dtype)
    qkv = linear(normalized, qkv_weight, qkv_bias, "in_out")
    head_dim = qkv.shape[-1] // (3 * num_heads)
    q, k, v = qkv.view(batch, tokens, 3, num_heads, head_dim).permute(2, 0, 3, 1, 4).unbind(0)
    mixed = attention(q, k, v, attention_scale, None, None, None).flatten(2)
    stream = stream + _scaled(linear(mixed, proj_weight, proj_bias, "in_out"), scale1)

    normalized = normalize(stream, norm2_weight, norm2_bias).to(x.dtype)
    update = mlp(normalized, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, "in_out")
    return (stream + _scaled(update, scale2)).to(x.dtype)


def _scaled(update: Tensor, scale: Optional[Tensor]) -> Tensor:
    return wide(update) if scale is None else wide(update) * wide(scale)
