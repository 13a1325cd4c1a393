"""What the benchmark runs: an encoder, one block of a model, or the operations inside it.

Each case is the same computation four times: eager PyTorch, the package, eager PyTorch as one
launch per operation (for the modelled table), and eager PyTorch in float64, which is the answer
that all are compared with.
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
from bench.eager import EagerLaunches
from bench.models import VitShape
from bench.weights import fill_like_trained

LEVELS = ("op", "block", "encoder")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SEED = 0


@dataclass(frozen=True)
class Case:
    """One computation; each callable takes nothing (`launches`: the launcher) and returns its
    result."""

    op: str
    eager: Callable[[], Tensor]
    package: Callable[[], Tensor]
    launches: Callable[[EagerLaunches], Tensor]
    exact: Callable[[], Tensor]


def build_cases(
    shape: VitShape,
    level: str,
    resolution: int,
    batch: int,
    dtype: torch.dtype,
    package: ModuleType,
    device: str = "cpu",
) -> list[Case]:
    """The cases of `level` ("op", "block" or "encoder") for `batch` images, all seeded.

    The input is [batch, tokens, hidden] in `dtype` on `device`; so are the weights. An encoder is
    all blocks of the model, without the patch embedding and the last norm.
    """
    if level not in LEVELS:
        raise ValueError(f"level={level!r}; it must be {', '.join(LEVELS)}")
    generator = torch.Generator().manual_seed(SEED + 1)
    x = torch.randn(batch, shape.tokens(resolution), shape.hidden, generator=generator)
    x = x.to(device, dtype)
    count = shape.depth if level == "encoder" else 1
    blocks = [_block(shape, SEED + number, dtype, device) for number in range(count)]
    if level == "op":
        return _operations(blocks[0], x, package)
    return [_blocks("vit_block" if level == "block" else "encoder", blocks, x, package)]


def _block(shape: VitShape, seed: int, dtype: torch.dtype, device: str) -> PreNormBlock:
    block = PreNormBlock.of(shape).eval().requires_grad_(False)
    fill_like_trained(block, seed)
    return block.to(device, dtype)


def _blocks(op: str, blocks: list[PreNormBlock], x: Tensor, package: ModuleType) -> Case:
    packed = [pack(block, package) for block in blocks]

    def chain(call: Callable, layers: list, x: Tensor) -> Tensor:
        for layer in layers:
            x = call(layer, x)
        return x

    def exact() -> Tensor:
        doubles = (copy.deepcopy(block).to("cpu").double() for block in blocks)
        return chain(lambda block, x: block(x), doubles, x.to("cpu").double())

    return Case(
        op=op,
        eager=lambda: chain(lambda block, x: block(x), blocks, x),
        package=lambda: chain(lambda params, x: package.vit_block(x, params), packed, x),
        launches=lambda launcher: chain(launcher.block, blocks, x),
        exact=exact,
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
            lambda launcher, x: launcher.norm(norm, x),
        ),
        _linear("linear_qkv", attention.qkv, normalized, package),
        _case(
            "attention", F.scaled_dot_product_attention, (query, key, value),
            package.scaled_dot_product_attention,
            lambda launcher, *qkv: launcher.attention(*qkv),
        ),
        _linear("linear_proj", attention.proj, mixed, package),
        _case(
            "mlp", mlp, (normalized,),
            lambda x: package.mlp(
                x, mlp.fc1.weight, mlp.fc1.bias, mlp.fc2.weight, mlp.fc2.bias, mlp.activation
            ),
            lambda launcher, x: launcher.mlp(mlp, x),
        ),
    ]  # fmt: skip


def _linear(op: str, linear: nn.Linear, x: Tensor, package: ModuleType) -> Case:
    return _case(
        op, linear, (x,),
        lambda x: package.linear(x, linear.weight, linear.bias),
        lambda launcher, x: launcher.linear(linear, x),
    )  # fmt: skip


def _case(
    op: str, eager: Callable, inputs: tuple[Tensor, ...], package: Callable, launches: Callable
) -> Case:
    double = copy.deepcopy(eager).to("cpu").double() if isinstance(eager, nn.Module) else eager
    return Case(
        op=op,
        eager=lambda: eager(*inputs),
        package=lambda: package(*inputs),
        launches=lambda launcher: launches(launcher, *inputs),
        exact=lambda: double(*(tensor.to("cpu").double() for tensor in inputs)),
    )
