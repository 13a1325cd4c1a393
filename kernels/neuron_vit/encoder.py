"""`vit_encoder`: pre-norm transformer blocks, one after another, in one call."""

from typing import Any, Dict, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from . import _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops
from ._vmap import merge_into_images
from .block import (
    IMAGES,
    check_input,
    result_dtype,
    rope_tables,
    run,
    under_autocast,
    visibility,
)
from .block_params import FIELDS, BlockParams
from .encoder_params import EncoderParams

_FUNCTION = "vit_encoder"


def vit_encoder(
    x: Tensor,
    params: Union[EncoderParams, Sequence[BlockParams]],
    *,
    rope: Optional[Tuple[Tensor, Tensor]] = None,
    attn_mask: Optional[Tensor] = None,
    kv_lens: Optional[Tensor] = None,
    cu_seqlens: Optional[Tensor] = None,
) -> Tensor:
    """`vit_block` after `vit_block`, with the same result, in one launch.

    Between two blocks the tokens stay on the chip while they fit there, and the weights of a block
    are loaded beside the work of the one before. A launch unrolls at most
    `limits.INSTRUCTIONS_MAX` (163840) instructions; a deeper encoder or a larger batch runs as
    loops on the device, over the blocks and then over the images, so depth and batch have no
    limit of their own.

    Args:
        x: [batch, tokens, width], bfloat16, float16 or float32 (float64 runs as PyTorch
            operations).
        params: the weights of L blocks of one form: an `EncoderParams`, packed once by
            `EncoderParams.from_blocks` or `.from_module`, with the stacks [L, in, out] that the
            kernel reads; or a list of `BlockParams`, whose weights are copied into such stacks at
            every call. Dtype and device are those of `x`.
        rope, attn_mask, kv_lens, cu_seqlens: as of `vit_block`, with its limits, the same for all
            blocks.

    Returns:
        [batch, tokens, width], dtype of `x`. Each block rounds its output to that dtype.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.

    Example:
        >>> params = EncoderParams.from_module(model.blocks)  # doctest: +SKIP
        >>> y = vit_encoder(x, params)  # doctest: +SKIP
    """
    if not isinstance(params, EncoderParams):
        if not isinstance(params, (list, tuple)):
            remedy = "Make one with EncoderParams.from_module(layers)"
            if isinstance(params, BlockParams):
                remedy = "Call vit_block, which runs one block"
            raise TypeError(
                f"neuron-vit: {_FUNCTION}: params is a {type(params).__name__}; it must be an "
                f"EncoderParams or a list of BlockParams. {remedy}."
            )
        for index, block in enumerate(params):
            if not isinstance(block, BlockParams):
                raise _validate.wrong_type(
                    _FUNCTION,
                    f"params[{index}]",
                    block,
                    "a BlockParams",
                    "Make one with BlockParams.from_module(layer)",
                )
        params = EncoderParams.from_blocks(params)
    out_dtype = result_dtype(x)
    x, params, rope, attn_mask = under_autocast(x, params, rope, attn_mask)
    check_input(_FUNCTION, x, params.form)
    cos, sin = rope_tables(_FUNCTION, x, params.form, rope)
    mask = visibility(_FUNCTION, x, params.form, attn_mask, kv_lens, cu_seqlens)
    out = ops.vit_encoder(
        x,
        **_weights_and_constants(params),
        cos=cos,
        sin=sin,
        mask=mask,
        kv_lens=kv_lens,
        cu_seqlens=cu_seqlens,
    )
    return out if out_dtype is None else out.to(out_dtype)


def _weights_and_constants(params: EncoderParams) -> Dict[str, Any]:
    """The operator's arguments that `params` holds, by name."""
    values = {name: params.stacks.get(name, getattr(params.form, name)) for name in FIELDS}
    values["rope"] = params.form.rope or "half"
    return values


@torch.library.custom_op(
    add_op_namespace_prefix("vit_encoder"),
    mutates_args=(),
    schema=torch.library.infer_schema(reference.vit_encoder, mutates_args=()),
)
def _vit_encoder(*arguments: Any) -> Tensor:
    return run(_FUNCTION, arguments)


@_vit_encoder.register_fake
def _(x, *parameters):
    return x.new_empty(x.shape)


differentiate_reference(_vit_encoder, reference.vit_encoder)
merge_into_images(_vit_encoder, IMAGES)
