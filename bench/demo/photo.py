"""ViT-B/16 on a photograph, with every block through the package's `vit_block`.

The model is transformers' ViTModel with the defaults of ViTConfig. Its weights are seeded and
scaled like trained ones, so the hidden states mean nothing, and are as hard to compute as those of
a trained model.
"""

from __future__ import annotations

import copy
from types import ModuleType

import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_image
from torch import nn
from transformers import ViTConfig, ViTModel

from bench.weights import fill_like_trained

SEED = 0


def load_photo(side: int) -> torch.Tensor:
    """scikit-learn's picture of a temple as [1, 3, side, side]: cropped to a square around its
    centre, resized, scaled to -1..1 as ViT's image processor does."""
    pixels = torch.tensor(load_sample_image("china.jpg")).permute(2, 0, 1).float()[None] / 255.0
    height, width = pixels.shape[2:]
    crop = min(height, width)
    top, left = (height - crop) // 2, (width - crop) // 2
    square = pixels[:, :, top : top + crop, left : left + crop]
    resized = F.interpolate(square, (side, side), mode="bicubic", antialias=True)
    return (resized.clamp(0.0, 1.0) - 0.5) / 0.5


def build_model() -> ViTModel:
    """ViT-B/16 in float32, eval mode, without gradients."""
    model = ViTModel(ViTConfig(), add_pooling_layer=False)
    fill_like_trained(model, SEED)
    return model.eval().requires_grad_(False)


def in_dtype(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy of `model` in `dtype`."""
    return copy.deepcopy(model).to(dtype)


class PackagedViT:
    """A ViTModel whose blocks and final norm run through `package`; the embedding stays PyTorch.

    The weights are packed here, once; a call takes pixels [batch, 3, side, side] in the model's
    dtype and gives the final hidden state [batch, tokens, hidden].
    """

    def __init__(self, model: ViTModel, package: ModuleType):
        self._package = package
        self._embeddings = model.embeddings
        self._blocks = [package.BlockParams.from_module(layer) for layer in model.layers]
        self._norm = model.layernorm

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self._embeddings(pixels)
        for params in self._blocks:
            x = self._package.vit_block(x, params)
        norm = self._norm
        return self._package.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
