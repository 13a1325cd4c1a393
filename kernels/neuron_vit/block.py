"""`vit_block`: a whole pre-norm transformer block in one call."""

import inspect
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _autocast, _dispatch, _nki, _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops
from ._vmap import merge_into_images
from .attention import narrow_integers, narrow_mask
from .block_params import BlockParams
from .encoder_params import EncoderParams

_FUNCTION = "vit_block"

# Why a call has no kernel, and what to do about it.
_SCALE_TOO_FAR = (
    "attention_scale is not from 2**-10 to 2**10 in size, which the kernel needs for a mask"
)
_MOVE_THE_SCALE = "move the factor into the query columns of qkv_weight and qkv_bias"


def vit_block(
    x: Tensor,
    params: BlockParams,
    *,
    rope: Optional[Tuple[Tensor, Tensor]] = None,
    attn_mask: Optional[Tensor] = None,
    kv_lens: Optional[Tensor] = None,
    cu_seqlens: Optional[Tensor] = None,
) -> Tensor:
    """One transformer block: attention and MLP, each behind a norm and added to the stream.

    y = x + scale1 * proj(attention(norm1(x))); out = y + scale2 * fc2(hidden(norm2(y))).
    `BlockParams` says what each of them can be.

    Args:
        x: [batch, tokens, width], bfloat16, float16 or float32 (float64 runs as PyTorch
            operations).
        params: the block's weights, with the dtype and on the device of `x`.
        rope: the tables (cos, sin) of rotary position embeddings, where `params.rope` is not
            None: [positions, head_dim], or [batch, positions, head_dim] for tables of each image;
            the dtype of `x` or float32. With fewer positions than tokens, the first tokens (class
            token, registers) are not rotated. timm's one tensor is `rope.chunk(2, -1)[::-1]`.
        attn_mask: bool (True takes part), or added to the scores: the dtype of `x` or float32;
            broadcastable to [batch, heads, tokens, tokens]. Its finite values may be up to 1e6 in
            size (65504 where `x` is float16); see `scaled_dot_product_attention`.
        kv_lens: integers [batch]; the tokens of image i from kv_lens[i] on are not attended to.
            At least 0; the number of tokens or more hides none.
        cu_seqlens: integers [segments + 1], for a batch of 1: 0, where the other segments begin,
            and the number of tokens, ascending. Tokens attend within their segment.

        At most one of `attn_mask`, `kv_lens` and `cu_seqlens` may be given. The values of the two
        last are checked as in `scaled_dot_product_attention`.

    Returns:
        [batch, tokens, width], dtype of `x`. Statistics, softmax and the residual stream within
        the block are float32. A token that attends to nothing gets zeros from attention. Logits
        and values that are not finite: as of `scaled_dot_product_attention`.

    Under `torch.autocast`, `x` and `params` are converted to its dtype, and the result back to the
    dtype of `x`: the stream is rounded once a block. Weights are converted at every call, so
    convert them once, with params.to(dtype).

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.
    """
    if not isinstance(params, BlockParams):
        remedy = "Make one with BlockParams.from_module(layer)"
        if isinstance(params, EncoderParams):
            remedy = "Call vit_encoder, which runs all blocks of an EncoderParams"
        raise TypeError(
            f"neuron-vit: vit_block: params is a {type(params).__name__}; it must be a "
            f"BlockParams. {remedy}."
        )
    out_dtype = result_dtype(x)
    x, params, rope, attn_mask = under_autocast(x, params, rope, attn_mask)
    check_input(_FUNCTION, x, params)
    cos, sin = rope_tables(_FUNCTION, x, params, rope)
    mask = visibility(_FUNCTION, x, params, attn_mask, kv_lens, cu_seqlens)
    out = ops.vit_block(
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
        params.gate_weight,
        params.gate_bias,
        params.inner_weight,
        params.inner_bias,
        params.q_norm_weight,
        params.q_norm_bias,
        params.k_norm_weight,
        params.k_norm_bias,
        cos,
        sin,
        mask,
        kv_lens,
        cu_seqlens,
        params.inner_norm,
        float(params.inner_eps),
        params.qk_norm,
        float(params.qk_eps),
        params.rope or "half",
    )
    return out if out_dtype is None else out.to(out_dtype)


def result_dtype(x: Any) -> Optional[torch.dtype]:
    """The dtype of the residual stream under autocast, that of x plus what is narrowed; None where
    it is that of x."""
    narrow = _autocast.active_dtype(x)
    return None if narrow is None else torch.promote_types(x.dtype, narrow)


def under_autocast(x: Any, params: Any, rope: Any, attn_mask: Any) -> Tuple[Any, Any, Any, Any]:
    """Under autocast the arguments in its dtype; `params` has a dtype and a method `to`."""
    narrow = _autocast.active_dtype(x)
    if narrow is None or x.dtype not in _autocast.CONVERTED:
        return x, params, rope, attn_mask
    if params.dtype != narrow and params.dtype in _autocast.CONVERTED:
        params = params.to(narrow)
    if isinstance(rope, (tuple, list)):
        rope = tuple(_autocast.bias(table, narrow) for table in rope)
    return _autocast.converted(x, narrow), params, rope, _autocast.bias(attn_mask, narrow)


