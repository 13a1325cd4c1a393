"""`scaled_dot_product_attention`, the twin of torch's function, and its packed variant."""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

from . import _autocast, _dispatch, _nki, _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops
from ._vmap import merge_into_images


class Names(NamedTuple):
    """How messages call the public function and those of its arguments that have several names."""

    function: str = "scaled_dot_product_attention"
    attn_mask: str = "attn_mask"
    dropout_p: str = "dropout_p"
    scale: str = "scale"
    cu_seqlens_q: str = "cu_seqlens_q"
    cu_seqlens_k: str = "cu_seqlens_k"


_NAMES = Names()

# Why a call has no kernel, and what to do about it.
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
_SCALE_TOO_FAR = (
    "attention scale is not from 2**-10 to 2**10 in size, which the kernel needs for a mask",
    "move the factor into query, for example query * scale with scale=1.0",
)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    *,
    kv_lens: Optional[Tensor] = None,
) -> Tensor:
    """softmax(query key^T * scale + bias) value, the twin of torch's function of this name.

    The NKI kernel covers attention without causality or dropout; a call with one of these runs as
    PyTorch's function, with a `NeuronVitFallbackWarning` where a kernel would have run.

    Args:
        query: [batch, heads, queries, head_dim], bfloat16, float16 or float32 (float64 runs as
            PyTorch operations). Any strides: transposed and sliced tensors are read in place.
            Without the heads, or with more leading dimensions, as in torch.
        key, value: [batch, heads, keys, head_dim], like `query`; leading dimensions broadcast.
        attn_mask: bool (True takes part), or added to the scores: the dtype of `query` or float32;
            broadcastable to [batch, heads, queries, keys].
        dropout_p: probability of dropping a weight.
        is_causal: query i attends to keys 0..i only.
        scale: factor on the scores; None is head_dim ** -0.5.
        enable_gqa: `key` and `value` may have fewer heads than `query`, whose number must be a
            multiple of theirs; consecutive heads of `query` share one of them.
        kv_lens: integers [batch]: image i attends to its first kv_lens[i] keys only; at least 0,
            and the number of keys or more is all of them. What `key` and `value` hold behind them
            is not used, but must be finite. Excludes `attn_mask`.

    Returns:
        [batch, heads, queries, head_dim], dtype of `query`. It is a view on a dense
        [batch, queries, heads, head_dim] tensor, so that `out.transpose(1, 2)` is contiguous.
        Scores and softmax are float32. A query without a key gets zeros. A key counts as masked
        for it where the bias is -2**21 or less (-30720 in float16), so a query whose biases all
        are gets zeros also where torch, for finite ones, would take a mean.

    The kernel is for logits (scores after `scale`, before a mask) up to 1e6 in size. Far beyond, a
    masked key may count, and bfloat16 may give NaN; neither is noticed. A query that is not finite
    makes its position NaN also in other heads of its image, such a key all positions; never those
    of another image. On a CPU without the simulator, values that are not finite come out as from
    `torch.nn.functional`, which for fewer than 16 keys gives finite values to a NaN query.

    Of an additive `attn_mask`, minus infinity or any value below the one above masks; other values
    may be up to 1e6 in size, 65504 for a float16 query. Larger positive ones may give NaN, which is
    not noticed.

    The values of `kv_lens` are checked for tensors on the CPU in code that is neither compiled,
    traced nor transformed. Elsewhere they are not read, which would wait for the device: a negative
    length then hides all keys, as 0 does.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.
    """
    return attend(
        _NAMES, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, kv_lens
    )


