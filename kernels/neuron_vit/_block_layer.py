"""A layer of a model that runs as one `vit_block`.

The packed weights are kept beside the parameters, in no state dict. They are made again where the
parameters are not those, or not the values, that were packed: outside of compiled code every call
looks, and moving, converting or loading the layer looks in any case. Changes that PyTorch does not
count (`parameter.data.copy_(...)`), and changes in place between two calls of compiled code, are
seen by the next `apply`.
"""

import dataclasses
import sys
import types
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from . import _autocast, _environment, capability
from ._calls import Call, Contract, Refusal, contracts, mismatch
from ._fallback import note
from ._layer_parts import defining_class, dropout_of, what_is_wrong
from ._layer_reader import read_parts
from ._replace import STATE, Replaced, obstacle, original_class
from ._watch import BACKWARD_HOOKS, FORWARD_HOOKS, RECORDER, changes, hooked
from .block import vit_block
from .block_params import BlockParams
from .errors import NeuronVitUnsupported

_ORDINARY = (Tensor, nn.Parameter)
# Numbers that modules keep as attributes and their forward passes compute with.
_SETTINGS = ("eps", "variance_epsilon", "scaling", "scale", "is_causal", "fused_attn")

_LEAVE_IT = "leave it to PyTorch, or build BlockParams from its tensors if it is such a block"

# Why a replaced layer runs as itself for a while, and what to do about it.
_TRAINING = ("vit_block has no dropout", "call model.eval()")
_GRADIENTS = (
    "gradients of a layer's weights are wanted, which vit_block packs without them",
    "call the model under torch.no_grad(), or model.requires_grad_(False)",
)
_ATTENTIONS = (
    "vit_block does not return attention weights",
    "call the model without output_attentions",
)
_AUTOCAST = (
    "a vit_block layer keeps the dtype of its weights, autocast would change it",
    "convert the model, for example with .to(torch.bfloat16), and leave autocast out",
)


class State:
    """What a replaced layer keeps: its contract, its packed weights, and what they were made of."""

    def __init__(self, layer: nn.Module, contract: Contract) -> None:
        self.contract = contract
        self.seen: List[Any] = []
        self.settings: List[Tuple[Dict[str, Any], str, Any]] = []
        # Where transformers says which outputs it is collecting, if it is there.
        self.collector = getattr(sys.modules.get(RECORDER), "_active_collector", None)
        self.handle = layer.register_load_state_dict_post_hook(_loaded)
        self.params: Optional[BlockParams] = None
        self.without_rope: Optional[BlockParams] = None
        self.refusal: Optional[Refusal] = None
        self.modules: Tuple[nn.Module, ...] = ()
        self.drops = False

    def pack(self, layer: nn.Module) -> None:
        """Read the layer."""
        contents = _contents(layer)
        self.modules = tuple(layer.modules())
        self.drops = bool(dropout_of(layer))
        read = read_block(layer)
        if isinstance(read, Refusal):
            self.refusal = read
            self.params = self.without_rope = None
        else:
            plain = read if read.rope is None else dataclasses.replace(read, rope=None)
            self.params, self.without_rope, self.refusal = read, plain, None
        self.settings = _settings(layer)
        # Last, so that another thread reads the layer itself until all of this is there.
        self.seen = contents

    def refresh(self, layer: nn.Module) -> None:
        """Read the layer if it is not what was read."""
        contents = _contents(layer)
        same = len(contents) == len(self.seen) and all(
            found[0] is known[0] and found[1:] == known[1:]
            for found, known in zip(contents, self.seen)
        )
        if not same or any(found.get(name) != known for found, name, known in self.settings):
            self.pack(layer)


