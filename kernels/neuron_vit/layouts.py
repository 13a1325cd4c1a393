"""Whole blocks in transformers' own layers: what the block classes of `layers` run, and the layout
classes that `KernelConfig` puts into a model while it is built.

    from transformers import KernelConfig, ViTModel
    config = KernelConfig({
        "^ViTLayer$": ("org/neuron-vit:ViTLayer", {"version": 1, "trust_remote_code": True})
    })
    model = ViTModel.from_pretrained("...", kernel_config=config, use_kernels=True)

The key is a regular expression that transformers searches for in the names of all its classes:
without ^ and $ it would be found in DINOv3ViTLayer and DINOv3ViTLayerScale too.

transformers replaces the class of the model's layers by `layers.ViTLayerLayout`, and then
`kernelize` puts the forward pass of `layers.ViTLayer` into each of them. A layout derives from the
class it replaces and has that class's forward pass, parameters and state dict: what a model loaded
later in the same process gets, where it is not kernelized, is transformers' layer in all but name.
"""

import importlib
import sys
from functools import lru_cache
from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor, nn

from . import _autocast
from ._fallback import run_own
from ._packing import packed, unchanged
from ._watch import FORWARD_HOOKS, RECORDER, hooked
from .block import vit_block
from .errors import NeuronVitUnsupported

_SUFFIX = "Layout"

# Layers that take part, and the model of transformers that each belongs to.
_MODELS = {
    "ViTLayer": "vit",
    "DeiTLayer": "deit",
    "Dinov2Layer": "dinov2",
    "Dinov2WithRegistersLayer": "dinov2_with_registers",
    "DINOv3ViTLayer": "dinov3_vit",
    "CLIPEncoderLayer": "clip",
    "SiglipEncoderLayer": "siglip",
    "Siglip2EncoderLayer": "siglip2",
    "InternVLVisionLayer": "internvl",
    "Aimv2EncoderLayer": "aimv2",
    "PixtralAttentionLayer": "pixtral",
    "Qwen2VLVisionBlock": "qwen2_vl",
    "Qwen2_5_VLVisionBlock": "qwen2_5_vl",
    "Qwen3VLVisionBlock": "qwen3_vl",
}

_OWN_LAYERS_RUN = "use the model library's own layers for this call"


class _Layout(type):
    """The class of layout classes.

    A layer that was made without a layout counts as an instance of it: transformers looks for the
    instances of a layout, once it knows it, in every model of the process, to record their hidden
    states. And a layout refuses to be made while it stands in for a class of another name.
    """

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        replaced = cls.__mro__[1].__name__
        for module in list(sys.modules.values()):
            if not getattr(module, "__name__", "").startswith("transformers.models."):
                continue
            others = {name for name, value in vars(module).items() if value is cls} - {replaced}
            if others:
                raise NeuronVitUnsupported(
                    f"neuron-vit: transformers has put {cls.__name__} in the place of "
                    f"{', '.join(sorted(others))} as well, because it takes the key of a "
                    f'KernelConfig as a regular expression. Write "^{replaced}$" for the key.'
                )
        return super().__call__(*arguments, **options)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


def layout(name: str, module: str) -> Optional[type]:
    """The layout class `name`, such as "ViTLayerLayout", as a class of `module`; None for a name
    that is none. Imports the modeling file of transformers."""
    if not name.endswith(_SUFFIX) or name[: -len(_SUFFIX)] not in _MODELS:
        return None
    return _make_layout(name, module)


@lru_cache(maxsize=None)
def _make_layout(name: str, module: str) -> type:
    replaced = name[: -len(_SUFFIX)]
    model = _MODELS[replaced]
    modeling = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    base = getattr(modeling, replaced)
    members = {
        # transformers gives a layout that has no forward in its own dictionary an empty one.
        "forward": base.forward,
        "__module__": module,
        "__doc__": f"Stands in for transformers' `{replaced}`, until it is kernelized as itself.",
    }
    return _Layout(name, (base,), members)