def attend(
    names: Names,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
    enable_gqa: bool,
    kv_lens: Optional[Tensor] = None,
) -> Tensor:
    """`scaled_dot_product_attention` for the public function that `names` describes."""
    attn_mask = _autocast.bias(attn_mask, _autocast.active_dtype(query))
    query, key, value = _autocast.narrowed(query, key, value)
    _validate.flag(names.function, "is_causal", is_causal)
    _validate.flag(names.function, "enable_gqa", enable_gqa)
    _validate.probability(names.function, names.dropout_p, dropout_p)
    scale = _check(names, query, key, value, scale, enable_gqa)
    if attn_mask is not None:
        _check_mask(names, attn_mask, query, key, is_causal)
    if kv_lens is not None:
        _check_lengths(names.function, kv_lens, query, attn_mask, dropout_p, is_causal)
    leading = tuple(query.shape[:-2])
    if dropout_p > 0.0:
        noted = ops.note_dropout(query)
        return F.scaled_dot_product_attention(
            noted, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    heads = leading if not enable_gqa else (*leading[:-1], key.shape[-3])
    q = _four_dimensional(query, leading)
    k, v = (_four_dimensional(tensor, heads) for tensor in (key, value))
    mask = attn_mask
    if mask is not None:
        # A mask may also broadcast along the keys, which the leading sizes do not say.
        mask = mask.expand(*mask.shape[:-1], key.shape[-2])
        if mask.dim() < 2:
            mask = mask[None]
        mask = _four_dimensional(mask, leading)
    if is_causal or query.shape[-1] != value.shape[-1]:
        out = ops.plain_attention(q, k, v, mask, kv_lens, is_causal, scale)
    else:
        out = ops.attention(q, k, v, scale, mask, kv_lens, None, None)
    out = out.transpose(1, 2)
    if len(leading) == 2:
        return out
    return out.reshape(*leading, query.shape[-2], value.shape[-1])


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    scale: Optional[float],
    names: Names,
) -> Tensor:
    """Attention within the segments of packed sequences, for the function that `names` describes.

    query: [1, heads, tokens, head_dim]; key, value: [1, heads or fewer, tokens, head_dim];
    cu_seqlens_q, cu_seqlens_k: integers [segments + 1]. Returns [1, heads, tokens, head_dim].
    """
    query, key, value = _autocast.narrowed(query, key, value)
    scale = _check(names, query, key, value, scale, True)
    function = names.function
    for name, tensor in ((names.cu_seqlens_q, cu_seqlens_q), (names.cu_seqlens_k, cu_seqlens_k)):
        _validate.integers(function, name, tensor, "query", query)
        if tensor.dim() != 1 or tensor.shape[0] < 2 or tensor.shape != cu_seqlens_q.shape:
            raise _validate.fail(
                function,
                name,
                f"has shape {tuple(tensor.shape)}",
                "it must be (segments + 1,), for queries and keys alike",
                "It holds where each segment begins, and the number of tokens",
            )
    _validate.bounds(function, names.cu_seqlens_q, cu_seqlens_q, query.shape[-2])
    _validate.bounds(function, names.cu_seqlens_k, cu_seqlens_k, key.shape[-2])
    if query.dim() != 4 or query.shape[0] != 1 or value.shape[-1] != query.shape[-1]:
        raise _validate.fail(
            function,
            "query",
            f"has shape {tuple(query.shape)}, value {tuple(value.shape)}",
            "packed sequences have a batch of 1, and one head size",
            "Put the tokens of all sequences behind one another",
        )
    out = ops.attention(query, key, value, scale, None, None, cu_seqlens_q, cu_seqlens_k)
    return out.transpose(1, 2)


def _check(names: Names, query: Any, key: Any, value: Any, scale: Any, grouped: bool) -> float:
    """Raise where an argument does not fit; return the factor on the scores."""
    function = names.function
    _validate.floating_tensor(function, "query", query, "at least 2")
    for name, tensor in (("key", key), ("value", value)):
        _validate.like(function, name, tensor, "query", query)
        if tensor.dim() != query.dim():
            raise _validate.fail(
                function,
                name,
                f"has shape {tuple(tensor.shape)}",
                f"it must have as many dimensions as query, whose shape is {tuple(query.shape)}",
                "Add or remove leading dimensions",
            )
    if query.shape[-1] == 0:
        raise _validate.fail(
            function,
            "query",
            f"has shape {tuple(query.shape)}",
            "its last size, that of a head, must be at least 1",
            "The layout is [batch, heads, tokens, head_dim]",
        )
    if key.shape[-1] != query.shape[-1]:
        raise _validate.fail(
            function,
            "key",
            f"has head size {key.shape[-1]}",
            f"it must have that of query, {query.shape[-1]}",
            "The layout is [batch, heads, tokens, head_dim]",
        )
    if value.shape[-2] != key.shape[-2]:
        raise _validate.fail(
            function,
            "value",
            f"has {value.shape[-2]} tokens",
            f"it must have those of key, {key.shape[-2]}",
            "The layout is [batch, heads, tokens, head_dim]",
        )
    leading = query.shape[:-2]
    if grouped:
        _check_groups(function, query, key, value)
        leading = leading[:-1]
    for name, tensor in (("key", key), ("value", value)):
        for ours, found in zip(leading, tensor.shape[:-2]):
            if found != ours and found != 1:
                raise _validate.fail(
                    function,
                    name,
                    f"has leading dimensions {tuple(tensor.shape[:-2])}",
                    f"they must be those of query, {tuple(query.shape[:-2])}, or 1",
                    "For grouped heads pass enable_gqa=True",
                )
    if scale is None:
        return float(query.shape[-1] ** -0.5)
    _validate.score_factor(function, names.scale, scale)
    return float(scale)