class ReplacedBlock(Replaced):
    """The forward pass of a layer as `vit_block`, and where that does not do, as it was."""

    def _neuron_vit_prepare(self) -> None:
        state = State(self, contracts()[defining_class(self)])
        state.pack(self)
        vars(self)[STATE] = state

    def _neuron_vit_release(self) -> None:
        vars(self)[STATE].handle.remove()

    def _plain_dict(self) -> Any:
        plain = super()._plain_dict()
        hooks = plain["_load_state_dict_post_hooks"]
        plain["_load_state_dict_post_hooks"] = type(hooks)(
            (key, hook) for key, hook in hooks.items() if hook is not _loaded
        )
        return plain

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._apply(*args, **kwargs)
        vars(self)[STATE].refresh(self)
        return result

    def _neuron_vit_forward(self, *args: Any, **kwargs: Any) -> Any:
        state = self._neuron_vit
        if not torch.compiler.is_compiling():
            state.refresh(self)
        x = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(x, Tensor):
            return self._own_forward(*args, **kwargs)
        refusal = state.refusal or _refused_now(self, state)
        if refusal is None:
            call = state.contract(self, *args, **kwargs)
            if call is None:
                return self._own_forward(*args, **kwargs)
            if isinstance(call, Call):
                refusal = _refused_input(call.x, state.params)
            else:
                refusal = call
        if refusal is not None:
            x = note(x, "vit_block", refusal.reason, refusal.remedy)
            if args:
                return self._own_forward(x, *args[1:], **kwargs)
            first = next(iter(kwargs))
            return self._own_forward(**{**kwargs, first: x})
        params = state.without_rope if call.rope is None else state.params
        y = vit_block(
            call.x,
            params,
            rope=call.rope,
            attn_mask=call.attn_mask,
            cu_seqlens=call.cu_seqlens,
        )
        return y if call.finish is None else call.finish(y)


def read_block(layer: nn.Module) -> Union[BlockParams, Refusal]:
    """The packed weights of a layer, or why it cannot run as `vit_block`."""
    contract = contracts().get(defining_class(layer))
    if contract is None:
        name = original_class(layer).__name__
        return Refusal(f"no fused block for {name}", "its own forward pass stays")
    found = obstacle(layer)
    if found is not None:
        return Refusal(*found)
    refusal = mismatch(layer, original_class(layer).forward, contract)
    refusal = refusal or unusual_tensors(layer) or refused_forwards(layer)
    if refusal is not None:
        return refusal
    try:
        # Not inference tensors, which later calls could not use.
        with torch.inference_mode(False), torch.no_grad():
            params = BlockParams(**read_parts(layer))
    except (NeuronVitUnsupported, AttributeError, ValueError, TypeError) as error:
        return Refusal(what_is_wrong(error), _LEAVE_IT)
    return _block_beyond_limits(params) or params


def refused_block(layer: nn.Module) -> Optional[Refusal]:
    """Why a layer cannot run as `vit_block`."""
    if isinstance(layer, ReplacedBlock):
        state = vars(layer)[STATE]
        state.refresh(layer)
        return state.refusal
    read = read_block(layer)
    return read if isinstance(read, Refusal) else None


def drops_values(layer: nn.Module) -> Optional[Refusal]:
    """The refusal of a layer in which something drops values now."""
    if any(module.training for module in layer.modules()) and dropout_of(layer):
        return Refusal(*_TRAINING)
    return None


def _refused_now(layer: nn.Module, state: State) -> Optional[Refusal]:
    """Why the layer, as it and the process are now, would not run as `vit_block`."""
    if state.drops and any(module.training for module in state.modules):
        return Refusal(*_TRAINING)
    if torch.is_grad_enabled() and any(p.requires_grad for p in layer.parameters()):
        return Refusal(*_GRADIENTS)
    if _autocast.enabled(state.params.device):
        return Refusal(*_AUTOCAST)
    if state.collector is not None and "attentions" in _collected(state.collector):
        return Refusal(*_ATTENTIONS)
    for module in state.modules:
        if module is not layer:
            refusal = refused_hooks(module)
            if refusal is not None:
                return refusal
    return None


def refused_hooks(module: nn.Module) -> Optional[Refusal]:
    """A module within a replaced one is not called, so a hook on it would not be."""
    if not hooked(module, (*FORWARD_HOOKS, *BACKWARD_HOOKS)):
        return None
    return Refusal(
        f"a hook on a {type(module).__name__} within a layer would not run",
        "remove the hook, or put it on the layer",
    )


def refused_forwards(module: nn.Module) -> Optional[Refusal]:
    """Nor would a forward pass that another tool gave to one instance within it, as accelerate
    does. One of kernelize's may be left out, because it computes what the module's own does."""
    for inner in module.modules():
        forward = vars(inner).get("forward")
        if inner is module or forward is None:
            continue
        if hasattr(type(inner), "kernel_layer_name") and isinstance(forward, types.MethodType):
            continue
        return Refusal(
            f"another tool set a forward pass on a {type(inner).__name__} within it, which would "
            "not run",
            "remove it for the kernel to run",
        )
    return None


