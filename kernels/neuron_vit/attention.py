"""`scaled_dot_product_attention`, the twin of the function in `torch.nn.functional`."""

from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

from . import _dispatch, _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops

_FUNCTION = "scaled_dot_product_attention"

# Why a call has no kernel, and what to do about it.
_NO_MASK = (
    "attention attn_mask is given, the kernel takes no mask",
    "leave the mask out where every token attends to every token",
)
_NO_CAUSAL = (
    "attention is_causal=True, the kernel is bidirectional",
    "use torch.nn.functional.scaled_dot_product_attention for causal layers",
)
_NO_DROPOUT = (
    "attention dropout_p > 0, the kernel has no dropout",
    "pass dropout_p=0.0, as in evaluation",
)
_ONE_HEAD_SIZE = (
    "attention value has another head size than query and key",
    "use torch.nn.functional.scaled_dot_product_attention for this layer",
)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
) -> Tensor:
    """softmax(query key^T * scale) value, as `torch.nn.functional.scaled_dot_product_attention`.

    The NKI kernel covers attention without mask, causality or dropout; a call with one of these
    runs as PyTorch's function, with a `NeuronVitFallbackWarning` where a kernel would have run.

    Args:
        query: [batch, heads, queries, head_dim], bfloat16, float16 or float32 (float64 runs as
            PyTorch operations). Any strides: transposed and sliced tensors are read in place.
            Without the heads, or with more leading dimensions, as in torch.
        key, value: [batch, heads, keys, head_dim], like `query`; leading dimensions broadcast.
        attn_mask: bool (True takes part) or the dtype of `query` (added to the scores),
            broadcastable to [batch, heads, queries, keys].
        dropout_p: probability of dropping a weight.
        is_causal: query i attends to keys 0..i only.
        scale: factor on the scores; None is head_dim ** -0.5.

    Returns:
        [batch, heads, queries, head_dim], dtype of `query`. It is a view on a dense
        [batch, queries, heads, head_dim] tensor, so that `out.transpose(1, 2)` is contiguous.
        Scores and softmax are float32.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.
    """
    leading = _check(query, key, value, attn_mask, dropout_p, is_causal)
    if scale is None:
        scale = query.shape[-1] ** -0.5
    if dropout_p > 0.0:
        noted = ops.note_dropout(query)
        return F.scaled_dot_product_attention(
            noted, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )
    q, k, v = (_four_dimensional(tensor, leading) for tensor in (query, key, value))
    if attn_mask is not None or is_causal or query.shape[-1] != value.shape[-1]:
        mask = attn_mask
        if mask is not None and mask.dim() > 2:
            mask = _four_dimensional(mask, leading)
        out = ops.masked_attention(q, k, v, mask, is_causal, float(scale))
    else:
        out = ops.attention(q, k, v, float(scale))
    out = out.transpose(1, 2)
    if len(leading) == 2:
        return out
    return out.reshape(*leading, query.shape[-2], value.shape[-1])


def _check(
    query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool
) -> Tuple[int, ...]:
    """Raise where an argument does not fit; return the common leading dimensions."""
    _validate.floating_tensor(_FUNCTION, "query", query, "at least 2")
    for name, tensor in (("key", key), ("value", value)):
        _validate.like(_FUNCTION, name, tensor, "query", query)
        if tensor.dim() != query.dim():
            raise _validate.fail(
                _FUNCTION,
                name,
                f"has shape {tuple(tensor.shape)}",
                f"it must have as many dimensions as query, whose shape is {tuple(query.shape)}",
                "Add or remove leading dimensions",
            )
    if key.shape[-1] != query.shape[-1]:
        raise _validate.fail(
            _FUNCTION,
            "key",
            f"has head size {key.shape[-1]}",
            f"it must have that of query, {query.shape[-1]}",
            "The layout is [batch, heads, tokens, head_dim]",
        )
    if value.shape[-2] != key.shape[-2]:
        raise _validate.fail(
            _FUNCTION,
            "value",
            f"has {value.shape[-2]} tokens",
            f"it must have those of key, {key.shape[-2]}",
            "The layout is [batch, heads, tokens, head_dim]",
        )
    leading = query.shape[:-2]
    for name, tensor in (("key", key), ("value", value)):
        for ours, found in zip(leading, tensor.shape[:-2]):
            if found != ours and found != 1:
                raise _validate.fail(
                    _FUNCTION,
                    name,
                    f"has leading dimensions {tuple(tensor.shape[:-2])}",
                    f"they must be those of query, {tuple(leading)}, or 1",
                    "For grouped heads repeat key and value with repeat_interleave",
                )
    if not 0.0 <= dropout_p <= 1.0:
        raise _validate.fail(
            _FUNCTION, "dropout_p", f"is {dropout_p}", "it must be from 0 to 1", "Use 0.0"
        )
    if attn_mask is not None:
        _check_mask(attn_mask, query, key, is_causal)
    return tuple(leading)


