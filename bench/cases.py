"""What the benchmark runs: one block of a model, or the operations inside it.

Each case is the same computation three times: eager PyTorch, the package, and eager PyTorch in
float64, which is the answer both are compared with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.blocks import PreNormBlock, pack
from bench.models import VitShape
from bench.weights import fill_like_trained

LEVELS = ("op", "block")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SEED = 0


@dataclass(frozen=True)
class Case:
    """One computation; each callable takes nothing and returns its result."""

    op: str
    eager: Callable[[], Tensor]
    package: Callable[[], Tensor]
    exact: Callable[[], Tensor]


def build_cases(
    shape: VitShape,
    level: str,
    resolution: int,
    batch: int,
    dtype: torch.dtype,
    package: ModuleType,
) -> list[Case]:
    """The cases of `level` ("op" or "block") for `batch` images, weights and inputs seeded.

    The input is [batch, tokens, hidden] in `dtype`; so are the weights.
    """
    if level not in LEVELS:
        raise ValueError(f"level={level!r}; it must be {' or '.join(LEVELS)}")
    block = PreNormBlock.of(shape).eval().requires_grad_(False)
    fill_like_trained(block, SEED)
    block = block.to(dtype)
    generator = torch.Generator().manual_seed(SEED + 1)
    x = torch.randn(batch, shape.tokens(resolution), shape.hidden, generator=generator).to(dtype)
    return [_whole_block(block, x, package)] if level == "block" else _operations(block, x, package)


def _whole_block(block: PreNormBlock, x: Tensor, package: ModuleType) -> Case:
    params = pack(block, package)
    double = copy.deepcopy(block).double()
    return Case(
        op="vit_block",
        eager=lambda: block(x),
        package=lambda: package.vit_block(x, params),
        exact=lambda: double(x.double()),
    )


def _operations(block: PreNormBlock, x: Tensor, package: ModuleType) -> list[Case]:
    """The operations in the order in which a block runs them, each on what the one before gave."""
    norm, attention, mlp = block.norm1, block.attn, block.mlp
    normalized = norm(x)
    batch, tokens, width = x.shape
    qkv = attention.qkv(normalized).view(batch, tokens, 3, attention.num_heads, -1)
    # Strided views, as the model libraries hand them over.
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    mixed = F.scaled_dot_product_attention(query, key, value)
    mixed = mixed.transpose(1, 2).reshape(batch, tokens, width)
    return [
        _case(
            "layer_norm", norm, (x,),
            lambda x: package.layer_norm(x, (width,), norm.weight, norm.bias, norm.eps),
        ),
        _case("linear_qkv", attention.qkv, (normalized,), _linear(attention.qkv, package)),
        _case(
            "attention", F.scaled_dot_product_attention, (query, key, value),
            package.scaled_dot_product_attention,
        ),
        _case("linear_proj", attention.proj, (mixed,), _linear(attention.proj, package)),
        _case(
            "mlp", mlp, (normalized,),
            lambda x: package.mlp(
                x, mlp.fc1.weight, mlp.fc1.bias, mlp.fc2.weight, mlp.fc2.bias, mlp.activation
            ),
        ),
    ]  # fmt: skip


def _linear(linear: nn.Linear, package: ModuleType) -> Callable[[Tensor], Tensor]:
    return lambda x: package.linear(x, linear.weight, linear.bias)


def _case(op: str, eager: Callable, inputs: tuple[Tensor, ...], package: Callable) -> Case:
    double = copy.deepcopy(eager).double() if isinstance(eager, nn.Module) else eager
    return Case(
        op=op,
        eager=lambda: eager(*inputs),
        package=lambda: package(*inputs),
        exact=lambda: double(*(tensor.double() for tensor in inputs)),
    )
