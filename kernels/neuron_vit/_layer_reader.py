"""Reading a transformer layer of a model library into the arguments of `BlockParams`.

What the layer computes is read from its modules. The name of the class that defines `forward` is
asked only whether that forward pass is the block that the kernel computes: layers with rotary
embeddings or a norm after the sum have the same submodules.
"""

from typing import Any, Callable, Dict, Optional, Sequence

import torch
from torch import Tensor, nn

from ._validate import ACTIVATIONS
from .errors import NeuronVitUnsupported
from .reference.mlp import activate

_LAYERS = (
    "ViTLayer",
    "DeiTLayer",
    "Dinov2Layer",
    "Dinov2WithRegistersLayer",
    "CLIPEncoderLayer",
    "SiglipEncoderLayer",
)

# Where an activation is compared with the known ones. The tanh approximation of GELU is up to
# 4.7e-4 away from the exact one and the sigmoid one up to 2e-2, both within [-4, 4]; the outer
# points show a function that clips.
_PROBE_LIMIT, _PROBE_POINTS, _PROBE_TOLERANCE = 20.0, 801, 1e-6


def read_layer(layer: nn.Module) -> Dict[str, Any]:
    """The arguments of `BlockParams` for `layer`; `BlockParams.from_module` says the rest."""
    kind = _defining_class(layer)
    if kind not in _LAYERS:
        raise NeuronVitUnsupported(
            f"neuron-vit: BlockParams.from_module: the layer is a {type(layer).__name__} with the "
            f"forward pass of {kind}; it must be one of {', '.join(_LAYERS)}. Build BlockParams "
            "from the layer's tensors, if it computes the same block."
        )
    _refuse_active_dropout(layer)
    attention = _part(layer, "attention", "self_attn")
    norm1 = _norm(layer, "layernorm_before", "norm1", "layer_norm1")
    norm2 = _norm(layer, "layernorm_after", "norm2", "layer_norm2")
    if norm1.eps != norm2.eps:
        raise _refused(layer, f"its norms have eps {norm1.eps} and {norm2.eps}", "be equal")
    if getattr(attention, "is_causal", False):
        raise _refused(layer, "its attention is causal", "be bidirectional")

    projections = [_linear(attention, name) for name in ("q_proj", "k_proj", "v_proj")]
    output = _linear(attention, "o_proj", "out_proj")
    mlp = _part(layer, "mlp")
    fc1, fc2 = _linear(mlp, "fc1"), _linear(mlp, "fc2")
    with torch.no_grad():
        return {
            "norm1_weight": _norm_weight(norm1),
            "norm1_bias": _copy(norm1.bias),
            "qkv_weight": torch.cat([module.weight for module in projections]).t().contiguous(),
            "qkv_bias": _joined_bias(projections),
            "proj_weight": _transposed(output),
            "proj_bias": _copy(output.bias),
            "scale1": _layer_scale(layer, "layer_scale1"),
            "norm2_weight": _norm_weight(norm2),
            "norm2_bias": _copy(norm2.bias),
            "fc1_weight": _transposed(fc1),
            "fc1_bias": _copy(fc1.bias),
            "fc2_weight": _transposed(fc2),
            "fc2_bias": _copy(fc2.bias),
            "scale2": _layer_scale(layer, "layer_scale2"),
            "num_heads": int(_part(attention, "num_attention_heads", "num_heads")),
            "eps": float(norm1.eps),
            "norm": "layer",
            "activation": _activation(mlp, _part(mlp, "activation_fn")),
            "attention_scale": float(_part(attention, "scaling", "scale")),
        }


def _defining_class(layer: Any) -> str:
    for candidate in type(layer).__mro__:
        if "forward" in vars(candidate):
            return candidate.__name__
    return type(layer).__name__


def _refused(module: Any, found: str, allowed: str) -> NeuronVitUnsupported:
    return NeuronVitUnsupported(
        f"neuron-vit: BlockParams.from_module: {type(module).__name__}: {found}; it must {allowed}."
    )


def _part(module: nn.Module, *names: str) -> Any:
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    members = [name for name, _ in module.named_children()]
    raise _refused(module, f"its parts are {', '.join(members)}", f"have {' or '.join(names)}")


def _linear(module: nn.Module, *names: str) -> nn.Linear:
    found = _part(module, *names)
    if type(found) is not nn.Linear:
        raise _refused(module, f"{names[0]} is a {type(found).__name__}", "be a torch.nn.Linear")
    return found


def _norm(layer: nn.Module, *names: str) -> nn.LayerNorm:
    found = _part(layer, *names)
    if type(found) is not nn.LayerNorm:
        raise _refused(layer, f"{names[0]} is a {type(found).__name__}", "be a torch.nn.LayerNorm")
    return found


def _norm_weight(norm: nn.LayerNorm) -> Tensor:
    if norm.weight is None:
        raise _refused(norm, "it has no weight", "have elementwise_affine=True")
    return norm.weight.detach().clone()


def _copy(parameter: Optional[Tensor]) -> Optional[Tensor]:
    return None if parameter is None else parameter.detach().clone()


def _transposed(linear: nn.Linear) -> Tensor:
    # A copy also where the transpose is already dense, as for a width of 1.
    return linear.weight.t().clone(memory_format=torch.contiguous_format)


def _joined_bias(projections: Sequence[nn.Linear]) -> Optional[Tensor]:
    """The biases in a row, with zeros for a projection that has none."""
    if all(module.bias is None for module in projections):
        return None
    return torch.cat(
        [
            module.weight.new_zeros(module.out_features) if module.bias is None else module.bias
            for module in projections
        ]
    )


def _layer_scale(layer: nn.Module, name: str) -> Optional[Tensor]:
    module = getattr(layer, name, None)
    return None if module is None else _copy(_part(module, "lambda1"))


def _refuse_active_dropout(layer: nn.Module) -> None:
    """In training mode a layer drops values, which the kernel does not."""
    if not layer.training:
        return
    for name, module in layer.named_modules():
        for attribute in ("p", "drop_prob", "attention_dropout", "dropout"):
            probability = getattr(module, attribute, None)
            if isinstance(probability, (int, float)) and probability > 0:
                raise _refused(
                    layer,
                    f"it is in training mode and {name}.{attribute} is {probability}",
                    "be in evaluation mode, after layer.eval()",
                )


def _activation(mlp: nn.Module, activation: Callable[[Tensor], Tensor]) -> str:
    """The name of the function that `activation` computes, found by comparing values."""
    if isinstance(activation, nn.Module) and any(True for _ in activation.parameters()):
        raise _refused(mlp, f"{type(activation).__name__} has parameters", _activation_rule())
    # Through forward, so that hooks on the module do not see the probe.
    function = activation.forward if isinstance(activation, nn.Module) else activation
    points = torch.linspace(-_PROBE_LIMIT, _PROBE_LIMIT, _PROBE_POINTS, dtype=torch.float64)
    with torch.no_grad():
        values = function(points)
    for name in ACTIVATIONS:
        if torch.allclose(values, activate(points, name), rtol=0.0, atol=_PROBE_TOLERANCE):
            return name
    found = getattr(activation, "__name__", type(activation).__name__)
    raise _refused(mlp, f"its activation {found} is none of these", _activation_rule())


def _activation_rule() -> str:
    return f"compute {' or '.join(ACTIVATIONS)}"