def _check_groups(function: str, query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.dim() < 3:
        raise _validate.fail(
            function,
            "query",
            f"has shape {tuple(query.shape)}",
            "with grouped heads it must have at least 3 dimensions",
            "The layout is [batch, heads, tokens, head_dim]",
        )
    heads, groups = query.shape[-3], key.shape[-3]
    if value.shape[-3] != groups or groups == 0 or heads % groups:
        raise _validate.fail(
            function,
            "key",
            f"has {groups} heads and value {value.shape[-3]}",
            f"they must have the same number, which divides that of query, {heads}",
            "The layout is [batch, heads, tokens, head_dim]",
        )


def _check_lengths(
    function: str, kv_lens: Any, query: Tensor, attn_mask: Any, dropout_p: float, is_causal: bool
) -> None:
    _validate.integers(function, "kv_lens", kv_lens, "query", query)
    if query.dim() != 4 or tuple(kv_lens.shape) != (query.shape[0],):
        raise _validate.fail(
            function,
            "kv_lens",
            f"has shape {tuple(kv_lens.shape)}, query {tuple(query.shape)}",
            "it must be (batch,), and query [batch, heads, queries, head_dim]",
            "Give the number of keys of each image",
        )
    _validate.lengths(function, "kv_lens", kv_lens)
    if attn_mask is not None or is_causal or dropout_p > 0.0:
        raise _validate.fail(
            function,
            "kv_lens",
            "is given together with attn_mask, is_causal or dropout_p",
            "only one of them may be",
            "Put the lengths into the mask",
        )


def _check_mask(names: Names, attn_mask: Any, query: Tensor, key: Tensor, is_causal: bool) -> None:
    function, name = names.function, names.attn_mask
    _validate.mask(function, name, attn_mask, "query", query)
    if is_causal:
        raise _validate.fail(
            function,
            name,
            "is given together with is_causal=True",
            "only one of them may be",
            "Put the causal pattern into the mask",
        )
    full = (*query.shape[:-1], key.shape[-2])
    fits = attn_mask.dim() <= len(full) and all(
        found in (1, wanted) for found, wanted in zip(attn_mask.shape[::-1], full[::-1])
    )
    if not fits:
        raise _validate.fail(
            function,
            name,
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
    """The launch arguments: strided operands as one-dimensional windows with their views, a mask
    as dense bytes or biases, lengths as int32."""
    q, k, v, scale, _, _, _, mask, *integers = arguments
    operands = [_window(tensor) for tensor in (q, k, v)]
    if mask is not None:
        mask = mask.contiguous()
        if mask.dtype == torch.bool:
            mask = mask.view(torch.uint8)
    return [
        *(window for window, _ in operands),
        scale,
        *(view for _, view in operands),
        mask,
        *(None if item is None else narrow_integers(item).contiguous() for item in integers),
    ]


def narrow_integers(values: Tensor) -> Tensor:
    """Lengths or bounds as int32; those beyond its range, further than any position, as its end."""
    ends = torch.iinfo(torch.int32)
    return values.clamp(ends.min, ends.max).to(torch.int32)


def narrow_mask(mask: Optional[Tensor]) -> Optional[Tensor]:
    """A mask [batch, heads, queries, keys] with a size of 1 where it only repeats itself."""
    if mask is not None:
        for dimension in range(3):
            if mask.stride(dimension) == 0:
                mask = mask.narrow(dimension, 0, 1)
    return mask


def _window(tensor: Tensor) -> Tuple[Tensor, Optional[Tuple[Tuple[int, ...], Tuple[int, ...]]]]:
    if tensor.is_contiguous():
        return tensor, None
    shape = tuple(tensor.shape)
    # The stride of a dimension of size 1 is arbitrary; a fixed one keeps the compile key stable.
    strides = tuple(stride if size > 1 else 1 for size, stride in zip(shape, tensor.stride()))
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    return tensor.as_strided((span,), (1,), tensor.storage_offset()), (shape, strides)


@torch.library.custom_op(add_op_namespace_prefix("attention"), mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    mask: Optional[Tensor],
    kv_lens: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor],
) -> Tensor:
    batch, heads, q_len, head_dim = q.shape
    mask = narrow_mask(mask)
    biased = mask is not None or kv_lens is not None or cu_seqlens_q is not None
    arguments = (q, k, v, scale, None, None, None, mask, kv_lens, cu_seqlens_q, cu_seqlens_k)
    if biased and not _nki.limits().bias_scale_fits(scale):
        return _dispatch.run_without_kernel(
            "attention", reference.attention, arguments, *_SCALE_TOO_FAR
        )
    shape = {
        "batch": batch,
        "heads": heads,
        "q_len": q_len,
        "k_len": k.shape[2],
        "head_dim": head_dim,
        "bias_heads": int(biased) if mask is None else mask.shape[1],
    }
    return _dispatch.run("attention", arguments, shape, _windows)


@torch.library.custom_op(add_op_namespace_prefix("plain_attention"), mutates_args=())
def _plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor],
    kv_lens: Optional[Tensor],
    is_causal: bool,
    scale: float,
) -> Tensor:
    why = _NO_CAUSAL if is_causal else _ONE_HEAD_SIZE
    arguments = (q, k, v, mask, kv_lens, is_causal, scale)
    return _dispatch.run_without_kernel("attention", _in_torch, arguments, *why)


