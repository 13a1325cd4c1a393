"""The attention of diffusers' models: their own processors, with our kernel for the attention.

A processor holds all that a model does around its attention: projections, norms, the order of text
and image tokens, rotations. Each of diffusers' processors ends in PyTorch's
`scaled_dot_product_attention`. What is made here is the same processor with that one call going to
the kernel, so that any of them will do, and none is written a second time.
"""

import copy
import functools
import sys
import types
from typing import Any, Dict, Optional

import torch
from torch import Tensor, nn

from . import _validate
from .attention import scaled_dot_product_attention

_NATIVE = "native"
# What a processor calls for its attention: PyTorch's function, as `F.`, or diffusers' choice of a
# backend, of which the native one is that function.
_DIRECT, _DISPATCHED = "scaled_dot_product_attention", "dispatch_attention_fn"


def diffusers_attn_processors(model: nn.Module) -> Dict[str, Any]:
    """The attention processors of a model of diffusers, with the attention kernel in them.

        model.set_attn_processor(nv.diffusers_attn_processors(model))

    Args:
        model: has `attn_processors`, such as a FluxTransformer2DModel or SD3Transformer2DModel.

    Returns:
        A processor for every name in `model.attn_processors`: a copy that calls
        `nv.scaled_dot_product_attention` where the original calls PyTorch's. One that computes
        its attention in another way, or through another backend, is returned as it is.

    Raises:
        TypeError: model has no `attn_processors`.
    """
    if not isinstance(model, nn.Module) or not hasattr(model, "attn_processors"):
        raise _validate.wrong_type(
            "diffusers_attn_processors",
            "model",
            model,
            "a model of diffusers with `attn_processors`",
            "For a pipeline pass its .transformer or .unet; for other models call apply",
        )
    return {
        name: processor if obstacle(processor) else with_kernel(processor)
        for name, processor in model.attn_processors.items()
    }


def with_kernel(processor: Any) -> Any:
    """A copy of `processor` with the attention kernel in it."""
    copied = copy.copy(processor)
    copied.__class__ = _kernel_class(type(processor))
    return copied


def without_kernel(processor: Any) -> Any:
    """A copy of `processor`, which `with_kernel` made, without the kernel."""
    copied = copy.copy(processor)
    copied.__class__ = type(processor).__mro__[1]
    return copied


def has_kernel(processor: Any) -> bool:
    """Whether `with_kernel` made it."""
    return _MARK in vars(type(processor))


def obstacle(processor: Any) -> Optional[str]:
    """Why the kernel cannot take the place of a processor's attention; None where it can."""
    kind = type(processor)
    if has_kernel(processor):
        return "it has the kernel already"
    function = kind.__call__
    called = getattr(getattr(function, "__code__", None), "co_names", ())
    if _DISPATCHED in called:
        backend = getattr(processor, "_attention_backend", None) or _default_backend()
        if backend != _NATIVE:
            return f"its attention backend is {getattr(backend, 'value', backend)}, not native"
        if getattr(processor, "_parallel_config", None) is not None:
            return "its attention is spread over devices"
    elif _DIRECT not in called or function.__globals__.get("F") is not torch.nn.functional:
        return f"{kind.__name__} does not call F.scaled_dot_product_attention"
    return None


_MARK = "_neuron_vit_attention"


def _default_backend() -> str:
    """The backend that diffusers takes where a processor names none."""
    registry = sys.modules["diffusers.models.attention_dispatch"]._AttentionBackendRegistry
    return registry.get_active_backend()[0]


def _dispatched_to_kernel(original: Any) -> Any:
    """diffusers' function that runs attention on [batch, tokens, heads, head_dim] on the backend of
    a processor, with the kernel for the native one."""

    @functools.wraps(original)
    def dispatch(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Optional[Tensor] = None,
        *args: Any,
        backend: Any = None,
        parallel_config: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        if args or backend not in (None, _NATIVE) or parallel_config is not None:
            options = {**kwargs, "backend": backend, "parallel_config": parallel_config}
            return original(query, key, value, attn_mask, *args, **options)
        kwargs.pop("attention_kwargs", None)  # of other backends
        if attn_mask is not None and attn_mask.shape == (query.shape[0], key.shape[1]):
            attn_mask = attn_mask[:, None, None]  # one row an image
        heads = (tensor.transpose(1, 2) for tensor in (query, key, value))
        return scaled_dot_product_attention(*heads, attn_mask=attn_mask, **kwargs).transpose(1, 2)

    return dispatch


def _with_kernel_inside(function: Any) -> Any:
    """`function` as it is, but that what it calls for attention is the kernel."""
    inside = dict(function.__globals__)
    # torch.compile would look names up in the module of this name, not here.
    del inside["__name__"]
    if _DISPATCHED in function.__code__.co_names:
        inside[_DISPATCHED] = _dispatched_to_kernel(inside[_DISPATCHED])
    else:
        names = {**vars(torch.nn.functional), _DIRECT: scaled_dot_product_attention}
        inside["F"] = types.SimpleNamespace(**names)
    made = types.FunctionType(
        function.__code__, inside, function.__name__, function.__defaults__, function.__closure__
    )
    # The signature has to stay: the attention module passes on the arguments that are in it.
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(made, function)


@functools.lru_cache(maxsize=None)
def _kernel_class(base: type) -> type:
    def reduce(self: Any) -> Any:
        return _rebuild, (base, vars(self))

    call = _with_kernel_inside(base.__call__)
    members = {"__call__": call, "__reduce__": reduce, "__module__": __name__, _MARK: True}
    return type(f"NeuronVit{base.__name__}", (base,), members)


def _rebuild(base: type, state: Dict[str, Any]) -> Any:
    """What a copied or pickled processor is made from; its class has no name to be found by."""
    processor = base.__new__(base)
    processor.__dict__.update(state)
    processor.__class__ = _kernel_class(base)
    return processor