def _check_mask(attn_mask: Any, query: Tensor, key: Tensor, is_causal: bool) -> None:
    _validate.is_tensor(_FUNCTION, "attn_mask", attn_mask)
    if is_causal:
        raise _validate.fail(
            _FUNCTION,
            "attn_mask",
            "is given together with is_causal=True",
            "only one of them may be",
            "Put the causal pattern into the mask",
        )
    if attn_mask.dtype != torch.bool:
        _validate.like(_FUNCTION, "attn_mask", attn_mask, "query", query)
    elif attn_mask.device != query.device:
        raise _validate.fail(
            _FUNCTION,
            "attn_mask",
            f"is on {attn_mask.device}, query is on {query.device}",
            "they must be on the same device",
            f"Move one, for example with attn_mask.to({str(query.device)!r})",
        )
    full = (*query.shape[:-1], key.shape[-2])
    fits = attn_mask.dim() <= len(full) and all(
        found in (1, wanted) for found, wanted in zip(attn_mask.shape[::-1], full[::-1])
    )
    if not fits:
        raise _validate.fail(
            _FUNCTION,
            "attn_mask",
            f"has shape {tuple(attn_mask.shape)}",
            f"it must broadcast to {tuple(full)}",
            "The layout is [batch, heads, queries, keys]",
        )


def _four_dimensional(tensor: Tensor, leading: Tuple[int, ...]) -> Tensor:
    """[batch, heads, a, b] from [*leading, a, b], where sizes of 1 stand for those of `leading`.

    Fewer than two leading dimensions get ones in front, more are merged into the batch.
    """
    missing = len(leading) + 2 - tensor.dim()
    tensor = tensor[(None,) * missing].expand(*leading, *tensor.shape[-2:])
    if len(leading) > 2:
        return tensor.flatten(0, len(leading) - 2)
    return tensor[(None,) * (2 - len(leading))]


def _windows(arguments: Sequence[Any]) -> List[Any]:
    """The launch arguments: strided operands as one-dimensional windows with their views."""
    q, k, v, scale = arguments[:4]
    operands = [_window(tensor) for tensor in (q, k, v)]
    return [*(window for window, _ in operands), scale, *(view for _, view in operands)]


def _window(tensor: Tensor) -> Tuple[Tensor, Optional[Tuple[Tuple[int, ...], Tuple[int, ...]]]]:
    if tensor.is_contiguous():
        return tensor, None
    shape = tuple(tensor.shape)
    # The stride of a dimension of size 1 is arbitrary; a fixed one keeps the compile key stable.
    strides = tuple(stride if size > 1 else 1 for size, stride in zip(shape, tensor.stride()))
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    return tensor.as_strided((span,), (1,), tensor.storage_offset()), (shape, strides)


@torch.library.custom_op(add_op_namespace_prefix("attention"), mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    batch, heads, q_len, head_dim = q.shape
    shape = {
        "batch": batch,
        "heads": heads,
        "q_len": q_len,
        "k_len": k.shape[2],
        "head_dim": head_dim,
    }
    return _dispatch.run("attention", (q, k, v, scale, None, None, None), shape, _windows)


@torch.library.custom_op(add_op_namespace_prefix("masked_attention"), mutates_args=())
def _masked_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: float
) -> Tensor:
    if attn_mask is not None:
        why = _NO_MASK
    else:
        why = _NO_CAUSAL if is_causal else _ONE_HEAD_SIZE
    arguments = (q, k, v, attn_mask, is_causal, scale)
    return _dispatch.run_without_kernel("attention", _with_mask, arguments, *why)


@torch.library.custom_op(add_op_namespace_prefix("note_dropout"), mutates_args=())
def _note_dropout(query: Tensor) -> Tensor:
    """A copy of `query`, on the way to PyTorch's dropout, which draws from its own generator.

    An operator, so that the note is made whenever compiled code runs; a copy, because an operator
    may not return its input, and without a result a compiler would remove it.
    """
    return _dispatch.run_without_kernel("attention", _copy, (query,), *_NO_DROPOUT)


def _copy(query: Tensor) -> Tensor:
    return query.clone()


def _with_mask(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor], is_causal: bool, scale: float
) -> Tensor:
    out = F.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal, scale=scale)
    return out.transpose(1, 2).contiguous()


@_attention.register_fake
def _(q, k, v, scale):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3]))


@_note_dropout.register_fake
def _(query):
    return torch.empty_like(query)


@_masked_attention.register_fake
def _(q, k, v, attn_mask, is_causal, scale):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3]))


differentiate_reference(
    _attention, lambda q, k, v, scale: reference.attention(q, k, v, scale, None, None, None)
)
differentiate_reference(_masked_attention, _with_mask)
differentiate_reference(_note_dropout, _copy)