def _collected(collector: Any) -> Any:
    """The names of the outputs that transformers is collecting."""
    if torch.compiler.is_compiling():
        # What a context variable holds cannot be compiled; this is what transformers does.
        return (collector.global_var if collector.compiling else None) or ()
    return collector.get() or ()


def _refused_input(x: Tensor, params: BlockParams) -> Optional[Refusal]:
    if x.dim() == 3 and x.dtype == params.dtype and x.device == params.device:
        return None
    return Refusal(
        f"vit_block takes [batch, tokens, width] of the dtype and on the device of the weights; "
        f"the layer was given {x.dim()} dimensions, {x.dtype} on {x.device}, its weights are "
        f"{params.dtype} on {params.device}",
        "convert the model and its input alike",
    )


def _loaded(layer: Any, incompatible_keys: Any) -> None:
    """After load_state_dict."""
    vars(layer)[STATE].refresh(layer)


def _contents(layer: nn.Module) -> List[Any]:
    """What tells one version of the layer from another: its modules, with the forward passes set on
    them, and the identity, place and count of changes of each tensor."""
    contents: List[Any] = []
    for module in layer.modules():
        contents.append((module, type(module), vars(module).get("forward")))
        for tensors in (module._parameters, module._buffers):
            for tensor in tensors.values():
                if type(tensor) in _ORDINARY:
                    place = (tensor.data_ptr(), tensor.dtype, tensor.device)
                    contents.append((tensor, changes(tensor), place))
                else:
                    contents.append((tensor,))
    return contents


def _settings(layer: nn.Module) -> List[Tuple[Dict[str, Any], str, Any]]:
    """The _SETTINGS of the layer's modules: where each of them stands, its name and its value."""
    return [
        (vars(module), name, vars(module)[name])
        for module in layer.modules()
        for name in _SETTINGS
        if isinstance(vars(module).get(name), (int, float))
    ]


def unusual_tensors(layer: nn.Module) -> Optional[Refusal]:
    """The refusal of a module whose weights are no plain tensors of one dtype on one device."""
    parameters = list(layer.parameters())
    for parameter in parameters:
        if type(parameter) not in _ORDINARY or parameter.layout != torch.strided:
            return Refusal(
                f"a weight is a {type(parameter).__name__} ({parameter.layout}), which cannot be "
                "packed",
                "apply before quantising or distributing the model, or leave this layer",
            )
        if parameter.is_meta:
            return Refusal("its weights are on the meta device", "load the weights, then apply")
    dtypes = sorted({capability.dtype_name(parameter.dtype) for parameter in parameters})
    if len(dtypes) > 1 or len({parameter.device for parameter in parameters}) > 1:
        return Refusal(
            f"its weights have more than one dtype or device: {', '.join(dtypes)}",
            "convert or move the model as a whole, then apply",
        )
    return None


def _block_beyond_limits(params: BlockParams) -> Optional[Refusal]:
    """The refusal of a block that the kernel does not take at any number of tokens."""
    sizes = {
        "batch": 1,
        "tokens": 1,
        "width": params.width,
        "heads": params.num_heads,
        "head_dim": params.head_dim,
        "hidden": params.hidden,
        "gated": params.gate_weight is not None,
        "inner_norm": params.inner_norm is not None,
    }
    return beyond_limits("vit_block", sizes, params.dtype)


def beyond_limits(kernel: str, sizes: Dict[str, int], dtype: torch.dtype) -> Optional[Refusal]:
    """The refusal of a module whose `kernel` does not take `sizes` of `dtype`, in words for who
    has a model and not the tensors."""
    support = capability.check(kernel, sizes, capability.dtype_name(dtype), _environment.target())
    if support:
        return None
    if dtype == torch.float64:
        return Refusal(support.reason, "convert the model with .float(), then call apply again")
    return Refusal(
        support.reason,
        "no setting of the model changes that: this part stays as PyTorch operations; choose a "
        "model within the limit for it to run on NKI",
    )
