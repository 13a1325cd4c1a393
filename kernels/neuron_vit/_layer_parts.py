"""The parts that the layers of model libraries have in common, and how a part is refused."""

from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

import torch
from torch import Tensor, nn

from ._validate import ACTIVATIONS
from .errors import NeuronVitUnsupported
from .reference.mlp import activate

# Norms over the last dimension by the class that defines their forward pass, and their kind.
NORMS = {
    "LayerNorm": "layer",
    "timm.norm.LayerNorm": "layer",
    "RMSNorm": "rms",
    "timm.norm.RmsNorm": "rms",
    "Aimv2RMSNorm": "rms",
    "InternVLVisionRMSNorm": "rms",
    "PixtralRMSNorm": "rms",
    "Qwen2_5_VLRMSNorm": "rms",
}

# Where an activation is compared with the known ones. The tanh approximation of GELU is up to
# 4.7e-4 away from the exact one and the sigmoid one up to 2e-2, both within [-4, 4]; the outer
# points show a function that clips.
_PROBE_LIMIT, _PROBE_POINTS, _PROBE_TOLERANCE = 20.0, 801, 1e-6


@dataclass(frozen=True)
class Norm:
    """What a norm module computes: `kind` is "layer" or "rms"."""

    weight: Tensor
    bias: Optional[Tensor]
    kind: str
    eps: float


def defining_class(module: Any) -> str:
    """The class whose `forward` the module runs, or ran before `apply` replaced it.

    The name alone for classes of torch and transformers; with the file in front for timm's, as
    "timm.eva.EvaBlock", because names such as Block and Attention are those of many; with the
    whole module for others, whose names mean nothing here.
    """
    for candidate in type(module).__mro__:
        if "forward" in vars(candidate) and "_neuron_vit_original" not in vars(candidate):
            path = candidate.__module__.split(".")
            if path[0] in ("torch", "transformers"):
                return candidate.__name__
            file = f"timm.{path[-1]}" if path[0] == "timm" else candidate.__module__
            return f"{file}.{candidate.__name__}"
    return type(module).__name__


def refused(module: Any, found: str, allowed: str) -> NeuronVitUnsupported:
    """The error to raise: `module` is not what it must be."""
    return NeuronVitUnsupported(
        f"neuron-vit: BlockParams.from_module: {type(module).__name__}: {found}; it must {allowed}."
    )


def what_is_wrong(error: Exception) -> str:
    """The text of such an error without who raises it, as a reason in a report."""
    return str(error).split("from_module: ")[-1].rstrip(".")


def known(module: nn.Module, definers: Sequence[str]) -> str:
    """The class that defines the module's forward pass, which must be one of `definers`."""
    found = defining_class(module)
    if found not in definers:
        raise refused(
            module, f"its forward pass is that of {found}", f"be that of {', '.join(definers)}"
        )
    return found


def part(module: nn.Module, *names: str) -> Any:
    """The first of these attributes that is there."""
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    members = [name for name, _ in module.named_children()]
    raise refused(module, f"its parts are {', '.join(members)}", f"have {' or '.join(names)}")


def linear(module: nn.Module, *names: str) -> nn.Linear:
    """The first of these attributes that is there, a `torch.nn.Linear`."""
    found = part(module, *names)
    if type(found) is not nn.Linear:
        kind = type(found)
        # Quantised ones have the same name.
        name = f"{kind.__module__}.Linear" if kind.__name__ == "Linear" else kind.__name__
        raise refused(module, f"{names[0]} is a {name}", "be a torch.nn.Linear")
    return found


def read_norm(module: nn.Module, *names: str) -> Norm:
    """The norm under the first of these names that is there."""
    found = part(module, *names)
    kind = NORMS.get(defining_class(found))
    if kind is None:
        raise refused(
            module,
            f"{names[0]} is a {type(found).__name__}",
            "be a LayerNorm or an RMSNorm of torch, transformers or timm",
        )
    if found.weight is None:
        raise refused(found, "it has no weight", "have elementwise_affine=True")
    eps = part(found, "eps", "variance_epsilon")
    if eps is None:
        raise refused(found, "its eps is None", "have an eps")
    return Norm(copy(found.weight), copy(getattr(found, "bias", None)), kind, float(eps))