@torch.library.custom_op(add_op_namespace_prefix("note_dropout"), mutates_args=())
def _note_dropout(query: Tensor) -> Tensor:
    """A copy of `query`, on the way to PyTorch's dropout, which draws from its own generator.

    An operator, so that the note is made whenever compiled code runs; a copy, because an operator
    may not return its input, and without a result a compiler would remove it.
    """
    return _dispatch.run_without_kernel("attention", _copy, (query,), *_NO_DROPOUT)


def _copy(query: Tensor) -> Tensor:
    return query.clone()


def _in_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Optional[Tensor],
    kv_lens: Optional[Tensor],
    is_causal: bool,
    scale: float,
) -> Tensor:
    if not is_causal:
        return reference.attention(q, k, v, scale, None, None, None, mask, kv_lens)
    out = F.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scale, enable_gqa=bool(q.shape[1] != k.shape[1])
    )
    return out.transpose(1, 2).contiguous()


@_attention.register_fake
def _(q, k, v, scale, mask, kv_lens, cu_seqlens_q, cu_seqlens_k):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3]))


@_note_dropout.register_fake
def _(query):
    return torch.empty_like(query)


@_plain_attention.register_fake
def _(q, k, v, mask, kv_lens, is_causal, scale):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3]))


def _reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    mask: Optional[Tensor],
    kv_lens: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor],
) -> Tensor:
    views = (None, None, None)
    return reference.attention(q, k, v, scale, *views, mask, kv_lens, cu_seqlens_q, cu_seqlens_k)


differentiate_reference(_attention, _reference)
differentiate_reference(_plain_attention, _in_torch)
differentiate_reference(_note_dropout, _copy)

for _operator in (_attention, _plain_attention):
    merge_into_images(_operator, {"q": 4, "k": 4, "v": 4, "mask": 4, "kv_lens": 1})
merge_into_images(_note_dropout, {})
