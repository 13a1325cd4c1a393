"""What the benchmark runs: an encoder, one block of a model, or the operations inside it.

Each case is the same computation four times: eager PyTorch, the package, eager PyTorch as one
launch per operation (for the modelled table), and eager PyTorch in float64, which is the answer
that all are compared with. Some blocks have no eager launches (`VitShape.beyond_eager_launches`).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.blocks import PreNormBlock, RotaryEmbedding, pack
from bench.eager import EagerLaunches
from bench.models import VitShape
from bench.weights import fill_like_trained

LEVELS = ("op", "block", "encoder")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SEED = 0


@dataclass(frozen=True)
class Case:
    """One computation; each callable takes nothing (`launches`: the launcher) and returns its
    result. `launches` is None where something has no launch of its own; `beyond` says what."""

    op: str
    eager: Callable[[], Tensor]
    exact: Callable[[], Tensor]
    package: Callable[[], Tensor]
    launches: Callable[[EagerLaunches], Tensor] | None = None
    beyond: str = ""


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
        return _operations(shape, blocks[0], x, package)
    return [_blocks("vit_block" if level == "block" else "encoder", shape, blocks, x, package)]


def _block(shape: VitShape, seed: int, dtype: torch.dtype, device: str) -> PreNormBlock:
    block = PreNormBlock.of(shape).eval().requires_grad_(False)
    fill_like_trained(block, seed)
    return block.to(device, dtype)


def _blocks(op: str, shape: VitShape, blocks: list, x: Tensor, package: ModuleType) -> Case:
    def chain(call: Callable, layers: list, x: Tensor) -> Tensor:
        for layer in layers:
            x = call(layer, x)
        return x

    def eager() -> Tensor:
        return chain(lambda block, x: block(x), blocks, x)

    def exact() -> Tensor:
        doubles = (copy.deepcopy(block).to("cpu").double() for block in blocks)
        return chain(lambda block, x: block(x), doubles, x.to("cpu").double())

    packed = [pack(block, package) for block in blocks]
    if op == "vit_block":
        ours = functools.partial(package.vit_block, x, packed[0])
    else:
        ours = functools.partial(package.vit_encoder, x, package.EncoderParams.from_blocks(packed))
    rope = _tables(blocks[0], x)
    if rope is not None:
        ours = functools.partial(ours, rope=rope)
    beyond = shape.beyond_eager_launches
    return Case(
        op=op,
        eager=eager,
        exact=exact,
        package=ours,
        launches=None if beyond else lambda launcher: chain(launcher.block, blocks, x),
        beyond=beyond,
    )


def _tables(block: PreNormBlock, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """The float32 tables of the rotary embedding of a block on x, or None."""
    rotary = block.attn.rotary
    if not isinstance(rotary, RotaryEmbedding):
        return None
    tables = rotary.tables(x.shape[1] - rotary.prefix, block.attn.head_dim)
    return tuple(table.to(x.device) for table in tables)


def _operations(shape, block: PreNormBlock, x: Tensor, package: ModuleType) -> list[Case]:
    """The operations in the order in which a block runs them, each on what the one before gave."""
    norm, attention, mlp = block.norm1, block.attn, block.mlp
    normalized = norm(x)
    width = x.shape[-1]
    qkv = attention.project(normalized)
    # Strided views, as the model libraries hand them over; rotated if the model does that.
    query, key, value = attention.heads(qkv)
    mixed = F.scaled_dot_product_attention(query, key, value)
    mixed = mixed.transpose(1, 2).reshape(x.shape)
    norms = [
        _case(
            "rms_norm", functools.partial(_rms_norm, norm), (x,),
            lambda x: package.rms_norm(x, (width,), norm.weight, norm.eps),
            lambda launcher, x: launcher.rms_norm(norm, x),
        )
    ]  # fmt: skip
    if shape.norm == "layer":
        # The package's other norm, with the same weight, comes last.
        norms.insert(
            0,
            _case(
                "layer_norm", norm, (x,),
                lambda x: package.layer_norm(x, (width,), norm.weight, norm.bias, norm.eps),
                lambda launcher, x: launcher.norm(norm, x),
            ),
        )  # fmt: skip
    return [
        norms.pop(0),
        _linear("linear_qkv", attention.qkv.weight, attention.qkv_bias, normalized, package),
        _case(
            "attention", F.scaled_dot_product_attention, (query, key, value),
            package.scaled_dot_product_attention,
            lambda launcher, *qkv: launcher.attention(*qkv),
        ),
        _linear("linear_proj", attention.proj.weight, attention.proj.bias, mixed, package),
        _mlp(shape, mlp, normalized, package),
        *norms,
    ]  # fmt: skip


def _rms_norm(norm: nn.Module, x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], norm.weight.to(x.dtype), norm.eps)


def _linear(op: str, weight: Tensor, bias: Tensor | None, x: Tensor, package: ModuleType) -> Case:
    return _case(
        op, F.linear, (x, weight, bias), package.linear,
        lambda launcher, x, weight, bias: launcher.linear(weight, bias, x),
    )  # fmt: skip


def _mlp(shape: VitShape, mlp: nn.Module, x: Tensor, package: ModuleType) -> Case:
    if shape.gated:
        return _case(
            "swiglu_mlp", mlp, (x,), functools.partial(_swiglu_mlp, package, mlp),
            lambda launcher, x: launcher.mlp(mlp, x),
        )  # fmt: skip
    return _case(
        "mlp", mlp, (x,),
        lambda x: package.mlp(
            x, mlp.fc1.weight, mlp.fc1.bias, mlp.fc2.weight, mlp.fc2.bias, mlp.activation
        ),
        lambda launcher, x: launcher.mlp(mlp, x),
    )  # fmt: skip


def _swiglu_mlp(package: ModuleType, mlp: nn.Module, x: Tensor) -> Tensor:
    gate, up = mlp.gate_and_up()
    norm = {}
    if isinstance(mlp.norm, nn.LayerNorm):
        norm = dict(norm_weight=mlp.norm.weight, norm_bias=mlp.norm.bias, norm_eps=mlp.norm.eps)
    return package.swiglu_mlp(
        x, *gate, *up, mlp.fc2.weight, mlp.fc2.bias, activation=mlp.activation, **norm
    )


def _case(op: str, eager: Callable, inputs: tuple, package: Callable, launches) -> Case:
    double = copy.deepcopy(eager).to("cpu").double() if isinstance(eager, nn.Module) else eager
    doubles = [None if one is None else one.to("cpu").double() for one in inputs]
    return Case(
        op=op,
        eager=lambda: eager(*inputs),
        exact=lambda: double(*doubles),
        package=lambda: package(*inputs),
        launches=lambda launcher: launches(launcher, *inputs),
    )
