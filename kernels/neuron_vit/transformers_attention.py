"""The attention function that Hugging Face transformers calls.

Three ways to it: `attn_implementation="org/neuron-vit"` (transformers loads the package from the
Hub and finds `flash_attn_forward` beside `supports_flash_attn`), the name that
`register_with_transformers` registers, or a direct call.
"""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from . import _validate
from .attention import Names, attend, packed_attention
from .errors import NeuronVitUnsupported

# Transformers looks for this name and not at its value: beside it, `flash_attn_forward` is called
# with [batch, heads, tokens, head_dim] and the mask of PyTorch's attention.
supports_flash_attn = True

_FUNCTION = "flash_attn_forward"
_NAMES = Names(_FUNCTION, "attention_mask", "dropout", "scaling", "cu_seq_lens_q", "cu_seq_lens_k")

# Arguments that change the result and that no path here implements.
_REFUSED = (
    "position_bias",
    "s_aux",
    "sliding_window",
    "softcap",
)


def flash_attn_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional[Tensor],
    scaling: Optional[float] = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> Tuple[Tensor, None]:
    """Attention by the contract of transformers' AttentionInterface.

    Args:
        module: the calling attention layer; its `is_causal` counts when the keyword of that name
            is not given, and is True when the layer has none.
        query, key, value: [batch, heads, tokens, head_dim], any strides.
            Key and value may have fewer heads, as with `enable_gqa`.
        attention_mask: as `attn_mask` of `scaled_dot_product_attention`, or None.
        scaling: factor on the scores; None is head_dim ** -0.5.
        dropout: probability of dropping a weight.
        **kwargs: `is_causal`; `cu_seq_lens_q` and `cu_seq_lens_k` of packed sequences, which come
            with transformers' name for flash attention, "org/neuron-vit:flash_attn_forward", and
            go without a mask; and what other attention functions take. An argument that would
            change the result is refused, others are ignored.

    Returns:
        The output [batch, tokens, heads, head_dim], contiguous, and None for the weights.

    Raises:
        NeuronVitUnsupported: the layer is causal without a mask that says so, or an argument in
            `kwargs` has no implementation here.
    """
    for name in _REFUSED:
        if kwargs.get(name) is not None:
            raise NeuronVitUnsupported(
                f"neuron-vit: flash_attn_forward: {name} is given, which has no implementation "
                'here. Load this model with attn_implementation="sdpa".'
            )
    _validate.is_tensor(_FUNCTION, "query", query)
    _validate.is_tensor(_FUNCTION, "key", key)
    if query.dim() != 4:
        raise ValueError(
            f"neuron-vit: flash_attn_forward: query has shape {tuple(query.shape)}; it must have 4 "
            "dimensions, [batch, heads, tokens, head_dim]"
        )
    is_causal = kwargs.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if is_causal and attention_mask is None and query.shape[2] > 1:
        raise NeuronVitUnsupported(
            f"neuron-vit: flash_attn_forward: {type(module).__name__} asks for causal attention, "
            "the kernel is bidirectional. Load this model with "
            'attn_implementation="sdpa", or set is_causal = False on a vision layer that lacks it.'
        )
    _validate.probability(_FUNCTION, "dropout", dropout)
    segments = [kwargs.get(name) for name in ("cu_seq_lens_q", "cu_seq_lens_k")]
    given = [bounds is not None for bounds in segments]
    if any(given):
        if attention_mask is not None or dropout > 0.0 or not all(given):
            raise NeuronVitUnsupported(
                "neuron-vit: flash_attn_forward: cu_seq_lens_q and cu_seq_lens_k go together, "
                "without attention_mask and without dropout. Load this model with "
                'attn_implementation="org/neuron-vit", without a function name, for masks.'
            )
        out = packed_attention(query, key, value, *segments, scaling, _NAMES)
        return out.transpose(1, 2).contiguous(), None
    grouped = bool(key.dim() == 4 and query.shape[1] != key.shape[1])
    out = attend(
        _NAMES, query, key, value, attention_mask, dropout, False, scaling, enable_gqa=grouped
    )
    return out.transpose(1, 2).contiguous(), None


def register_with_transformers(name: str = "neuron_vit") -> str:
    """Make `attn_implementation=name` run `flash_attn_forward`, and return the name.

    Needs no trust flag. The name must not contain "flash", which transformers reads as a request
    for unpadded inputs.
    """
    if not isinstance(name, str):
        raise _validate.wrong_type(
            "register_with_transformers", "name", name, "a str", "Use the default"
        )
    if "flash" in name:
        raise ValueError(
            f"neuron-vit: register_with_transformers: name is {name!r}; it must not contain "
            "'flash', which transformers takes as a request for unpadded inputs. Use the default."
        )
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, flash_attn_forward)
    AttentionMaskInterface.register(name, sdpa_mask)
    return name
