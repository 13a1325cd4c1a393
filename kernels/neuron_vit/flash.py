"""Attention with the names, arguments and layouts of the flash-attn package.

Tokens come before heads here: [batch, tokens, heads, head_dim]. Key and value may have fewer heads
than the query, whose number must be a multiple of theirs. The functions are the kernel of
`scaled_dot_product_attention`, and are documented by it where they say no more. They live in this
namespace because transformers would take them for a sign that the whole package is flash-attn.
"""

from typing import Any, Optional

from torch import Tensor

from . import _autocast, _validate
from .attention import Names, attend, packed_attention
from .errors import NeuronVitUnsupported

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
) -> Tensor:
    """softmax(q k^T * softmax_scale) v.

    Args:
        q: [batch, queries, heads, head_dim]; k, v: [batch, keys, heads or fewer, head_dim].
        dropout_p: probability of dropping a weight; runs as PyTorch operations unless 0.
        softmax_scale: factor on the scores; None is head_dim ** -0.5.
        causal: query i attends to keys 0..i only; runs as PyTorch operations, and needs as many
            queries as keys.

    Returns:
        [batch, queries, heads, head_dim], contiguous, dtype of q.

    Raises:
        ValueError, TypeError, NeuronVitUnsupported: as `scaled_dot_product_attention`.
    """
    q, k, v = _checked("flash_attn_func", q, k, v, "[batch, tokens, heads, head_dim]")
    _validate.flag("flash_attn_func", "causal", causal)
    if causal and q.shape[1] != k.shape[1]:
        raise NeuronVitUnsupported(
            f"neuron-vit: flash_attn_func: causal=True with {q.shape[1]} queries and {k.shape[1]} "
            "keys has no implementation here. Call scaled_dot_product_attention with a mask."
        )
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    names = Names("flash_attn_func", scale="softmax_scale")
    out = attend(names, q, k, v, None, dropout_p, causal, softmax_scale, enable_gqa=True)
    return out.transpose(1, 2).contiguous()


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
) -> Tensor:
    """Attention within each of the sequences that are packed behind one another.

    Segments are masked and not skipped: the time is that of one sequence of all tokens, whatever
    the segments, and the compiled kernel depends on their number alone.

    Args:
        q: [tokens, heads, head_dim]; k, v: [tokens of the keys, heads or fewer, head_dim].
        cu_seqlens_q, cu_seqlens_k: integers [sequences + 1], on the device of q: 0, where the
            other sequences begin, and the number of tokens. Not decreasing, which is checked as
            `kv_lens` of `scaled_dot_product_attention` is: a position belongs to the sequence
            whose number is how many of these it has reached, sorted or not. A query whose
            sequence has no keys gets zeros.
        max_seqlen_q, max_seqlen_k: not used.
        dropout_p, causal: must be 0 and False.
        softmax_scale: factor on the scores; None is head_dim ** -0.5.

    Returns:
        [tokens, heads, head_dim], contiguous, dtype of q.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: dropout or causality is asked for, or NEURON_VIT_REQUIRE_NKI=1 and
            no kernel covers the call.
    """
    function = "flash_attn_varlen_func"
    _validate.flag(function, "causal", causal)
    _validate.probability(function, "dropout_p", dropout_p)
    q, k, v = _checked(function, q, k, v, "[tokens, heads, head_dim]")
    if causal or dropout_p > 0.0:
        raise NeuronVitUnsupported(
            "neuron-vit: flash_attn_varlen_func: causal attention and dropout have no "
            "implementation for packed sequences. Pass causal=False and dropout_p=0.0, or call "
            "scaled_dot_product_attention for each sequence."
        )
    q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
    names = Names(function, scale="softmax_scale")
    out = packed_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, names)
    return out[0].transpose(0, 1).contiguous()


def _checked(function: str, q: Any, k: Any, v: Any, layout: str) -> Any:
    """(q, k, v), under autocast in its dtype; all that could not fit is refused in this layout."""
    q, k, v = _autocast.narrowed(q, k, v)
    _validate.floating_tensor(function, "q", q, f"exactly {layout.count(',') + 1}")
    for name, tensor in (("k", k), ("v", v)):
        _validate.like(function, name, tensor, "q", q)
        fits = (
            tensor.dim() == q.dim()
            and tensor.shape[:-3] == q.shape[:-3]
            and tensor.shape[-3] == k.shape[-3]
            and tensor.shape[-2] == k.shape[-2]
            and tensor.shape[-2] > 0
            and q.shape[-2] % tensor.shape[-2] == 0
            and tensor.shape[-1] == q.shape[-1]
        )
        if not fits:
            raise _validate.fail(
                function,
                name,
                f"has shape {tuple(tensor.shape)}, q {tuple(q.shape)}, k {tuple(k.shape)}",
                f"the layout is {layout}; head_dim must be that of q, the tokens and heads of v "
                "those of k, and their number of heads a divisor of that of q",
                "Check the order of the dimensions",
            )
    if q.shape[-1] == 0:
        raise _validate.fail(
            function, "q", f"has shape {tuple(q.shape)}", "heads must not be empty", "Check q"
        )
    return q, k, v
