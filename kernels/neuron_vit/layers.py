"""Layers for `kernels.kernelize`: only a `forward`, on the members of the layer they replace."""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from .normalization import layer_norm, rms_norm


class LayerNorm(nn.Module):
    """Replaces `torch.nn.LayerNorm`; see `layer_norm`."""

    can_torch_compile = True
    has_backward = True

    normalized_shape: Tuple[int, ...]
    weight: Optional[Tensor]
    bias: Optional[Tensor]
    eps: float

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Replaces the RMSNorm modules of transformers, whose epsilon is `variance_epsilon`."""

    can_torch_compile = True
    has_backward = True

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)
