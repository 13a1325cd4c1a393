"""The pre-norm transformer block in plain PyTorch: the eager side of the benchmark and the demo.

Modules are named as in timm (norm1, attn.qkv, attn.proj, ls1, norm2, mlp.fc1, mlp.fc2, ls2).
"""

from __future__ import annotations

import functools
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
    "silu": nn.SiLU,
}


class LayerScale(nn.Module):
    """One learned factor per channel on a residual branch."""

    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gamma


class RotaryEmbedding(nn.Module):
    """Rotation of the patches of a square image by their row (first half of a head) and column.

    Takes queries or keys [batch, heads, tokens, size]; the first `prefix` tokens stay as they are.
    """

    def __init__(self, prefix: int, theta: float):
        super().__init__()
        self.prefix = prefix
        self.theta = theta

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = x[:, :, self.prefix :]
        cos, sin = (table.to(x.device, x.dtype) for table in self.tables(*patches.shape[-2:]))
        half = patches.shape[-1] // 2
        turned = torch.cat((-patches[..., half:], patches[..., :half]), -1)
        return torch.cat((x[:, :, : self.prefix], patches * cos + turned * sin), 2)

    def tables(self, count: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [count, size], float32, of `count` patches."""
        side = round(count**0.5)
        place = torch.arange(count, dtype=torch.float32)
        steps = torch.arange(size // 4) / (size // 4)
        rates = self.theta**-steps
        axes = torch.stack((place // side, place % side))
        angles = (axes[:, :, None] * rates).permute(1, 0, 2).flatten(1).repeat(1, 2)
        return angles.cos(), angles.sin()


class Attention(nn.Module):
    """Self-attention over [batch, tokens, width] with one packed QKV projection.

    `qkv_bias` is "qkv", "qv" or "none", `bias` that of the projection behind.
    """

    def __init__(self, width, heads, qkv_bias="qkv", bias=True, norm=None, rotary=None):
        super().__init__()
        self.num_heads = heads
        self.head_dim = width // heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(width, 3 * width, bias=qkv_bias == "qkv")
        if qkv_bias == "qv":
            self.q_bias, self.v_bias = (nn.Parameter(torch.zeros(width)) for _ in "qv")
        self.q_norm, self.k_norm = (norm() if norm else nn.Identity() for _ in "qk")
        self.rotary = rotary or nn.Identity()
        self.proj = nn.Linear(width, width, bias=bias)

    @property
    def qkv_bias(self) -> torch.Tensor | None:
        """The bias of the packed projection; keys have none in the "qv" kind."""
        if hasattr(self, "q_bias"):
            return torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))
        return self.qkv.bias

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Queries, keys and values side by side."""
        return F.linear(x, self.qkv.weight, self.qkv_bias)

    def heads(
        self, x: torch.Tensor, norm=lambda norm, x: norm(x)
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values as [batch, heads, tokens, size] views of what `project` gave,
        normed and rotated if the model does that. `norm` calls the norms."""
        batch, tokens, _ = x.shape
        query, key, value = x.view(batch, tokens, 3, -1).unbind(2)
        query, key, value = (
            part.view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
            for part in (norm(self.q_norm, query), norm(self.k_norm, key), value)
        )
        return self.rotary(query), self.rotary(key), value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = F.scaled_dot_product_attention(*self.heads(self.project(x)))
        return self.proj(mixed.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    """Linear, activation, linear. `gated`: the activation of one half of the first layer's output
    is multiplied with the other half; `norm` then norms the product."""

    def __init__(self, width, hidden, activation, bias=True, gated=False, norm=None):
        super().__init__()
        self.activation = activation
        self.gated = gated
        self.fc1 = nn.Linear(width, 2 * hidden if gated else hidden, bias=bias)
        self.act = ACTIVATIONS[activation]()
        self.norm = norm() if norm else nn.Identity()
        self.fc2 = nn.Linear(hidden, width, bias=bias)

    def gate_and_up(self) -> tuple[tuple, tuple]:
        """(weight, bias) of the gate, with None for what is not there, and of the other half."""
        weight, bias = self.fc1.weight, self.fc1.bias
        if not self.gated:
            return (None, None), (weight, bias)
        biases = (None, None) if bias is None else bias.chunk(2)
        return tuple(zip(weight.chunk(2), biases, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc1(x)
        if self.gated:
            gate, x = x.chunk(2, -1)
            return self.fc2(self.norm(self.act(gate) * x))
        return self.fc2(self.act(x))


class PreNormBlock(nn.Module):
    """x + ls1(attn(norm1(x))), then x + ls2(mlp(norm2(x))), over [batch, tokens, hidden]."""

    def __init__(self, attention: Attention, mlp: Mlp, norm, layer_scale=False):
        super().__init__()
        width = attention.proj.out_features
        self.norm1 = norm()
        self.attn = attention
        self.ls1 = LayerScale(width) if layer_scale else nn.Identity()
        self.norm2 = norm()
        self.mlp = mlp
        self.ls2 = LayerScale(width) if layer_scale else nn.Identity()

    @classmethod
    def of(cls, shape: VitShape) -> PreNormBlock:
        """One block of a family."""
        kind = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[shape.norm]
        norm = functools.partial(kind, shape.hidden, eps=shape.eps)
        rotary = RotaryEmbedding(shape.prefix_tokens, shape.rope_theta)
        return cls(
            Attention(
                shape.hidden, shape.heads, shape.qkv_bias, shape.bias,
                functools.partial(nn.RMSNorm, shape.hidden, eps=shape.eps)
                if shape.qk_norm else None,
                rotary if shape.rope_theta else None,
            ),
            Mlp(
                shape.hidden, shape.mlp, shape.activation, shape.bias, shape.gated,
                functools.partial(nn.LayerNorm, shape.mlp, eps=shape.eps)
                if shape.mlp_norm else None,
            ),
            norm,
            shape.layer_scale,
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.ls1(self.attn(self.norm1(x)))
        return x + self.ls2(self.mlp(self.norm2(x)))


def pack(block: PreNormBlock, package: ModuleType):
    """`package.BlockParams` with the weights of `block`, copied into the layout of the kernel.

    `package` is neuron_vit, from the checkout or from the Hub.
    """
    attention, mlp = block.attn, block.mlp
    gate, up = mlp.gate_and_up()

    def scale(branch: nn.Module):
        return branch.gamma.detach().clone() if isinstance(branch, LayerScale) else None

    def in_out(weight: torch.Tensor | None) -> torch.Tensor | None:
        return None if weight is None else weight.detach().t().contiguous()

    def copied(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.detach().clone()

    def norm_of(kind: str, first: nn.Module, **norms: nn.Module) -> dict:
        """The arguments of an optional norm; of `norms`, weight and bias."""
        if isinstance(first, nn.Identity):
            return {}
        name = "rms" if isinstance(first, nn.RMSNorm) else "layer"
        values = {f"{kind}_norm": name, f"{kind}_eps": first.eps}
        for prefix, norm in norms.items():
            values[f"{prefix}_weight"] = copied(norm.weight)
            values[f"{prefix}_bias"] = copied(getattr(norm, "bias", None))
        return values

    return package.BlockParams(
        norm1_weight=copied(block.norm1.weight),
        norm1_bias=copied(getattr(block.norm1, "bias", None)),
        qkv_weight=in_out(attention.qkv.weight),
        qkv_bias=copied(attention.qkv_bias),
        proj_weight=in_out(attention.proj.weight),
        proj_bias=copied(attention.proj.bias),
        scale1=scale(block.ls1),
        norm2_weight=copied(block.norm2.weight),
        norm2_bias=copied(getattr(block.norm2, "bias", None)),
        fc1_weight=in_out(up[0]),
        fc1_bias=copied(up[1]),
        fc2_weight=in_out(mlp.fc2.weight),
        fc2_bias=copied(mlp.fc2.bias),
        scale2=scale(block.ls2),
        num_heads=attention.num_heads,
        eps=block.norm1.eps,
        attention_scale=attention.scale,
        norm="rms" if isinstance(block.norm1, nn.RMSNorm) else "layer",
        activation=mlp.activation,
        rope="half" if isinstance(attention.rotary, RotaryEmbedding) else None,
        gate_weight=in_out(gate[0]),
        gate_bias=copied(gate[1]),
        **norm_of("inner", mlp.norm, inner=mlp.norm),
        **norm_of("qk", attention.q_norm, q_norm=attention.q_norm, k_norm=attention.k_norm),
    )
