"""`layer_norm` and `rms_norm`, the twins of `torch.nn.functional`, with an optional residual, and
`ada_layer_norm` and `ada_rms_norm`, which an image's shift, scale and gate modulate."""

import math
from typing import Any, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from . import _autocast, _dispatch, _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops
from ._vmap import merge_into_images


def layer_norm(
    input: Tensor,
    normalized_shape: Union[int, Sequence[int]],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-5,
    *,
    residual: Optional[Tensor] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """Layer norm over the last dimensions, as `torch.nn.functional.layer_norm`.

    Args:
        input: [..., *normalized_shape], bfloat16, float16 or float32 (float64 runs as PyTorch
            operations).
        normalized_shape: the sizes of the dimensions that are normalised together.
        weight, bias: [*normalized_shape] or None, with the dtype of `input`.
        eps: added to the variance.
        residual: a tensor like `input` that is added to it first, or None.

    Returns:
        The normalised tensor, shape and dtype of `input`. With a residual: that tensor and the sum
        `input + residual`, which is where the residual stream goes on. Statistics are float32.
        Under `torch.autocast` the dtype is that to which `input` and `residual` promote, and
        weight and bias are converted to it.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.
    """
    (input, residual), (weight, bias) = _autocast.promoted((input, residual), (weight, bias))
    shape = _normalized_shape("layer_norm", input, normalized_shape, eps)
    rows, weight, residual = _operands("layer_norm", input, shape, weight, residual)
    if bias is not None:
        _validate.parameter(
            "layer_norm", "bias", bias, shape, "which is normalized_shape", "input", input
        )
        bias = bias.reshape(-1)
    if residual is None:
        return ops.layer_norm(rows, weight, bias, eps).reshape(input.shape)
    normalized, total = ops.add_layer_norm(rows, residual, weight, bias, eps)
    return normalized.reshape(input.shape), total.reshape(input.shape)


def rms_norm(
    input: Tensor,
    normalized_shape: Union[int, Sequence[int]],
    weight: Optional[Tensor] = None,
    eps: Optional[float] = None,
    *,
    residual: Optional[Tensor] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """RMS norm over the last dimensions, as `torch.nn.functional.rms_norm`.

    Arguments, results and errors as in `layer_norm`. `eps` None is the `torch.finfo(dtype).eps` of
    the dtype of the statistics: float32, or float64 for such an input.
    """
    (input, residual), (weight,) = _autocast.promoted((input, residual), (weight,))
    if eps is None:
        _validate.floating_tensor("rms_norm", "input", input)
        statistics = torch.float64 if input.dtype == torch.float64 else torch.float32
        eps = torch.finfo(statistics).eps
    shape = _normalized_shape("rms_norm", input, normalized_shape, eps)
    rows, weight, residual = _operands("rms_norm", input, shape, weight, residual)
    if residual is None:
        return ops.rms_norm(rows, weight, eps).reshape(input.shape)
    normalized, total = ops.add_rms_norm(rows, residual, weight, eps)
    return normalized.reshape(input.shape), total.reshape(input.shape)


def ada_layer_norm(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    *,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-6,
    residual: Optional[Tensor] = None,
    gate: Optional[Tensor] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """layer_norm(x) * (1 + scale) + shift, the adaptive norm of diffusion transformers.

    With `residual`, the gated sum at the end of the branch before comes first, in the same launch:
    s = residual + gate * x, then the norm of s.

    Args:
        x: [batch, tokens, features], bfloat16, float16 or float32 (float64 runs as PyTorch
            operations).
        shift, scale: [batch, features] or [batch, 1, features], one row an image.
        weight, bias: [features], the norm's own parameters, or None.
        eps: added to the variance.
        residual: a tensor like `x`, or None.
        gate: like `scale`, or None for 1; only with `residual`.

    Returns:
        The modulated tensor, shape and dtype of `x`; with a residual that tensor and s, which is
        where the residual stream goes on. Statistics and modulation are float32.

    Raises:
        As `layer_norm`.
    """
    (x, shift, scale, residual, gate), (weight, bias) = _autocast.promoted(
        (x, shift, scale, residual, gate), (weight, bias)
    )
    shift, scale, gate = _modulation("ada_layer_norm", x, shift, scale, weight, eps, residual, gate)
    if bias is not None:
        _validate.parameter(
            "ada_layer_norm", "bias", bias, x.shape[-1:], "the features of x", "x", x
        )
    if residual is None:
        return ops.ada_layer_norm(x, shift, scale, weight, bias, eps)
    return ops.add_ada_layer_norm(x, shift, scale, weight, bias, residual, gate, eps)


def ada_rms_norm(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    *,
    weight: Optional[Tensor] = None,
    eps: float = 1e-6,
    residual: Optional[Tensor] = None,
    gate: Optional[Tensor] = None,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """rms_norm(x) * (1 + scale) + shift; arguments, results and errors as in `ada_layer_norm`."""
    (x, shift, scale, residual, gate), (weight,) = _autocast.promoted(
        (x, shift, scale, residual, gate), (weight,)
    )
    shift, scale, gate = _modulation("ada_rms_norm", x, shift, scale, weight, eps, residual, gate)
    if residual is None:
        return ops.ada_rms_norm(x, shift, scale, weight, eps)
    return ops.add_ada_rms_norm(x, shift, scale, weight, residual, gate, eps)


def _modulation(
    function: str,
    x: Tensor,
    shift: Any,
    scale: Any,
    weight: Any,
    eps: Any,
    residual: Any,
    gate: Any,
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Shift, scale and gate as [batch, features], all arguments checked."""
    _validate.floating_tensor(function, "x", x, "exactly 3")
    _validate.epsilon(function, eps)
    if weight is not None:
        _validate.parameter(function, "weight", weight, x.shape[-1:], "the features of x", "x", x)
    if residual is not None:
        _validate.parameter(function, "residual", residual, x.shape, "the shape of x", "x", x)
    elif gate is not None:
        raise _validate.fail(
            function,
            "gate",
            "is given without residual",
            "it weighs x in the sum with residual",
            "Pass the residual too",
        )
    return (
        _image_rows(function, "shift", shift, x),
        _image_rows(function, "scale", scale, x),
        None if gate is None else _image_rows(function, "gate", gate, x),
    )


def _image_rows(function: str, argument: str, value: Any, x: Tensor) -> Tensor:
    """A tensor of one row an image, as [batch, features]."""
    batch, _, features = x.shape
    _validate.is_tensor(function, argument, value)
    if tuple(value.shape) == (batch, 1, features):
        value = value.squeeze(1)
    _validate.parameter(
        function,
        argument,
        value,
        (batch, features),
        f"one row an image, or ({batch}, 1, {features})",
        "x",
        x,
    )
    return value


def _normalized_shape(function: str, input: Any, normalized_shape: Any, eps: Any) -> Tuple:
    _validate.floating_tensor(function, "input", input, "at least 1")
    _validate.epsilon(function, eps)
    shape = normalized_shape
    if not isinstance(shape, (list, tuple)):
        shape = (shape,)
    if not all(_validate.is_integer(size) for size in shape):
        raise TypeError(
            f"neuron-vit: {function}: normalized_shape is {normalized_shape!r}; it must be an "
            f"integer or a sequence of integers. For the last dimension alone pass "
            f"({input.shape[-1]},)."
        )
    shape = tuple(shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise _validate.fail(
            function,
            "normalized_shape",
            f"is {shape}",
            f"it must be the last sizes of input, whose shape is {tuple(input.shape)}",
            f"For the last dimension alone pass ({input.shape[-1]},)",
        )
    return shape


def _operands(
    function: str, input: Tensor, shape: Tuple, weight: Any, residual: Any
) -> Tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
    """Input, weight and residual as [rows, width], [width] and [rows, width]."""
    width = math.prod(shape)
    rows = math.prod(input.shape[: -len(shape)])
    if weight is not None:
        _validate.parameter(
            function, "weight", weight, shape, "which is normalized_shape", "input", input
        )
        weight = weight.reshape(-1)
    if residual is not None:
        _validate.parameter(
            function, "residual", residual, input.shape, "the shape of input", "input", input
        )
        residual = residual.reshape(rows, width)
    return input.reshape(rows, width), weight, residual


@torch.library.custom_op(add_op_namespace_prefix("layer_norm"), mutates_args=())
def _layer_norm(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> Tensor:
    return _dispatch.run("layer_norm", (x, weight, bias, None, eps), {"width": x.shape[1]})


@torch.library.custom_op(add_op_namespace_prefix("add_layer_norm"), mutates_args=())
def _add_layer_norm(
    x: Tensor, residual: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float
) -> Tuple[Tensor, Tensor]:
    return _dispatch.run("layer_norm", (x, weight, bias, residual, eps), {"width": x.shape[1]})


@torch.library.custom_op(add_op_namespace_prefix("rms_norm"), mutates_args=())
def _rms_norm(x: Tensor, weight: Optional[Tensor], eps: float) -> Tensor:
    return _dispatch.run("rms_norm", (x, weight, None, eps), {"width": x.shape[1]})


@torch.library.custom_op(add_op_namespace_prefix("add_rms_norm"), mutates_args=())
def _add_rms_norm(
    x: Tensor, residual: Tensor, weight: Optional[Tensor], eps: float
) -> Tuple[Tensor, Tensor]:
    return _dispatch.run("rms_norm", (x, weight, residual, eps), {"width": x.shape[1]})


@torch.library.custom_op(add_op_namespace_prefix("ada_layer_norm"), mutates_args=())
def _ada_layer_norm(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    eps: float,
) -> Tensor:
    arguments = (x, shift, scale, weight, bias, None, None, eps)
    return _dispatch.run("ada_layer_norm", arguments, {"width": x.shape[2]})


@torch.library.custom_op(add_op_namespace_prefix("add_ada_layer_norm"), mutates_args=())
def _add_ada_layer_norm(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    residual: Tensor,
    gate: Optional[Tensor],
    eps: float,
) -> Tuple[Tensor, Tensor]:
    arguments = (x, shift, scale, weight, bias, residual, gate, eps)
    return _dispatch.run("ada_layer_norm", arguments, {"width": x.shape[2]})


@torch.library.custom_op(add_op_namespace_prefix("ada_rms_norm"), mutates_args=())
def _ada_rms_norm(
    x: Tensor, shift: Tensor, scale: Tensor, weight: Optional[Tensor], eps: float
) -> Tensor:
    arguments = (x, shift, scale, weight, None, None, eps)
    return _dispatch.run("ada_rms_norm", arguments, {"width": x.shape[2]})


@torch.library.custom_op(add_op_namespace_prefix("add_ada_rms_norm"), mutates_args=())
def _add_ada_rms_norm(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    weight: Optional[Tensor],
    residual: Tensor,
    gate: Optional[Tensor],
    eps: float,
) -> Tuple[Tensor, Tensor]:
    arguments = (x, shift, scale, weight, residual, gate, eps)
    return _dispatch.run("ada_rms_norm", arguments, {"width": x.shape[2]})


@_layer_norm.register_fake
def _(x, weight, bias, eps):
    return x.new_empty(x.shape)


@_add_layer_norm.register_fake
def _(x, residual, weight, bias, eps):
    return x.new_empty(x.shape), x.new_empty(x.shape)


@_rms_norm.register_fake
def _(x, weight, eps):
    return x.new_empty(x.shape)


@_add_rms_norm.register_fake
def _(x, residual, weight, eps):
    return x.new_empty(x.shape), x.new_empty(x.shape)


differentiate_reference(
    _layer_norm, lambda x, weight, bias, eps: reference.layer_norm(x, weight, bias, None, eps)
)
differentiate_reference(
    _add_layer_norm,
    lambda x, residual, weight, bias, eps: reference.layer_norm(x, weight, bias, residual, eps),
)
differentiate_reference(_rms_norm, lambda x, weight, eps: reference.rms_norm(x, weight, None, eps))
differentiate_reference(
    _add_rms_norm,
    lambda x, residual, weight, eps: reference.rms_norm(x, weight, residual, eps),
)


@_ada_layer_norm.register_fake
def _(x, shift, scale, weight, bias, eps):
    return x.new_empty(x.shape)


@_add_ada_layer_norm.register_fake
def _(x, shift, scale, weight, bias, residual, gate, eps):
    return x.new_empty(x.shape), x.new_empty(x.shape)


@_ada_rms_norm.register_fake
def _(x, shift, scale, weight, eps):
    return x.new_empty(x.shape)


@_add_ada_rms_norm.register_fake
def _(x, shift, scale, weight, residual, gate, eps):
    return x.new_empty(x.shape), x.new_empty(x.shape)


differentiate_reference(
    _ada_layer_norm,
    lambda x, shift, scale, weight, bias, eps: reference.ada_layer_norm(
        x, shift, scale, weight, bias, None, None, eps
    ),
)
differentiate_reference(_add_ada_layer_norm, reference.ada_layer_norm)
differentiate_reference(
    _ada_rms_norm,
    lambda x, shift, scale, weight, eps: reference.ada_rms_norm(
        x, shift, scale, weight, None, None, eps
    ),
)
differentiate_reference(_add_ada_rms_norm, reference.ada_rms_norm)

for _operator, _rank in (
    (_layer_norm, 2),
    (_add_layer_norm, 2),
    (_rms_norm, 2),
    (_add_rms_norm, 2),
    (_ada_layer_norm, 3),
    (_add_ada_layer_norm, 3),
    (_ada_rms_norm, 3),
    (_add_ada_rms_norm, 3),
):
    merge_into_images(_operator, {"x": _rank, "residual": _rank, "shift": 2, "scale": 2, "gate": 2})