def read_optional_norm(module: nn.Module, name: str) -> Optional[Norm]:
    """The norm of this name, None where it is absent, None or an Identity."""
    found = getattr(module, name, None)
    if found is None or type(found) is nn.Identity:
        return None
    return read_norm(module, name)


def require_absent(module: nn.Module, name: str) -> None:
    """`module` computes nothing under this name."""
    found = getattr(module, name, None)
    if found is not None and type(found) is not nn.Identity:
        raise refused(module, f"{name} is a {type(found).__name__}", f"have no {name}")


def copy(parameter: Optional[Tensor]) -> Optional[Tensor]:
    """A detached copy; None stays None."""
    return None if parameter is None else parameter.detach().clone()


def transposed(weight: Tensor) -> Tensor:
    """The weight of a Linear as dense [in, out]."""
    # A copy also where the transpose is already dense, as for a width of 1.
    return weight.detach().t().clone(memory_format=torch.contiguous_format)


def joined(
    biases: Sequence[Optional[Tensor]], sizes: Sequence[int], like: Tensor
) -> Optional[Tensor]:
    """The biases in a row, with zeros for one that is None; None if all are."""
    if all(bias is None for bias in biases):
        return None
    parts = [like.new_zeros(size) if bias is None else bias for bias, size in zip(biases, sizes)]
    return torch.cat(parts).detach()


def layer_scale(layer: nn.Module, *names: str) -> Optional[Tensor]:
    """The factors of LayerScale under the first of these names that is there: a parameter, or a
    module that holds it. None where there is none."""
    for name in names:
        found = getattr(layer, name, None)
        if isinstance(found, Tensor):
            return copy(found)
        if found is not None and found != 1.0 and type(found) is not nn.Identity:
            return copy(part(found, "lambda1", "gamma"))
    return None


def dropout_of(layer: nn.Module) -> str:
    """What of the layer drops values in training mode, such as "dropout.p is 0.1"; else ""."""
    for name, module in layer.named_modules():
        for attribute in ("p", "drop_prob", "attention_dropout", "dropout"):
            probability = getattr(module, attribute, None)
            if isinstance(probability, (int, float)) and probability > 0:
                return f"{name}.{attribute} is {probability}"
    return ""


def refuse_active_dropout(layer: nn.Module) -> None:
    """In training mode a layer drops values, which the kernel does not."""
    dropout = dropout_of(layer) if layer.training else ""
    if dropout:
        raise refused(
            layer,
            f"it is in training mode and {dropout}",
            "be in evaluation mode, after layer.eval()",
        )


def activation_name(mlp: nn.Module, activation: Callable[[Tensor], Tensor]) -> str:
    """The name of the function that `activation` computes, found by comparing values."""
    rule = f"compute {' or '.join(ACTIVATIONS)}"
    if isinstance(activation, nn.Module) and any(True for _ in activation.parameters()):
        raise refused(mlp, f"{type(activation).__name__} has parameters", rule)
    # Through forward, so that hooks on the module do not see the probe.
    function = activation.forward if isinstance(activation, nn.Module) else activation
    points = torch.linspace(-_PROBE_LIMIT, _PROBE_LIMIT, _PROBE_POINTS, dtype=torch.float64)
    with torch.no_grad():
        values = function(points)
    for name in ACTIVATIONS:
        if torch.allclose(values, activate(points, name), rtol=0.0, atol=_PROBE_TOLERANCE):
            return name
    found = getattr(activation, "__name__", type(activation).__name__)
    raise refused(mlp, f"its activation {found} is none of these", rule)
