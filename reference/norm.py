"""Layer norm and RMS norm over the last dimension, with an optional residual added first, and
their modulated forms with a shift, a scale and a gate an image.

Traffic in elements for N rows of width D: reads N*D (2*N*D with a residual) and one or two vectors
of D, writes N*D (2*N*D with a residual). Modulation of B images reads 2*B*D (3*B*D with a gate).
"""

from typing import Optional, Tuple, Union

import torch
from torch import Tensor
from torch.nn import functional as F

from .precision import wide


def layer_norm(
    x: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    residual: Optional[Tensor],
    eps: float,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """y = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias, with s = x + residual.

    x, residual: [..., D]; weight, bias: [D]; the variance is the biased one. Without a residual the
    result is y alone; with one it is (y, s), where s is rounded to the dtype of x but y was
    computed from the unrounded sum.
    """
    total = wide(x) if residual is None else wide(x) + wide(residual)
    normalized = F.layer_norm(total, (x.shape[-1],), _wide(weight), _wide(bias), eps).to(x.dtype)
    return normalized if residual is None else (normalized, total.to(x.dtype))


def rms_norm(
    x: Tensor,
    weight: Optional[Tensor],
    residual: Optional[Tensor],
    eps: float,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """y = s / sqrt(mean(s * s) + eps) * weight, with s = x + residual.

    Shapes and results as in `layer_norm`.
    """
    total = wide(x) if residual is None else wide(x) + wide(residual)
    scaled = total * torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps)
    if weight is not None:
        scaled = scaled * wide(weight)
    return scaled.to(x.dtype) if residual is None else (scaled.to(x.dtype), total.to(x.dtype))


def ada_layer_norm(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    residual: Optional[Tensor],
    gate: Optional[Tensor],
    eps: float,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """y = layer_norm(s) * (1 + scale) + shift, with s = residual + gate * x.

    x, residual: [B, S, D]; shift, scale, gate: [B, D], one row an image; weight, bias: [D] of the
    norm. Without a residual s is x and the result y alone; with one it is (y, s), as in
    `layer_norm`. A gate of None is 1.
    """
    total = _gated_sum(x, residual, gate)
    normalized = layer_norm(total, _wide(weight), _wide(bias), None, eps)
    return _modulated(normalized, total, x, shift, scale, residual)


def ada_rms_norm(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    weight: Optional[Tensor],
    residual: Optional[Tensor],
    gate: Optional[Tensor],
    eps: float,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """y = rms_norm(s) * (1 + scale) + shift, with s = residual + gate * x.

    Shapes and results as in `ada_layer_norm`.
    """
    total = _gated_sum(x, residual, gate)
    normalized = rms_norm(total, _wide(weight), None, eps)
    return _modulated(normalized, total, x, shift, scale, residual)


def _gated_sum(x: Tensor, residual: Optional[Tensor], gate: Optional[Tensor]) -> Tensor:
    update = wide(x) if gate is None else wide(x) * wide(gate).unsqueeze(1)
    return update if residual is None else wide(residual) + update


def _modulated(
    normalized: Tensor,
    total: Tensor,
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    residual: Optional[Tensor],
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    out = normalized * (1 + wide(scale).unsqueeze(1)) + wide(shift).unsqueeze(1)
    return out.to(x.dtype) if residual is None else (out.to(x.dtype), total.to(x.dtype))


def _wide(parameter: Optional[Tensor]) -> Optional[Tensor]:
    return None if parameter is None else wide(parameter)
