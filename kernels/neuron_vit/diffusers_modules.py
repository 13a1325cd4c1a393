"""Modules of diffusers with our kernels in them, replaced in place and restored.

========================  =========================================================================
diffusers' module         what runs in it
========================  =========================================================================
attention (its processor) `scaled_dot_product_attention`; see `diffusers_attention`
FeedForward               `mlp`, or `swiglu_mlp` for GEGLU and SwiGLU
AdaLayerNormZero,         `ada_layer_norm`
AdaLayerNormZeroSingle
BasicTransformerBlock     of DiT and PixArt: `ada_layer_norm`, where the second one takes the gated
                          sum at the end of the attention with it
FluxTransformerBlock      the same, for image and text
========================  =========================================================================

A replaced module keeps its identity, its parameters and its state dict; its class becomes a
subclass with another forward pass. Where a call or the state of the module is not what the kernels
compute, diffusers' own forward pass runs, after a warning or with an error where a kernel would
have run.
"""

import functools
import importlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from . import diffusers_attention
from ._block_layer import beyond_limits
from ._fallback import run_own
from .normalization import ada_layer_norm
from .projection import mlp, swiglu_mlp

_PREFIX = "NeuronVit"
_REMEDY = "use diffusers' own module for this"


class Surveyed(NamedTuple):
    """What becomes of a module: `path` is the kernels in it or "torch", and then `reason` says
    why. `in_place`: whether it has them already."""

    name: str
    kind: str
    path: str
    reason: str
    in_place: bool


def survey_diffusers_modules(model: nn.Module) -> List[Surveyed]:
    """What `replace_diffusers_modules` would do. Changes nothing.

    Modules that are no concern of the kernels are not listed.
    """
    found = []
    for name, module in model.named_modules():
        if hasattr(module, "set_processor") and hasattr(module, "processor"):
            processor, kernel = module.processor, "scaled_dot_product_attention"
            there = diffusers_attention.has_kernel(processor)
            reason = None if there else diffusers_attention.obstacle(processor)
            reason = reason or _heads_beyond_limits(module)
            found.append(_outcome(name, type(module).__name__, kernel, reason, there))
        base = _library_class(module)
        if base is not None:
            kind = _KINDS[base.__name__]
            there = type(module) is not base
            found.append(_outcome(name, base.__name__, kind.path, kind.obstacle(module), there))
    return found


