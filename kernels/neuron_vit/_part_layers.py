"""Norms, MLPs and attention modules of a model that run as operators.

They compute with the module's own tensors, so that gradients flow and no copy can be out of date.
"""

from typing import Any, Callable, Optional, Tuple, Type, Union

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from . import _autocast
from ._block_layer import (
    beyond_limits,
    drops_values,
    refused_forwards,
    refused_hooks,
    unusual_tensors,
)
from ._calls import Refusal
from ._fallback import note
from ._layer_parts import (
    NORMS,
    activation_name,
    defining_class,
    linear,
    part,
    require_absent,
    what_is_wrong,
)
from ._layer_reader import PLAIN_MLPS, ROTATIONS
from ._replace import STATE, Replaced, obstacle
from .attention import scaled_dot_product_attention
from .errors import NeuronVitUnsupported
from .normalization import layer_norm, rms_norm
from .projection import mlp

_MLP_PARTS = (("fc1", "linear_fc1"), ("activation_fn", "act_fn", "act"), ("fc2", "linear_fc2"))


class _Operator(Replaced):
    """A module of one input that runs as an operator, unless something is in the way of that."""

    def _neuron_vit_forward(self, *args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        x = values[0] if values else None
        if len(values) != 1 or not isinstance(x, Tensor):
            return self._own_forward(*args, **kwargs)
        refusal = self._refused(x)
        if refusal is None:
            return self._compute(x)
        return self._own_forward(note(x, self._kernel(), refusal.reason, refusal.remedy))

    def _refused(self, x: Tensor) -> Optional[Refusal]:
        weight = next(self.parameters(), x)
        if x.dtype != weight.dtype or x.device != weight.device:
            return Refusal(
                f"{self._kernel()} takes an input like its weights; it is {x.dtype} on {x.device}, "
                f"they are {weight.dtype} on {weight.device}",
                "convert the model and its input alike",
            )
        if _autocast.enabled(x.device):
            return Refusal(
                f"{self._kernel()} keeps the dtype of its input, autocast would change it",
                "convert the model, and leave autocast out",
            )
        return None

    def _kernel(self) -> str:
        """The name of the kernel."""
        raise NotImplementedError

    def _compute(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class ReplacedNorm(_Operator):
    """A LayerNorm or an RMSNorm of known forward pass."""

    def _kernel(self) -> str:
        return f"{NORMS[defining_class(self)]}_norm"

    def _compute(self, x: Tensor) -> Tensor:
        eps = part(self, "eps", "variance_epsilon")
        shape = getattr(self, "normalized_shape", None) or self.weight.shape
        if NORMS[defining_class(self)] == "rms":
            return rms_norm(x, shape, self.weight, eps)
        return layer_norm(x, shape, self.weight, self.bias, eps)


class ReplacedMlp(_Operator):
    """Two linear layers with an activation between them."""

    def _neuron_vit_prepare(self) -> None:
        self.__dict__[STATE] = (tuple(self.modules()), _read_mlp(self))

    def _kernel(self) -> str:
        return "mlp"

    def _refused(self, x: Tensor) -> Optional[Refusal]:
        modules, _ = self._neuron_vit
        if not torch.compiler.is_compiling():
            if modules != tuple(self.modules()):
                self._neuron_vit_prepare()
            refusal = refused_forwards(self)
            if refusal is not None:
                return refusal
        modules, read = self._neuron_vit
        if isinstance(read, Refusal):
            return read
        for module in modules[1:]:
            refusal = refused_hooks(module)
            if refusal is not None:
                return refusal
        return drops_values(self) or super()._refused(x)

    def _compute(self, x: Tensor) -> Tensor:
        fc1, fc2, activation = self._neuron_vit[1]
        return mlp(x, fc1.weight, fc1.bias, fc2.weight, fc2.bias, activation)


class ReplacedAttention(Replaced):
    """An attention module whose forward pass calls torch's function."""

    def _neuron_vit_forward(self, *args: Any, **kwargs: Any) -> Any:
        with _Routed():
            return self._own_forward(*args, **kwargs)


class _Routed(TorchFunctionMode):
    """Calls of torch's attention go to the function of this package."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            func = scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


def part_kind(module: nn.Module) -> Union[Type[Replaced], Refusal, None]:
    """What replaces a module that is no block: None where it is none of the known ones."""
    name = defining_class(module)
    if name in NORMS:
        kind: Type[Replaced] = ReplacedNorm
        refusal = None
    elif name in PLAIN_MLPS:
        kind = ReplacedMlp
        read = _read_mlp(module)
        refusal = read if isinstance(read, Refusal) else refused_forwards(module)
    elif name in ROTATIONS:
        kind = ReplacedAttention
        refusal = _unreachable(module)
    else:
        return None
    found = obstacle(module)
    if found is not None:
        refusal = Refusal(*found)
    return refusal or unusual_tensors(module) or _module_beyond_limits(module, kind) or kind


def _module_beyond_limits(module: nn.Module, kind: Type[Replaced]) -> Optional[Refusal]:
    """The refusal of a module whose kernel does not take it at any number of tokens."""
    weight = next(module.parameters(), None)
    if weight is None:
        return None
    if kind is ReplacedNorm:
        kernel, sizes = f"{NORMS[defining_class(module)]}_norm", {"width": weight.numel()}
    elif kind is ReplacedMlp:
        fc1, fc2, _ = _read_mlp(module)
        kernel = "mlp"
        sizes = {"tokens": 1, "width": fc1.in_features, "hidden": fc1.out_features}
        sizes["out"] = fc2.out_features
    else:
        head_dim = getattr(module, "head_dim", getattr(module, "attention_head_size", 1))
        kernel = "attention"
        sizes = {"batch": 1, "heads": 1, "q_len": 1, "k_len": 1, "head_dim": head_dim}
    return beyond_limits(kernel, sizes, weight.dtype)


def _read_mlp(module: nn.Module) -> Union[Tuple[nn.Linear, nn.Linear, str], Refusal]:
    first, activation, last = _MLP_PARTS
    try:
        require_absent(module, "norm")
        return (
            linear(module, *first),
            linear(module, *last),
            activation_name(module, part(module, *activation)),
        )
    except NeuronVitUnsupported as error:
        return Refusal(what_is_wrong(error), "leave it to PyTorch")


def _unreachable(attention: nn.Module) -> Optional[Refusal]:
    """Why the forward pass would not call torch's attention."""
    config = getattr(attention, "config", None)
    implementation = getattr(config, "_attn_implementation", "sdpa")
    if implementation != "sdpa":
        return Refusal(
            f"the attention implementation of the model is {implementation!r}",
            'call model.set_attn_implementation("sdpa")',
        )
    if not getattr(attention, "fused_attn", True):
        return Refusal(
            "timm's fused attention is off", "call timm.layers.set_fused_attn(True) before"
        )
    return None
