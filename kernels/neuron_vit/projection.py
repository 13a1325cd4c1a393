"""`linear` and `mlp`: matrix products with biases, and the two-layer network of a block."""

import math
from typing import Optional

import torch
from torch import Tensor

from . import _dispatch, _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops


def linear(input: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """y = input @ weight.T + bias, as `torch.nn.functional.linear`.

    Args:
        input: [..., in_features], bfloat16, float16 or float32 (float64 runs as PyTorch
            operations).
        weight: [out_features, in_features], the layout of `torch.nn.Linear`, with the dtype of
            `input`. A weight whose transpose is dense (`packed.t()` with `packed` of shape
            [in_features, out_features]) is read as it is; so is a dense one; any other is copied
            at every call.
        bias: [out_features] or None.

    Returns:
        [..., out_features], dtype of `input`; the sums are float32.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.
    """
    _validate.floating_tensor("linear", "input", input, "at least 1")
    _check_layer("linear", "weight", weight, "bias", bias, input.shape[-1], input)
    layout = "in_out" if _is_packed(weight) else "out_in"
    stored = weight.t() if layout == "in_out" else weight
    out = ops.linear(_rows(input), stored, bias, layout)
    return out.reshape(*input.shape[:-1], weight.shape[0])


def mlp(
    input: Tensor,
    fc1_weight: Tensor,
    fc1_bias: Optional[Tensor],
    fc2_weight: Tensor,
    fc2_bias: Optional[Tensor],
    activation: str = "gelu",
) -> Tensor:
    """y = linear(activation(linear(input, fc1_weight, fc1_bias)), fc2_weight, fc2_bias).

    Args:
        input: [..., features], bfloat16, float16 or float32 (float64 runs as PyTorch operations).
        fc1_weight: [hidden, features]; fc1_bias: [hidden] or None.
        fc2_weight: [out_features, hidden]; fc2_bias: [out_features] or None. Layouts of the
            weights as in `linear`; a copy is also made when only one of the two is packed.
        activation: "gelu" (exact), "gelu_tanh" or "quick_gelu".

    Returns:
        [..., out_features], dtype of `input`.

    Raises:
        As `linear`.
    """
    _validate.floating_tensor("mlp", "input", input, "at least 1")
    _validate.one_of("mlp", "activation", activation, _validate.ACTIVATIONS)
    _check_layer("mlp", "fc1_weight", fc1_weight, "fc1_bias", fc1_bias, input.shape[-1], input)
    hidden = fc1_weight.shape[0]
    _check_layer("mlp", "fc2_weight", fc2_weight, "fc2_bias", fc2_bias, hidden, input)
    layout = "in_out" if _is_packed(fc1_weight) and _is_packed(fc2_weight) else "out_in"
    if layout == "in_out":
        stored1, stored2 = fc1_weight.t(), fc2_weight.t()
    else:
        stored1, stored2 = fc1_weight, fc2_weight
    out = ops.mlp(_rows(input), stored1, fc1_bias, stored2, fc2_bias, activation, layout)
    return out.reshape(*input.shape[:-1], fc2_weight.shape[0])


def _check_layer(
    function: str,
    weight_name: str,
    weight: Tensor,
    bias_name: str,
    bias: Optional[Tensor],
    in_features: int,
    input: Tensor,
) -> None:
    _validate.parameter(
        function,
        weight_name,
        weight,
        (None, in_features),
        "that is (out_features, in_features)",
        "input",
        input,
    )
    if bias is not None:
        out_features = (weight.shape[0],)
        _validate.parameter(
            function, bias_name, bias, out_features, f"the rows of {weight_name}", "input", input
        )


def _is_packed(weight: Tensor) -> bool:
    """Whether a weight in torch's layout is stored as dense [in_features, out_features]."""
    return weight.t().is_contiguous() and not weight.is_contiguous()


def _rows(input: Tensor) -> Tensor:
    return input.reshape(math.prod(input.shape[:-1]), input.shape[-1])


def _out_features(weight: Tensor, weight_layout: str) -> int:
    return weight.shape[1] if weight_layout == "in_out" else weight.shape[0]


@torch.library.custom_op(add_op_namespace_prefix("linear"), mutates_args=())
def _linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], weight_layout: str) -> Tensor:
    tokens, in_features = x.shape
    shape = {
        "tokens": tokens,
        "in_features": in_features,
        "out_features": _out_features(weight, weight_layout),
    }
    return _dispatch.run("linear", (x, weight, bias, weight_layout), shape)


@torch.library.custom_op(add_op_namespace_prefix("mlp"), mutates_args=())
def _mlp(
    x: Tensor,
    fc1_weight: Tensor,
    fc1_bias: Optional[Tensor],
    fc2_weight: Tensor,
    fc2_bias: Optional[Tensor],
    activation: str,
    weight_layout: str,
) -> Tensor:
    tokens, width = x.shape
    shape = {
        "tokens": tokens,
        "width": width,
        "hidden": _out_features(fc1_weight, weight_layout),
        "out": _out_features(fc2_weight, weight_layout),
    }
    return _dispatch.run(
        "mlp",
        (x, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, weight_layout),
        shape,
    )


@_linear.register_fake
def _(x, weight, bias, weight_layout):
    return x.new_empty((x.shape[0], _out_features(weight, weight_layout)))


@_mlp.register_fake
def _(x, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, weight_layout):
    return x.new_empty((x.shape[0], _out_features(fc2_weight, weight_layout)))


differentiate_reference(_linear, reference.linear)
differentiate_reference(_mlp, reference.mlp)