def _heads_beyond_limits(attention: nn.Module) -> Optional[str]:
    """Why no kernel would run in an attention module, of which diffusers has several classes.

    In any dtype: a processor follows a model that is converted later.
    """
    heads, inner = getattr(attention, "heads", 0), getattr(attention, "inner_dim", 0)
    if not heads or not inner:
        return None
    sizes = {"batch": 1, "heads": 1, "q_len": 1, "k_len": 1, "head_dim": inner // heads}
    refusal = beyond_limits("attention", sizes, torch.bfloat16)
    return None if refusal is None else f"{refusal.reason}; {refusal.remedy}"


def _outcome(name: str, kind: str, path: str, reason: Optional[str], there: bool) -> Surveyed:
    if reason is not None:
        return Surveyed(name, kind, "torch", reason, False)
    return Surveyed(name, kind, path, "", there)


def replace_diffusers_modules(model: nn.Module) -> List[Surveyed]:
    """Put the kernels into the modules of `model` that are diffusers'; say what became of each.

    Those that have a kernel already stay as they are, and are listed with it.
    """
    found = survey_diffusers_modules(model)
    for entry in found:
        module = model.get_submodule(entry.name)
        base = _library_class(module)
        if entry.path == "torch" or entry.in_place:
            continue
        if base is None:
            module.set_processor(diffusers_attention.with_kernel(module.processor))
        else:
            module.__class__ = _kernel_class(base)
    return [entry._replace(in_place=entry.path != "torch") for entry in found]


def restore_diffusers_modules(model: nn.Module) -> List[str]:
    """Undo `replace_diffusers_modules`; the names of the modules that were restored."""
    restored = []
    for name, module in list(model.named_modules()):
        processor = getattr(module, "processor", None)
        if processor is not None and diffusers_attention.has_kernel(processor):
            module.set_processor(diffusers_attention.without_kernel(processor))
            restored.append(name)
        elif type(module).__module__ == __name__:
            module.__class__ = type(module).__mro__[1]
            restored.append(name)
    return restored


def _library_class(module: nn.Module) -> Optional[type]:
    """The class of diffusers that a module has, or had before it was replaced; None for others."""
    kind = type(module)
    if kind.__module__ == __name__:
        kind = kind.__mro__[1]
    known = _KINDS.get(kind.__name__)
    return kind if known is not None and kind.__module__ == known.module else None


# FeedForward


def _feed_forward_obstacle(module: nn.Module) -> Optional[str]:
    first = module.net[0]
    activation = _ACTIVATIONS.get(type(first).__name__)
    if activation is None:
        return f"it starts with a {type(first).__name__}"
    for part in (first.proj, module.net[2]):
        if type(part) is not nn.Linear:
            return f"one of its layers is a {type(part).__name__}"
    if activation(first) is None:
        return f"its activation is a {type(first.activation).__name__}"
    for part in module.net:
        if module.training and type(part) is nn.Dropout and part.p > 0:
            return "it drops values in training"
    return None


def _linear_activation(first: nn.Module) -> Optional[Tuple[str, bool]]:
    name = {nn.SiLU: "silu", nn.ReLU: "relu"}.get(type(first.activation))
    return None if name is None else (name, False)


# By the class that diffusers' MLP starts with: the activation, and whether it is of a gate.
_ACTIVATIONS: Dict[str, Callable[[nn.Module], Optional[Tuple[str, bool]]]] = {
    "GELU": lambda first: ("gelu_tanh" if first.approximate == "tanh" else "gelu", False),
    "ApproximateGELU": lambda first: ("quick_gelu", False),
    "GEGLU": lambda first: ("gelu", True),
    "SwiGLU": lambda first: ("silu", True),
    "LinearActivation": _linear_activation,
}


def _feed_forward(self: Any, own: Any, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    reason = _feed_forward_obstacle(self)
    if reason is None and (args or kwargs):
        reason = "it is called with more than the hidden states"
    if reason is None and hidden_states.dtype != self.net[0].proj.weight.dtype:
        reason = f"its weights are {self.net[0].proj.weight.dtype}, not {hidden_states.dtype}"
    if reason is not None:
        return own(reason, "mlp", hidden_states, *args, **kwargs)
    first, last = self.net[0], self.net[2]
    activation, gated = _ACTIVATIONS[type(first).__name__](first)
    weight, bias = first.proj.weight, first.proj.bias
    if not gated:
        return mlp(hidden_states, weight, bias, last.weight, last.bias, activation)
    up, gate = weight.chunk(2)
    up_bias, gate_bias = (None, None) if bias is None else bias.chunk(2)
    weights = (gate, gate_bias, up, up_bias, last.weight, last.bias)
    return swiglu_mlp(hidden_states, *weights, activation=activation)


# AdaLayerNormZero and AdaLayerNormZeroSingle


def _ada_norm_obstacle(module: nn.Module) -> Optional[str]:
    return _not_a_layer_norm(module.norm)


def _not_a_layer_norm(norm: nn.Module) -> Optional[str]:
    return None if type(norm) is nn.LayerNorm else f"its norm is a {type(norm).__name__}"


def _other_dtype(x: Tensor, *others: Optional[Tensor]) -> Optional[str]:
    """Why `ada_layer_norm` does not take x with what it is modulated with."""
    if x.dim() != 3:
        return f"its input has {x.dim()} dimensions, not 3"
    for other in others:
        if other is not None and other.dtype != x.dtype:
            return f"it modulates {x.dtype} with {other.dtype}"
    return None


def _modulated(norm: nn.LayerNorm, x: Tensor, shift: Tensor, scale: Tensor, **sum_: Any) -> Any:
    return ada_layer_norm(x, shift, scale, weight=norm.weight, bias=norm.bias, eps=norm.eps, **sum_)


def _ada_norm_zero(
    self: Any,
    own: Any,
    x: Tensor,
    timestep: Optional[Tensor] = None,
    class_labels: Optional[Tensor] = None,
    hidden_dtype: Optional[torch.dtype] = None,
    emb: Optional[Tensor] = None,
) -> Tuple[Tensor, ...]:
    reason = _ada_norm_obstacle(self) or _other_dtype(x, self.linear.weight)
    if reason is not None:
        return own(reason, "ada_layer_norm", x, timestep, class_labels, hidden_dtype, emb)
    if self.emb is not None:
        emb = self.emb(timestep, class_labels, hidden_dtype=hidden_dtype)
    shift, scale, *others = self.linear(self.silu(emb)).chunk(6, dim=1)
    gate, shift_mlp, scale_mlp, gate_mlp = others
    return _modulated(self.norm, x, shift, scale), gate, shift_mlp, scale_mlp, gate_mlp


def _ada_norm_zero_single(
    self: Any, own: Any, x: Tensor, emb: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    reason = _ada_norm_obstacle(self) or _other_dtype(x, self.linear.weight)
    if reason is not None:
        return own(reason, "ada_layer_norm", x, emb)
    shift, scale, gate = self.linear(self.silu(emb)).chunk(3, dim=1)
    return _modulated(self.norm, x, shift, scale), gate


# BasicTransformerBlock


def _basic_obstacle(module: nn.Module) -> Optional[str]:
    if module.norm_type not in ("ada_norm_zero", "ada_norm_single"):
        return f"its norm is {module.norm_type}, not ada_norm_zero or ada_norm_single"
    if module.pos_embed is not None:
        return "it adds positions of its own"
    if module._chunk_size is not None:
        return "its MLP runs in chunks"
    return _not_a_layer_norm(_second_norm(module))


def _second_norm(module: Any) -> nn.Module:
    # What PixArt normalises before its MLP has this name.
    return module.norm2 if module.norm_type == "ada_norm_single" else module.norm3


def _basic_block(
    self: Any,
    own: Any,
    hidden_states: Tensor,
    attention_mask: Optional[Tensor] = None,
    encoder_hidden_states: Optional[Tensor] = None,
    encoder_attention_mask: Optional[Tensor] = None,
    timestep: Optional[Tensor] = None,
    cross_attention_kwargs: Optional[Dict[str, Any]] = None,
    class_labels: Optional[Tensor] = None,
    added_cond_kwargs: Optional[Dict[str, Tensor]] = None,
) -> Tensor:
    options = dict(cross_attention_kwargs or {})
    single = self.norm_type == "ada_norm_single"
    if single:
        modulating = (self.scale_shift_table, timestep)
    else:
        modulating = (self.norm1.linear.weight,)
    reason = _basic_obstacle(self) or _other_dtype(hidden_states, *modulating)
    if reason is None and options.keys() & {"gligen", "scale"}:
        reason = "it is called with gligen or scale"
    if reason is not None:
        return own(
            reason,
            "ada_layer_norm",
            hidden_states,
            attention_mask,
            encoder_hidden_states,
            encoder_attention_mask,
            timestep,
            cross_attention_kwargs,
            class_labels,
            added_cond_kwargs,
        )
    if single:
        rows = self.scale_shift_table[None] + timestep.reshape(hidden_states.shape[0], 6, -1)
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = rows.unbind(1)
        normed = _modulated(self.norm1, hidden_states, shift, scale)
    else:
        normed, gate, shift_mlp, scale_mlp, gate_mlp = self.norm1(
            hidden_states, timestep, class_labels, hidden_dtype=hidden_states.dtype
        )
    branch = self.attn1(
        normed,
        encoder_hidden_states=encoder_hidden_states if self.only_cross_attention else None,
        attention_mask=attention_mask,
        **options,
    )
    if self.attn2 is not None:
        hidden_states = gate[:, None] * branch + hidden_states
        branch = self.attn2(
            hidden_states if single else self.norm2(hidden_states),
            encoder_hidden_states=encoder_hidden_states,
            attention_mask=encoder_attention_mask,
            **options,
        )
        gate = None
    normed, hidden_states = _modulated(
        _second_norm(self), branch, shift_mlp, scale_mlp, residual=hidden_states, gate=gate
    )
    return gate_mlp[:, None] * self.ff(normed) + hidden_states


# FluxTransformerBlock


def _flux_obstacle(module: nn.Module) -> Optional[str]:
    return _not_a_layer_norm(module.norm2) or _not_a_layer_norm(module.norm2_context)


def _flux_block(
    self: Any,
    own: Any,
    hidden_states: Tensor,
    encoder_hidden_states: Tensor,
    temb: Tensor,
    image_rotary_emb: Optional[Tuple[Tensor, Tensor]] = None,
    joint_attention_kwargs: Optional[Dict[str, Any]] = None,
) -> Tuple[Tensor, Tensor]:
    weight = self.norm1.linear.weight
    reason = _flux_obstacle(self) or _other_dtype(hidden_states, encoder_hidden_states, weight)
    if reason is not None:
        arguments = (encoder_hidden_states, temb, image_rotary_emb, joint_attention_kwargs)
        return own(reason, "ada_layer_norm", hidden_states, *arguments)
    image, *image_rows = self.norm1(hidden_states, emb=temb)
    text, *text_rows = self.norm1_context(encoder_hidden_states, emb=temb)
    image, text, *adapter = self.attn(
        hidden_states=image,
        encoder_hidden_states=text,
        image_rotary_emb=image_rotary_emb,
        **(joint_attention_kwargs or {}),
    )
    hidden_states = _flux_end(self.norm2, self.ff, image, hidden_states, *image_rows)
    encoder_hidden_states = _flux_end(
        self.norm2_context, self.ff_context, text, encoder_hidden_states, *text_rows
    )
    if adapter:
        hidden_states = hidden_states + adapter[0]
    if encoder_hidden_states.dtype == torch.float16:
        limit = torch.finfo(torch.float16).max
        encoder_hidden_states = encoder_hidden_states.clip(-limit, limit)
    return encoder_hidden_states, hidden_states


def _flux_end(
    norm: nn.LayerNorm,
    ff: nn.Module,
    branch: Tensor,
    residual: Tensor,
    gate: Tensor,
    shift: Tensor,
    scale: Tensor,
    gate_mlp: Tensor,
) -> Tensor:
    """What follows on the attention, of image and of text."""
    normed, total = _modulated(norm, branch, shift, scale, residual=residual, gate=gate)
    return total + gate_mlp[:, None] * ff(normed)


class _Kind(NamedTuple):
    """A class of diffusers: the module it is from, our forward pass, the kernels in that, and why
    a module of the class cannot have it."""

    module: str
    forward: Callable[..., Any]
    path: str
    obstacle: Callable[[nn.Module], Optional[str]]


_ATTENTION, _NORMS = "diffusers.models.attention", "diffusers.models.normalization"
_FLUX = "diffusers.models.transformers.transformer_flux"
_KINDS = {
    "FeedForward": _Kind(_ATTENTION, _feed_forward, "mlp", _feed_forward_obstacle),
    "AdaLayerNormZero": _Kind(_NORMS, _ada_norm_zero, "ada_layer_norm", _ada_norm_obstacle),
    "AdaLayerNormZeroSingle": _Kind(
        _NORMS, _ada_norm_zero_single, "ada_layer_norm", _ada_norm_obstacle
    ),
    "BasicTransformerBlock": _Kind(_ATTENTION, _basic_block, "ada_layer_norm", _basic_obstacle),
    "FluxTransformerBlock": _Kind(_FLUX, _flux_block, "ada_layer_norm", _flux_obstacle),
}


@functools.lru_cache(maxsize=None)
def _kernel_class(base: type) -> type:
    ours = _KINDS[base.__name__].forward

    # diffusers looks at the signature of a forward pass.
    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        def own(reason: str, kernel: str, x: Tensor, *others: Any, **options: Any) -> Any:
            def function(x: Tensor) -> Any:
                return base.forward(self, x, *others, **options)

            return run_own(kernel, function, x, f"{base.__name__}: {reason}", _REMEDY)

        return ours(self, own, *args, **kwargs)

    return type(_PREFIX + base.__name__, (base,), {"forward": forward, "__module__": __name__})


def __getattr__(name: str) -> Any:
    """The class of a replaced module, by which a pickled one is found."""
    kind = _KINDS.get(name[len(_PREFIX) :]) if name.startswith(_PREFIX) else None
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _kernel_class(getattr(importlib.import_module(kind.module), name[len(_PREFIX) :]))
