"""`vit_block`: a whole pre-norm transformer block in one call."""

from typing import Optional

import torch
from torch import Tensor

from . import _dispatch, _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops
from .block_params import BlockParams


def vit_block(x: Tensor, params: BlockParams) -> Tensor:
    """One transformer block: attention and MLP, each behind a norm and added to the stream.

    y = x + scale1 * proj(attention(norm1(x))); out = y + scale2 * fc2(activation(fc1(norm2(y)))).

    Args:
        x: [batch, tokens, width], bfloat16, float16 or float32 (float64 runs as PyTorch
            operations).
        params: the block's weights, with the dtype and on the device of `x`.

    Returns:
        [batch, tokens, width], dtype of `x`. Statistics, softmax and the residual stream within
        the block are float32.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.
    """
    if not isinstance(params, BlockParams):
        raise TypeError(
            f"neuron-vit: vit_block: params is a {type(params).__name__}; it must be a "
            "BlockParams. Make one with BlockParams.from_module(layer)."
        )
    _validate.floating_tensor("vit_block", "x", x, "exactly 3")
    if x.shape[2] != params.width:
        raise _validate.fail(
            "vit_block",
            "x",
            f"has shape {tuple(x.shape)}",
            f"its last size must be the width of params, {params.width}",
            "Use the params of this model's layer",
        )
    if x.dtype != params.dtype or x.device != params.device:
        raise _validate.fail(
            "vit_block",
            "params",
            f"has dtype {params.dtype} on {params.device}, x has {x.dtype} on {x.device}",
            "they must be the same",
            f"Convert once with params.to({str(x.device)!r}, {x.dtype})",
        )
    return ops.vit_block(
        x,
        params.norm1_weight,
        params.norm1_bias,
        params.qkv_weight,
        params.qkv_bias,
        params.proj_weight,
        params.proj_bias,
        params.scale1,
        params.norm2_weight,
        params.norm2_bias,
        params.fc1_weight,
        params.fc1_bias,
        params.fc2_weight,
        params.fc2_bias,
        params.scale2,
        params.num_heads,
        float(params.eps),
        params.norm,
        params.activation,
        float(params.attention_scale),
    )


@torch.library.custom_op(add_op_namespace_prefix("vit_block"), mutates_args=())
def _vit_block(
    x: Tensor,
    norm1_weight: Tensor,
    norm1_bias: Optional[Tensor],
    qkv_weight: Tensor,
    qkv_bias: Optional[Tensor],
    proj_weight: Tensor,
    proj_bias: Optional[Tensor],
    scale1: Optional[Tensor],
    norm2_weight: Tensor,
    norm2_bias: Optional[Tensor],
    fc1_weight: Tensor,
    fc1_bias: Optional[Tensor],
    fc2_weight: Tensor,
    fc2_bias: Optional[Tensor],
    scale2: Optional[Tensor],
    num_heads: int,
    eps: float,
    norm: str,
    activation: str,
    attention_scale: float,
) -> Tensor:
    batch, tokens, width = x.shape
    shape = {
        "batch": batch,
        "tokens": tokens,
        "width": width,
        "heads": num_heads,
        "head_dim": proj_weight.shape[0] // num_heads,
        "hidden": fc1_weight.shape[1],
    }
    arguments = (
        x,
        norm1_weight,
        norm1_bias,
        qkv_weight,
        qkv_bias,
        proj_weight,
        proj_bias,
        scale1,
        norm2_weight,
        norm2_bias,
        fc1_weight,
        fc1_bias,
        fc2_weight,
        fc2_bias,
        scale2,
        num_heads,
        eps,
        norm,
        activation,
        attention_scale,
    )
    return _dispatch.run("vit_block", arguments, shape)


@_vit_block.register_fake
def _(x, *parameters):
    return x.new_empty(x.shape)


differentiate_reference(_vit_block, reference.vit_block)
