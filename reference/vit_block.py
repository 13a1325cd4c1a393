"""A whole pre-norm transformer block.

Traffic in elements for B*S = T tokens of width D, H heads of size d, I hidden units, as one
operation: reads T*D for x and D*3Hd + Hd*D + 2*D*I (3*D*I with a gate) for the weights, writes T*D.
Everything between the two residual sums can stay on the chip except what does not fit there.
"""

from typing import Optional

from torch import Tensor

from .attention import attention
from .linear import linear
from .mlp import mlp, swiglu_mlp
from .norm import layer_norm, rms_norm
from .precision import wide
from .rope import rotate


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
    """y = x + scale1 * proj(attention(norm1(x))); out = y + scale2 * fc2(hidden(norm2(y))).

    x: [B, S, D]; qkv_weight: [D, 3*H*d] with the columns of the H query heads first, then those of
    the key heads, then those of the value heads; proj_weight: [H*d, D]; fc1_weight: [D, I];
    fc2_weight: [I, D], all "in_out"; scale1, scale2: LayerScale [D]. `norm` is "layer" or "rms"
    (then without biases). x and y stay in float32 from one residual sum to the next.

    hidden(x) = act(x W1 + b1), or act(x Wg + bg) * (x W1 + b1) with gate_weight [D, I]. inner_norm
    is None, or the kind of a norm over the I hidden values with inner_eps, inner_weight and
    inner_bias ([I] or None).

    qk_norm is None, or the kind of a norm of queries and keys with qk_eps, q_norm_weight and
    k_norm_weight: over each head where these are [d], over all heads together ("rms" only) where
    they are [H*d]. After it `rotate`, if cos and sin are given, in the style `rope`. mask, kv_lens
    and cu_seqlens (B = 1) restrict which keys a query sees; see `attention`.
    """
    stream = wide(x)
    normalized = _normalize(stream, norm1_weight, norm1_bias, norm, eps).to(x.dtype)
    q, k, v = linear(normalized, qkv_weight, qkv_bias, "in_out").chunk(3, dim=-1)
    if qk_norm is not None:
        q = _normalize_heads(q, q_norm_weight, q_norm_bias, qk_norm, qk_eps)
        k = _normalize_heads(k, k_norm_weight, k_norm_bias, qk_norm, qk_eps)
    q, k, v = (t.unflatten(-1, (num_heads, -1)).transpose(1, 2) for t in (q, k, v))
    if cos is not None:
        q, k = (rotate(t, cos, sin, rope) for t in (q, k))
    q, k = q.to(x.dtype), k.to(x.dtype)
    mixed = attention(
        q, k, v, attention_scale, None, None, None, mask, kv_lens, cu_seqlens, cu_seqlens
    ).flatten(2)
    stream = stream + _scaled(linear(mixed, proj_weight, proj_bias, "in_out"), scale1)

    normalized = _normalize(stream, norm2_weight, norm2_bias, norm, eps).to(x.dtype)
    inner = (inner_weight, inner_bias, inner_eps, inner_norm)
    up, down = (fc1_weight, fc1_bias), (fc2_weight, fc2_bias)
    if gate_weight is None:
        update = mlp(normalized, *up, *down, activation, "in_out", *inner)
    else:
        gate = (gate_weight, gate_bias)
        update = swiglu_mlp(normalized, *gate, *up, *down, activation, "in_out", *inner)
    return (stream + _scaled(update, scale2)).to(x.dtype)


def _normalize(
    x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], norm: str, eps: float
) -> Tensor:
    if norm == "layer":
        return layer_norm(x, weight, bias, None, eps)
    if norm == "rms":
        return rms_norm(x, weight, None, eps)
    raise ValueError(f"norm is {norm!r}; it must be 'layer' or 'rms'")


def _normalize_heads(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], norm: str, eps: float
) -> Tensor:
    """The norm of [B, S, H*d] over groups of as many values as there are weights."""
    groups = wide(x).unflatten(-1, (-1, weight.shape[0]))
    return _normalize(groups, weight, bias, norm, eps).flatten(-2)


def _scaled(update: Tensor, scale: Optional[Tensor]) -> Tensor:
    return wide(update) if scale is None else wide(update) * wide(scale)
