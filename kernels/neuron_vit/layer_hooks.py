"""`hook_layers`: what makes norms and MLPs of a model visible to `kernels.kernelize`.

`kernelize` replaces the forward pass of a module whose class has a layer name. transformers gives
one to most of its RMSNorm classes and to none of its vision layers' other parts. A name on a class
is inherited by its subclasses, which may compute something else, and a replaced forward pass must
not take an activation for granted: so every name comes with a condition on the module.
"""

from typing import Any, List, Optional, Tuple

from torch import Tensor, nn

from . import _validate
from ._layer_parts import activation_name, linear, part
from ._layer_reader import _GATED, PLAIN_MLPS
from ._untraced import untraced
from .errors import NeuronVitUnsupported
from .projection import mlp, swiglu_mlp

_ATTRIBUTE = "_neuron_vit_activation"

# Norms that are like those which transformers names "RMSNorm".
_RMS_NORMS = ("PixtralRMSNorm",)
# timm's MLPs drop values in training and may hold a norm; `BlockParams` takes them.
_MLPS = tuple(name for name in (*PLAIN_MLPS, *_GATED) if not name.startswith("timm."))
_UP, _DOWN = ("fc1", "up_proj", "linear_fc1"), ("fc2", "down_proj", "linear_fc2")


def hook_layers(model: nn.Module) -> List[str]:
    """Give the classes of the model's norms and MLPs the layer names of `layers`.

        names = nv.hook_layers(model)
        source = {"version": 1, "trust_remote_code": True}
        mapping = {
            name: {"neuron": LayerRepository("org/neuron-vit", layer_name=name, **source)}
            for name in names
        }
        with use_kernel_mapping(mapping):
            model = kernelize(model, mode=Mode.INFERENCE, device="neuron")

    The names stand on the classes, for every model in the process, and do nothing until `kernelize`
    finds a mapping for them. They hold for modules that compute what the kernel computes: LayerNorm
    itself and not its subclasses; MLPs of linear layers with an activation that the kernels have,
    which is read from the module. A class that has a layer name already keeps it.

    Args:
        model: with layers of torch or transformers.

    Returns:
        The names of `layers` that modules of the model now have, such as ["LayerNorm", "MLP"].

    Raises:
        TypeError: model is not a module.
    """
    _validate.module("hook_layers", model, "Pass the model whose layers kernelize will replace")
    from kernels import replace_kernel_forward_from_hub

    names = set()
    for module in model.modules():
        kind, (name, condition) = type(module), _name_for(module)
        if name is not None and not hasattr(kind, "kernel_layer_name"):
            replace_kernel_forward_from_hub(kind, name, condition)
        found = getattr(kind, "kernel_layer_name", None)
        condition = getattr(kind, "kernel_condition", None)
        if found in _CONDITIONS and (condition is None or condition(module)):
            names.add(found)
    return sorted(names)


def run_mlp(layer: nn.Module, x: Tensor) -> Tensor:
    """The kernel for an MLP of transformers, on the weights where they lie."""
    activation = _activation(layer)
    up, down = linear(layer, *_UP), linear(layer, *_DOWN)
    if _definer(layer)[0].__name__ in _GATED:
        gate = linear(layer, "gate_proj")
        weights = (gate.weight, gate.bias, up.weight, up.bias, down.weight, down.bias)
        return swiglu_mlp(x, *weights, activation=activation)
    return mlp(x, up.weight, up.bias, down.weight, down.bias, activation)


def _name_for(module: nn.Module) -> Tuple[Optional[str], Any]:
    """The layer name of a module and the condition to put on its class; (None, None) for none."""
    for name, condition in _CONDITIONS.items():
        if condition(module):
            return name, condition
    return None, None


def _definer(module: nn.Module) -> Tuple[type, str]:
    """The class that defines the module's forward pass, and the library it is from."""
    kind = next(kind for kind in type(module).__mro__ if "forward" in vars(kind))
    return kind, kind.__module__.split(".")[0]


def _is_layer_norm(module: nn.Module) -> bool:
    kind, library = _definer(module)
    return kind is nn.LayerNorm or (library == "timm" and kind.__name__ == "LayerNorm")


def _is_rms_norm(module: nn.Module) -> bool:
    kind, library = _definer(module)
    return library == "transformers" and kind.__name__ in _RMS_NORMS


def _is_mlp(module: nn.Module) -> bool:
    kind, library = _definer(module)
    if library != "transformers" or kind.__name__ not in _MLPS:
        return False
    try:
        for names in (_UP, _DOWN):
            linear(module, *names)
        _activation(module)
    except NeuronVitUnsupported:
        return False
    return True


_CONDITIONS = {"LayerNorm": _is_layer_norm, "RMSNorm": _is_rms_norm, "MLP": _is_mlp}


def _activation(layer: nn.Module) -> str:
    """The name of the function that the MLP's activation computes, found once for each module."""
    module = part(layer, "activation_fn", "act_fn", "act")
    kept = layer.__dict__.get(_ATTRIBUTE)
    if kept is None or kept[0] is not module:
        return _find_activation(layer, module)
    return kept[1]


@untraced("call the layer once before compiling it, to find its activation")
def _find_activation(layer: nn.Module, module: Any) -> str:
    name = activation_name(layer, module)
    # A tuple keeps the module out of the layer's submodules.
    layer.__dict__[_ATTRIBUTE] = (module, name)
    return name