def check_input(function: str, x: Any, params: BlockParams) -> None:
    """`x` is tokens that blocks with `params` take."""
    _validate.floating_tensor(function, "x", x, "exactly 3")
    if x.shape[2] != params.width:
        raise _validate.fail(
            function,
            "x",
            f"has shape {tuple(x.shape)}",
            f"its last size must be the width of params, {params.width}",
            "Use the params of this model's layer",
        )
    if x.dtype != params.dtype or x.device != params.device:
        raise _validate.fail(
            function,
            "params",
            f"has dtype {params.dtype} on {params.device}, x has {x.dtype} on {x.device}",
            "they must be the same",
            f"Convert once with params.to({str(x.device)!r}, {x.dtype})",
        )


def rope_tables(
    function: str, x: Tensor, params: BlockParams, rope: Any
) -> Tuple[Optional[Tensor], Optional[Tensor]]:
    """(cos, sin), checked; (None, None) for a block that does not rotate, or no position."""
    if rope is None and params.rope is None:
        return None, None
    if rope is None or params.rope is None:
        raise _validate.fail(
            function,
            "rope",
            f"is {'None' if rope is None else 'given'}, params.rope is {params.rope!r}",
            "tables are given if and only if the block rotates queries and keys",
            "Pass (cos, sin), or change it with dataclasses.replace(block_params, rope=None)"
            if rope is None
            else "Leave it out, or say how with dataclasses.replace(block_params, rope='half')",
        )
    if not isinstance(rope, (tuple, list)) or len(rope) != 2:
        raise TypeError(
            f"neuron-vit: {function}: rope is a {type(rope).__name__}; it must be the pair "
            "(cos, sin) of tables. timm's one tensor is rope.chunk(2, -1)[::-1]."
        )
    cos, sin = rope
    for name, table in (("rope[0]", cos), ("rope[1]", sin)):
        _validate.is_tensor(function, name, table)
        if table.dtype != torch.float32:
            _validate.like(function, name, table, "x", x)
        _validate.same_device(function, name, table, "x", x)
        images = table.shape[:-2]
        fits = (
            table.dim() in (2, 3)
            and table.shape == cos.shape
            and table.shape[-1] == params.head_dim
            and table.shape[-2] <= x.shape[1]
        )
        if not fits:
            raise _validate.fail(
                function,
                name,
                f"has shape {tuple(table.shape)}",
                f"it must be (positions, {params.head_dim}) with at most {x.shape[1]} positions, "
                "with or without the batch in front, for cos and sin alike",
                "Give a value for every position and every channel of a head",
            )
        if images and images[0] != x.shape[0]:
            raise _validate.fail(
                function,
                name,
                f"has shape {tuple(table.shape)}, with a batch of {images[0]}",
                f"tables of each image must have the batch of x, {x.shape[0]}",
                "Pass (cos[0], sin[0]) where all images share one table, as transformers hands "
                "it out"
                if images[0] == 1
                else "Give tables for every image, or without the batch for all",
            )
    if cos.dtype != sin.dtype:
        _validate.like(function, "rope[1]", sin, "rope[0]", cos)
    if cos.shape[-2] == 0:
        # No position is rotated, which the kernel does without tables.
        return None, None
    return cos, sin


def visibility(
    function: str,
    x: Tensor,
    params: BlockParams,
    attn_mask: Any,
    kv_lens: Any,
    cu_seqlens: Any,
) -> Optional[Tensor]:
    """Check what restricts which tokens are attended to; the mask with four dimensions, or None."""
    restrictions = {"attn_mask": attn_mask, "kv_lens": kv_lens, "cu_seqlens": cu_seqlens}
    given = [name for name, value in restrictions.items() if value is not None]
    if len(given) > 1:
        raise _validate.fail(
            function,
            given[1],
            f"is given together with {given[0]}",
            "only one of attn_mask, kv_lens and cu_seqlens may be",
            "Put both into the mask",
        )
    batch, tokens, _ = x.shape
    if kv_lens is not None:
        _validate.integers(function, "kv_lens", kv_lens, "x", x)
        if kv_lens.shape != (batch,):
            raise _wrong_bounds(function, x, "kv_lens", kv_lens, f"({batch},)")
        _validate.lengths(function, "kv_lens", kv_lens)
    if cu_seqlens is not None:
        _validate.integers(function, "cu_seqlens", cu_seqlens, "x", x)
        if batch != 1 or cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 2:
            raise _wrong_bounds(
                function, x, "cu_seqlens", cu_seqlens, "(segments + 1,), for a batch of 1"
            )
        _validate.bounds(function, "cu_seqlens", cu_seqlens, tokens)
    if attn_mask is None:
        return None
    _validate.mask(function, "attn_mask", attn_mask, "x", x)
    full = (batch, params.num_heads, tokens, tokens)
    fits = attn_mask.dim() <= 4 and all(
        found in (1, wanted) for found, wanted in zip(attn_mask.shape[::-1], full[::-1])
    )
    if not fits:
        raise _validate.fail(
            function,
            "attn_mask",
            f"has shape {tuple(attn_mask.shape)}",
            f"it must broadcast to {full}",
            "The layout is [batch, heads, queries, keys]",
        )
    mask = attn_mask[(None,) * (4 - attn_mask.dim())]
    return mask.expand(*mask.shape[:3], tokens)


