"""Seeded weights that look like trained ones.

A freshly initialised Vision Transformer is a gentle test: unit norm weights, zero biases and small
matrices make every block nearly the identity. Trained ones have norm weights spread around one,
biases everywhere, and a few outlier channels that dominate the residual stream. The scales below
put all of that into any module built from Linear, Conv2d, LayerNorm and RMSNorm.
"""

from __future__ import annotations

import torch
from torch import nn

# Spread of norm weights around 1, standard deviations of biases and embeddings, gain of the
# matrices over 1/sqrt(fan in), share of outlier channels and their factor. Chosen, not fitted.
NORM_SPREAD = 0.2
BIAS_SPREAD = 0.1
EMBEDDING_SPREAD = 0.5
MATRIX_GAIN = 1.2
OUTLIER_SHARE = 0.01
OUTLIER_FACTOR = 6.0


@torch.no_grad()
def fill_like_trained(module: nn.Module, seed: int) -> None:
    """Overwrites every parameter of `module` in place, from `seed` alone.

    Norm weights: 1 with spread. Matrices: normal with standard deviation MATRIX_GAIN /
    sqrt(fan in). Biases: normal, never zero. LayerScale (`gamma`, `lambda1`): between 0.1 and 1.
    The rest, which is what enters the residual stream first (class token, positions): normal with
    deviation EMBEDDING_SPREAD. Some channels of norm weights and of the rest are larger by
    OUTLIER_FACTOR.
    """
    generator = torch.Generator().manual_seed(seed)
    norm_weights = {
        id(child.weight)
        for child in module.modules()
        if isinstance(child, (nn.LayerNorm, nn.RMSNorm))
    }
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if id(parameter) in norm_weights:
            value = _with_outliers(1.0 + NORM_SPREAD * noise, generator)
        elif name.endswith(("gamma", "lambda1")):
            value = 0.1 + 0.9 * torch.rand(parameter.shape, generator=generator)
        elif name.endswith("bias"):
            value = BIAS_SPREAD * noise
        elif parameter.ndim >= 2 and name.endswith("weight"):
            value = noise * MATRIX_GAIN / parameter[0].numel() ** 0.5
        else:
            value = _with_outliers(EMBEDDING_SPREAD * noise, generator)
        parameter.copy_(value)


def _with_outliers(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """`value` with some channels, which are its last dimension, made larger."""
    outliers = torch.rand(value.shape[-1], generator=generator) < OUTLIER_SHARE
    return torch.where(outliers, OUTLIER_FACTOR * value, value)
