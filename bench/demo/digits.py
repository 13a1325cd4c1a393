"""A small Vision Transformer trained on scikit-learn's handwritten digits, then run three ways.

The digits are 1797 images of 8 x 8 pixels. Patches of 2 x 4 pixels and a class token make 9 tokens
of width 192 with 3 heads of 64, the widths of ViT tiny.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from bench.blocks import Attention, Mlp, PreNormBlock, pack

SIDE = 8
PATCH_ROWS, PATCH_COLUMNS = 2, 4
PIXELS = PATCH_ROWS * PATCH_COLUMNS
PATCHES = SIDE * SIDE // PIXELS
CLASSES = 10
HELD_OUT = 400


class DigitsViT(nn.Module):
    """Class logits [batch, 10] of standardised images [batch, 8, 8]."""

    def __init__(self, hidden: int = 192, heads: int = 3, depth: int = 3):
        super().__init__()
        self.patch_embed = nn.Linear(PIXELS, hidden)
        self.class_token = nn.Parameter(torch.zeros(hidden))
        self.positions = nn.Parameter(0.5 * torch.randn(PATCHES + 1, hidden))
        norm = functools.partial(nn.LayerNorm, hidden, eps=1e-6)
        self.blocks = nn.ModuleList(
            PreNormBlock(Attention(hidden, heads), Mlp(hidden, 4 * hidden, "gelu"), norm)
            for _ in range(depth)
        )
        self.norm = norm()
        self.head = nn.Linear(hidden, CLASSES)

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        """[batch, 8, 8]: the 8 pixels of each of the 8 patches, row by row."""
        rows, columns = SIDE // PATCH_ROWS, SIDE // PATCH_COLUMNS
        split = images.view(-1, rows, PATCH_ROWS, columns, PATCH_COLUMNS).transpose(2, 3)
        return split.reshape(-1, PATCHES, PIXELS)

    def tokens(self, embedded: torch.Tensor) -> torch.Tensor:
        """[batch, 9, hidden]: the class token in front of the patches, positions added."""
        first = self.class_token.expand(len(embedded), 1, -1)
        return torch.cat([first, embedded], dim=1) + self.positions

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.tokens(self.patch_embed(self.patches(images)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def load_split(seed: int = 0):
    """(train images, train labels, held-out images, held-out labels), HELD_OUT of them held out.
    Pixels have mean 0 and deviation 1 over the training images."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    held_out, train = order[:HELD_OUT], order[HELD_OUT:]
    images = (images - images[train].mean()) / images[train].std()
    return images[train], labels[train], images[held_out], labels[held_out]


def train(images: torch.Tensor, labels: torch.Tensor, seed: int = 0, epochs: int = 8) -> DigitsViT:
    """A trained DigitsViT in eval mode, without gradients.

    Runs on one thread: the sums then have one order, whatever the number of cores, and matrices
    this small gain little from a second thread and lose much when its core is busy.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _train(images, labels, seed, epochs).eval().requires_grad_(False)
    finally:
        torch.set_num_threads(threads)


def _train(images: torch.Tensor, labels: torch.Tensor, seed: int, epochs: int) -> DigitsViT:
    torch.manual_seed(seed)
    model = DigitsViT().train()
    batch, rate = 32, 1e-3
    steps = epochs * (len(images) // batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(len(images))
        for start in range(0, len(images) - batch + 1, batch):
            rows = order[start : start + batch]
            loss = F.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model


def through_package(model: DigitsViT, images: torch.Tensor, package: ModuleType) -> torch.Tensor:
    """The logits of `model(images)`, every layer computed by `package`, by the path it takes."""
    embed, norm, head = model.patch_embed, model.norm, model.head
    x = model.tokens(package.linear(model.patches(images), embed.weight, embed.bias))
    for block in model.blocks:
        x = package.vit_block(x, pack(block, package))
    first = package.layer_norm(x[:, 0], norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return package.linear(first, head.weight, head.bias)


def launches(model: DigitsViT) -> dict[str, int]:
    """The NKI launches of one `through_package` when no layer goes another way."""
    return {"linear": 2, "layer_norm": 1, "vit_block": len(model.blocks)}
