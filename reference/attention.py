"""Softmax attention without a mask.

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
) -> Tensor:
    """softmax(q k^T * scale) v for every batch and head.

    q: [B, H, Sq, D]; k, v: [B, H, Sk, D]; result: [B, Sq, H, D], dense. An operand whose view is
    not None is instead a one-dimensional window on the storage, and the operand is
    `torch.as_strided(window, *view)` with view = (shape, strides in elements).

    PyTorch's own attention keeps the scores and the softmax in float32 for low-precision inputs.
    """
    out = F.scaled_dot_product_attention(
        _operand(q, q_view), _operand(k, k_view), _operand(v, v_view), scale=scale
    )
    return out.transpose(1, 2).contiguous()


def _operand(tensor: Tensor, view: Optional[View]) -> Tensor:
    if view is None:
        return tensor
    shape, strides = view
    return torch.as_strided(tensor, shape, strides)