def _wrong_bounds(function: str, x: Tensor, name: str, value: Tensor, allowed: str) -> ValueError:
    return _validate.fail(
        function,
        name,
        f"has shape {tuple(value.shape)}, x {tuple(x.shape)}",
        f"it must be {allowed}",
        "Give the tokens of each image, or the bounds of each segment",
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
    gate_weight: Optional[Tensor] = None,
    gate_bias: Optional[Tensor] = None,
    inner_weight: Optional[Tensor] = None,
    inner_bias: Optional[Tensor] = None,
    q_norm_weight: Optional[Tensor] = None,
    q_norm_bias: Optional[Tensor] = None,
    k_norm_weight: Optional[Tensor] = None,
    k_norm_bias: Optional[Tensor] = None,
    cos: Optional[Tensor] = None,
    sin: Optional[Tensor] = None,
    mask: Optional[Tensor] = None,
    kv_lens: Optional[Tensor] = None,
    cu_seqlens: Optional[Tensor] = None,
    inner_norm: Optional[str] = None,
    inner_eps: float = 0.0,
    qk_norm: Optional[str] = None,
    qk_eps: float = 0.0,
    rope: str = "half",
) -> Tensor:
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
        gate_weight,
        gate_bias,
        inner_weight,
        inner_bias,
        q_norm_weight,
        q_norm_bias,
        k_norm_weight,
        k_norm_bias,
        cos,
        sin,
        mask,
        kv_lens,
        cu_seqlens,
        inner_norm,
        inner_eps,
        qk_norm,
        qk_eps,
        rope,
    )
    return run("vit_block", arguments)


def run(name: str, arguments: Sequence[Any]) -> Tensor:
    """Run the kernel `name`, "vit_block" or "vit_encoder", or its reference, on the arguments of
    the operator."""
    function = getattr(reference, name)
    call = inspect.signature(function).bind(*arguments)
    call.apply_defaults()
    given = call.arguments
    given["mask"] = narrow_mask(given["mask"])
    biased = any(given[bias] is not None for bias in ("mask", "kv_lens", "cu_seqlens"))
    if biased and not _nki.limits().bias_scale_fits(given["attention_scale"]):
        return _dispatch.run_without_kernel(
            name, function, call.args, f"{name} {_SCALE_TOO_FAR}", _MOVE_THE_SCALE
        )
    return _dispatch.run(name, call.args, _sizes(given, biased), _for_kernel)


def _sizes(given: Dict[str, Any], biased: bool) -> Dict[str, int]:
    """What the kernel's limits are checked against. Weights may have an axis of layers in front."""
    batch, tokens, width = given["x"].shape
    heads, mask = given["num_heads"], given["mask"]
    head_dim = given["proj_weight"].shape[-2] // heads
    qk_norm = 0
    if given["qk_norm"] is not None:
        qk_norm = 2 if given["q_norm_weight"].shape[-1] > head_dim else 1
    return {
        "batch": batch,
        "tokens": tokens,
        "width": width,
        "heads": heads,
        "head_dim": head_dim,
        "hidden": given["fc1_weight"].shape[-1],
        "gated": given["gate_weight"] is not None,
        "inner_norm": given["inner_norm"] is not None,
        "qk_norm": qk_norm,
        "rope": 0 if given["cos"] is None else given["cos"].dim() - 1,
        "bias_heads": int(biased) if mask is None else mask.shape[1],
    }


def _for_kernel(arguments: Sequence[Any]) -> List[Any]:
    """The launch arguments: dense tensors, a mask as bytes or biases, integers as int32."""
    return [_for_launch(argument) for argument in arguments]


def _for_launch(argument: Any) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    if argument.dtype == torch.bool:
        return argument.contiguous().view(torch.uint8)
    if argument.dtype == torch.int64:
        argument = narrow_integers(argument)
    return argument.contiguous()


@_vit_block.register_fake
def _(x, *parameters):
    return x.new_empty(x.shape)


differentiate_reference(_vit_block, reference.vit_block)

IMAGES = {"x": 3, "cos": 3, "sin": 3, "mask": 4, "kv_lens": 1}
merge_into_images(_vit_block, IMAGES)
