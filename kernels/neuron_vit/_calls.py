"""How the libraries call their layers, and what such a call is to `vit_block`.

A contract is a function with the parameters of a layer's forward pass. It returns the `Call` of
`vit_block` that computes the same, or the `Refusal` of a call that needs something else, or None
where the layer's own forward pass shall run without a word, because its parts are operators.
"""

import inspect
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor, nn


class Call(NamedTuple):
    """Arguments of `vit_block`; finish(y) is what the layer returns, None where that is y."""

    x: Tensor
    rope: Optional[Tuple[Tensor, Tensor]] = None
    attn_mask: Optional[Tensor] = None
    cu_seqlens: Optional[Tensor] = None
    finish: Optional[Callable[[Tensor], Any]] = None


class Refusal(NamedTuple):
    """Why the layer's own forward pass has to run, and what to do about it."""

    reason: str
    remedy: str


Contract = Callable[..., Union[Call, Refusal, None]]

# Layers whose contract may return None, and when that is.
WITH_PARTS = {"SwinLayer": "on a map that windows do not tile, its parts run as operators"}


def contracts() -> Dict[str, Contract]:
    """By the class that defines the forward pass, as `_layer_parts.defining_class` names it."""
    from . import _calls_timm, _calls_transformers, _calls_windows

    return {
        **_calls_transformers.CONTRACTS,
        **_calls_windows.CONTRACTS,
        **_calls_timm.CONTRACTS,
    }


def mismatch(
    layer: nn.Module, forward: Callable[..., Any], contract: Contract
) -> Optional[Refusal]:
    """The refusal of a layer whose forward pass takes other arguments than are known."""
    # Without self and without layer.
    found = list(inspect.signature(forward).parameters)[1:]
    expected = list(inspect.signature(contract).parameters)[1:]
    if found == expected:
        return None
    return Refusal(
        f"forward of {type(layer).__name__} takes {', '.join(found)}; known is "
        f"{', '.join(expected)}",
        "use a version of the library that this package was tested with",
    )


def causal(x: Tensor) -> Tensor:
    """The mask [1, 1, tokens, tokens] by which a token attends to itself and those before it."""
    tokens = x.shape[1]
    return torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).tril()[None, None]


def unusable_mask(x: Tensor, mask: Any) -> Optional[Refusal]:
    """The refusal of a mask that `vit_block` does not take."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        found = f"is a {type(mask).__name__}"
    elif mask.dtype not in (torch.bool, torch.float32, x.dtype):
        found = f"has dtype {mask.dtype}"
    elif mask.dim() != 4:
        found = f"has {mask.dim()} dimensions"
    else:
        return None
    remedy = 'with transformers, call model.set_attn_implementation("sdpa")'
    if isinstance(mask, Tensor) and not mask.is_floating_point() and mask.dtype != torch.bool:
        remedy = "for a mask of ones and zeros pass attention_mask.bool(), True takes part"
    return Refusal(
        f"vit_block takes a mask [batch, heads, tokens, tokens] of booleans or scores; this one "
        f"{found}",
        remedy,
    )
