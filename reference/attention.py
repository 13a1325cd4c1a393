"""Softmax attention, with or without a mask.

A query that sees no key gets zeros.

Traffic in elements, per batch and head: reads Sq*D + 2*Sk*D, writes Sq*D. The Sq*Sk weights are
written and read again only when the softmax runs as an operation of its own.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

View = Tuple[Tuple[int, ...], Tuple[int, ...]]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    q_view: Optional[View],
    k_view: Optional[View],
    v_view: Optional[View],
    mask: Optional[Tensor] = None,
    kv_lens: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
) -> Tensor:
    """softmax(q k^T * scale + bias) v for every batch and head.

    q: [B, H, Sq, D]; k, v: [B, G, Sk, D], where H is a multiple of G and H / G heads in a row share
    one of k and v; result: [B, Sq, H, D], dense. An operand whose view is not None is instead a
    one-dimensional window on the storage, and the operand is `torch.as_strided(window, *view)` with
    view = (shape, strides in elements).

    At most one of these may be given:

    - mask: [1 or B, 1 or H, 1 or Sq, Sk]; bool or uint8 (true takes part), or a bias;
    - kv_lens: integers [B], the keys from there on are not seen;
    - cu_seqlens_q, cu_seqlens_k: integers [segments + 1], B = 1: the bounds of segments that see
      nothing of each other.

    PyTorch's own attention keeps the scores and the softmax in float32 for low-precision inputs.
    """
    q, k, v = _operand(q, q_view), _operand(k, k_view), _operand(v, v_view)
    if k.shape[1] != q.shape[1]:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    if mask is None:
        mask = _structure(q, k, kv_lens, cu_seqlens_q, cu_seqlens_k)
    elif mask.dtype == torch.uint8:
        mask = mask.bool()
    if mask is None:
        out = F.scaled_dot_product_attention(q, k, v, scale=scale)
        return out.transpose(1, 2).contiguous()
    if mask.dtype == torch.bool:
        blind = ~mask.any(-1, keepdim=True)
        mask = mask | blind
    else:
        blind = (mask <= _masking_bias(q.dtype)).all(-1, keepdim=True)
        mask = mask.masked_fill(blind, 0.0).to(q.dtype)
    # Such a query sees every key first, because without one its gradient would be NaN.
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return out.masked_fill(blind, 0.0).transpose(1, 2).contiguous()


def _masking_bias(dtype: torch.dtype) -> float:
    """The bias from which downwards a key counts as masked; float16 ends at 65504."""
    return -30720.0 if dtype == torch.float16 else -2097152.0


def _structure(
    q: Tensor,
    k: Tensor,
    kv_lens: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor],
) -> Optional[Tensor]:
    """The mask [B or 1, 1, Sq or 1, Sk] of key lengths or segments; None without either."""
    if kv_lens is not None:
        positions = torch.arange(k.shape[2], device=k.device)
        return (positions < kv_lens.reshape(-1, 1))[:, None, None, :]
    if cu_seqlens_q is not None:
        of_query = _segments(cu_seqlens_q, q.shape[2])
        of_key = _segments(cu_seqlens_k, k.shape[2])
        return (of_query[:, None] == of_key)[None, None]
    return None


def _segments(cu_seqlens: Tensor, length: int) -> Tensor:
    """The segment of each position: how many of the bounds it has reached."""
    positions = torch.arange(length, device=cu_seqlens.device)
    return (positions[:, None] >= cu_seqlens).sum(-1)


def _operand(tensor: Tensor, view: Optional[View]) -> Tensor:
    if view is None:
        return tensor
    shape, strides = view
    return torch.as_strided(tensor, shape, strides)