def run_block(layer: nn.Module, hidden_states: Tensor, given: Dict[str, Any]) -> Tensor:
    """The block kernel on `layer`, which transformers calls with `hidden_states` and `given`.

    A call that the kernel does not cover runs the layer's own forward pass, after a warning or
    with an error where a kernel would have run. In `torch.compile` it is an error.
    """
    reason = _not_covered(layer, hidden_states, given)
    if reason is None:
        try:
            params = packed(layer, _library_class(layer))
        except NeuronVitUnsupported as error:
            reason = (str(error), _OWN_LAYERS_RUN)
    if reason is not None:
        return _run_own(layer, hidden_states, given, *reason)
    x, segments = unchanged(hidden_states, layer), given.get("cu_seqlens")
    if segments is None:
        segments = given.get("cu_seq_lens_q")
    out = vit_block(
        x[None] if x.dim() == 2 else x,
        params,
        rope=given.get("position_embeddings"),
        attn_mask=given.get("attention_mask"),
        cu_seqlens=segments,
    )
    return out[0] if x.dim() == 2 else out


def _library_class(layer: nn.Module) -> type:
    """The class of the model library: of a layout, what it stands in for."""
    kind = type(layer)
    return kind.__mro__[1] if type(kind) is _Layout else kind


def _not_covered(
    layer: nn.Module, hidden_states: Tensor, given: Dict[str, Any]
) -> Optional[Tuple[str, str]]:
    """Why the kernel does not cover a call, and what to do; None where it does."""
    name = _library_class(layer).__name__
    if torch.is_grad_enabled() and any(weight.requires_grad for weight in layer.parameters()):
        return (
            f"{name} may have to give gradients to its weights, which packed weights do not get",
            "run the model under torch.inference_mode() or torch.no_grad(); to train, kernelize "
            "it with Mode.TRAINING, which leaves its layers as they are",
        )
    if _autocast.enabled(hidden_states.device):
        return (
            f"{name} is called under autocast, the kernel keeps the dtype of the weights",
            "convert the model, for example with .to(torch.bfloat16), and leave autocast out",
        )
    for part in layer.modules():
        if part is not layer and hooked(part, FORWARD_HOOKS):
            return (
                f"a {type(part).__name__} within {name} has a hook, which would not run",
                "remove the hook, or put it on the layer",
            )
    mask = given.get("attention_mask")
    if mask is not None and not (
        isinstance(mask, Tensor)
        and mask.dim() == 4
        and mask.dtype in (torch.bool, torch.float32, hidden_states.dtype)
    ):
        found = f"{tuple(mask.shape)} {mask.dtype}" if isinstance(mask, Tensor) else type(mask)
        return (
            f"{name} is given the attention mask {found}, the kernel takes [batch, heads, tokens, "
            "tokens] of bool (True takes part), or scores of float32 or the dtype of the tokens",
            'load the model with attn_implementation="sdpa"; for a mask of ones and zeros pass '
            "attention_mask.bool()",
        )
    if mask is None and given.get("is_causal"):
        return f"{name} is asked for causal attention, the kernel is bidirectional", _OWN_LAYERS_RUN
    packed_batch = given.get("cu_seq_lens_q") is not None
    if packed_batch and (mask is not None or hidden_states.shape[0] != 1):
        return f"{name} is given segments in a batch or beside a mask", _OWN_LAYERS_RUN
    if given.get("output_attentions") or _attentions_are_collected():
        return (
            f"{name} is asked for the attention weights, which the kernel does not form",
            "leave output_attentions out",
        )
    return None


def _attentions_are_collected() -> bool:
    """Whether the model was asked for attention weights, of which some layers hear nothing."""
    recorder = sys.modules.get(RECORDER)
    # What a context variable holds cannot be compiled; transformers does not collect there.
    if recorder is None or torch.compiler.is_compiling():
        return False
    return "attentions" in (recorder._active_collector.get() or ())


def _run_own(
    layer: nn.Module, hidden_states: Tensor, given: Dict[str, Any], reason: str, remedy: str
) -> Tensor:
    """The layer's own forward pass in place of the kernel."""

    def own(hidden_states: Tensor) -> Tensor:
        return type(layer).forward(layer, hidden_states, **given)

    return run_own("vit_block", own, hidden_states, reason, remedy)
