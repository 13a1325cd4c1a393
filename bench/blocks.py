"""The pre-norm transformer block in plain PyTorch: the eager side of the benchmark and the demo.

Modules are named as in timm (norm1, attn.qkv, attn.proj, ls1, norm2, mlp.fc1, mlp.fc2, ls2).
"""

from __future__ import annotations

from types import ModuleType

import torch
import torch.nn.functional as F
from torch import nn

from bench.models import VitShape


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), the activation of OpenAI's CLIP."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(1.702 * x)


ACTIVATIONS = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "quick_gelu": QuickGELU,
}


class LayerScale(nn.Module):
    """One learned factor per channel on a residual branch."""

    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gamma


class Attention(nn.Module):
    """Self-attention over [batch, tokens, width] with one packed QKV projection."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.num_heads = heads
        self.head_dim = width // heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.num_heads, self.head_dim)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Mlp(nn.Module):
    """Linear, activation, linear."""

    def __init__(self, width: int, hidden: int, activation: str):
        super().__init__()
        self.activation = activation
        self.fc1 = nn.Linear(width, hidden)
        self.act = ACTIVATIONS[activation]()
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class PreNormBlock(nn.Module):
    """x + ls1(attn(norm1(x))), then x + ls2(mlp(norm2(x))), over [batch, tokens, hidden]."""

    def __init__(self, hidden, heads, mlp, activation="gelu", eps=1e-6, layer_scale=False):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, eps=eps)
        self.attn = Attention(hidden, heads)
        self.ls1 = LayerScale(hidden) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(hidden, eps=eps)
        self.mlp = Mlp(hidden, mlp, activation)
        self.ls2 = LayerScale(hidden) if layer_scale else nn.Identity()

    @classmethod
    def of(cls, shape: VitShape) -> PreNormBlock:
        """One block of a family."""
        return cls(
            shape.hidden, shape.heads, shape.mlp, shape.activation, shape.eps, shape.layer_scale
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.ls1(self.attn(self.norm1(x)))
        return x + self.ls2(self.mlp(self.norm2(x)))


def pack(block: PreNormBlock, package: ModuleType):
    """`package.BlockParams` with the weights of `block`, copied into the layout of the kernel.

    `package` is neuron_vit, from the checkout or from the Hub.
    """
    attention, mlp = block.attn, block.mlp

    def scale(branch: nn.Module):
        return branch.gamma.detach().clone() if isinstance(branch, LayerScale) else None

    def in_out(linear: nn.Linear) -> torch.Tensor:
        return linear.weight.detach().t().contiguous()

    return package.BlockParams(
        norm1_weight=block.norm1.weight.detach().clone(),
        norm1_bias=block.norm1.bias.detach().clone(),
        qkv_weight=in_out(attention.qkv),
        qkv_bias=attention.qkv.bias.detach().clone(),
        proj_weight=in_out(attention.proj),
        proj_bias=attention.proj.bias.detach().clone(),
        scale1=scale(block.ls1),
        norm2_weight=block.norm2.weight.detach().clone(),
        norm2_bias=block.norm2.bias.detach().clone(),
        fc1_weight=in_out(mlp.fc1),
        fc1_bias=mlp.fc1.bias.detach().clone(),
        fc2_weight=in_out(mlp.fc2),
        fc2_bias=mlp.fc2.bias.detach().clone(),
        scale2=scale(block.ls2),
        num_heads=attention.num_heads,
        eps=block.norm1.eps,
        attention_scale=attention.scale,
        norm="layer",
        activation=mlp.activation,
    )
