"""`linear`, `mlp` and `swiglu_mlp`: matrix products with biases, and the networks of a block."""

import math
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _autocast, _dispatch, _validate, reference
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops
from ._vmap import merge_into_images


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
        [..., out_features], dtype of `input`; the sums are float32. Under `torch.autocast` all
        tensors are first converted to its dtype, as by torch; so for `mlp` and `swiglu_mlp`.

    Raises:
        ValueError or TypeError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and no kernel covers the call.
    """
    input, weight, bias = _autocast.narrowed(input, weight, bias)
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
    *,
    norm_weight: Optional[Tensor] = None,
    norm_bias: Optional[Tensor] = None,
    norm_eps: float = 1e-6,
    norm: str = "layer",
) -> Tensor:
    """y = linear(norm(activation(linear(input, fc1_weight, fc1_bias))), fc2_weight, fc2_bias).

    Args:
        input: [..., features], bfloat16, float16 or float32 (float64 runs as PyTorch operations).
        fc1_weight: [hidden, features]; fc1_bias: [hidden] or None.
        fc2_weight: [out_features, hidden]; fc2_bias: [out_features] or None. Layouts of the
            weights as in `linear`; a copy is also made when only one of the two is packed.
        activation: "gelu" (exact), "gelu_tanh", "quick_gelu", "silu" or "relu".
        norm_weight: [hidden], weight of a norm of the hidden features; None for no norm.
        norm_bias: [hidden] or None. norm_eps: added to the variance.
        norm: "layer" or "rms" (without a bias), the kind of that norm.

    Returns:
        [..., out_features], dtype of `input`.

    Raises:
        As `linear`.
    """
    input, fc1_weight, fc1_bias, fc2_weight, fc2_bias, norm_weight, norm_bias = _autocast.narrowed(
        input, fc1_weight, fc1_bias, fc2_weight, fc2_bias, norm_weight, norm_bias
    )
    _validate.floating_tensor("mlp", "input", input, "at least 1")
    _validate.one_of("mlp", "activation", activation, _validate.ACTIVATIONS)
    _check_layer("mlp", "fc1_weight", fc1_weight, "fc1_bias", fc1_bias, input.shape[-1], input)
    hidden = fc1_weight.shape[0]
    _check_layer("mlp", "fc2_weight", fc2_weight, "fc2_bias", fc2_bias, hidden, input)
    inner = _inner_norm("mlp", norm_weight, norm_bias, norm_eps, norm, hidden, input)
    layout = "in_out" if _is_packed(fc1_weight) and _is_packed(fc2_weight) else "out_in"
    if layout == "in_out":
        stored1, stored2 = fc1_weight.t(), fc2_weight.t()
    else:
        stored1, stored2 = fc1_weight, fc2_weight
    out = ops.mlp(_rows(input), stored1, fc1_bias, stored2, fc2_bias, activation, layout, *inner)
    return out.reshape(*input.shape[:-1], fc2_weight.shape[0])


def swiglu_mlp(
    x: Tensor,
    w_gate: Tensor,
    b_gate: Optional[Tensor],
    w_up: Tensor,
    b_up: Optional[Tensor],
    w_down: Tensor,
    b_down: Optional[Tensor],
    *,
    activation: str = "silu",
    norm_weight: Optional[Tensor] = None,
    norm_bias: Optional[Tensor] = None,
    norm_eps: float = 1e-6,
    norm: str = "layer",
) -> Tensor:
    """y = linear(norm(gate * linear(x, w_up, b_up)), w_down, b_down), where the gate is
    activation(linear(x, w_gate, b_gate)).

    A packed matrix is passed as its two halves, for example `w_gate, w_up = w12.chunk(2)`; which
    half comes first is up to the model. The kernel reads the halves where they are.

    Args:
        x: [..., features], bfloat16, float16 or float32 (float64 runs as PyTorch operations).
        w_gate, w_up: [hidden, features]; b_gate, b_up: [hidden] or None.
        w_down: [out_features, hidden]; b_down: [out_features] or None. Layouts of the weights as
            in `linear`, where a half of a packed matrix counts as dense; a copy is also made when
            the three are not stored alike.
        activation: of the gate: "silu" (SwiGLU), "gelu" (exact), "gelu_tanh", "quick_gelu" or
            "relu".
        norm_weight, norm_bias, norm_eps, norm: a norm of the hidden features, as in `mlp`.

    Returns:
        [..., out_features], dtype of `x`.

    Raises:
        As `linear`.
    """
    name = "swiglu_mlp"
    x, w_gate, b_gate, w_up, b_up, w_down, b_down, norm_weight, norm_bias = _autocast.narrowed(
        x, w_gate, b_gate, w_up, b_up, w_down, b_down, norm_weight, norm_bias
    )
    _validate.floating_tensor(name, "x", x, "at least 1")
    _validate.one_of(name, "activation", activation, _validate.ACTIVATIONS)
    _check_layer(name, "w_gate", w_gate, "b_gate", b_gate, x.shape[-1], x, "x")
    hidden = w_gate.shape[0]
    _check_layer(name, "w_up", w_up, "b_up", b_up, x.shape[-1], x, "x")
    if w_up.shape[0] != hidden:
        raise _validate.fail(
            name,
            "w_up",
            f"has {w_up.shape[0]} rows",
            f"it must have those of w_gate, {hidden}",
            "Check how a packed matrix is split",
        )
    _check_layer(name, "w_down", w_down, "b_down", b_down, hidden, x, "x")
    inner = _inner_norm(name, norm_weight, norm_bias, norm_eps, norm, hidden, x, "x")
    weights = (w_gate, w_up, w_down)
    layout = "out_in"
    if _is_column_slice(w_gate) and _is_column_slice(w_up) and _is_packed(w_down):
        layout = "in_out"
        weights = tuple(weight.t() for weight in weights)
    gate, up, down = weights
    out = ops.swiglu_mlp(_rows(x), gate, b_gate, up, b_up, down, b_down, activation, layout, *inner)
    return out.reshape(*x.shape[:-1], w_down.shape[0])


def _inner_norm(
    function: str,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    eps: float,
    norm: str,
    hidden: int,
    input: Tensor,
    input_name: str = "input",
) -> Tuple[Optional[Tensor], Optional[Tensor], float, Optional[str]]:
    """What the operators take for the norm of the hidden features; the last is None without one."""
    _validate.one_of(function, "norm", norm, _validate.NORMS)
    _validate.epsilon(function, eps, "norm_eps")
    if bias is not None and (weight is None or norm == "rms"):
        raise _validate.fail(
            function,
            "norm_bias",
            "is given " + ("without norm_weight" if weight is None else "with norm='rms'"),
            "only a layer norm with a weight has a bias",
            "Pass None",
        )
    for name, tensor in (("norm_weight", weight), ("norm_bias", bias)):
        if tensor is not None:
            _validate.parameter(
                function, name, tensor, (hidden,), "the hidden features", input_name, input
            )
    return weight, bias, float(eps), None if weight is None else norm


def _check_layer(
    function: str,
    weight_name: str,
    weight: Tensor,
    bias_name: str,
    bias: Optional[Tensor],
    in_features: int,
    input: Tensor,
    input_name: str = "input",
) -> None:
    _validate.parameter(
        function,
        weight_name,
        weight,
        (None, in_features),
        "that is (out_features, in_features)",
        input_name,
        input,
    )
    if bias is not None:
        out_features = (weight.shape[0],)
        _validate.parameter(
            function, bias_name, bias, out_features, f"the rows of {weight_name}", input_name, input
        )


def _is_packed(weight: Tensor) -> bool:
    """Whether a weight in torch's layout is stored as dense [in_features, out_features]."""
    return weight.t().is_contiguous() and not weight.is_contiguous()


def _is_column_slice(weight: Tensor) -> bool:
    """Whether a weight in torch's layout is some columns of a dense [in_features, more]."""
    out_features, in_features = weight.shape
    columns = weight.stride(0) == 1 and weight.stride(1) >= max(out_features, 1)
    return columns and in_features > 0 and not weight.is_contiguous()


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
    norm_weight: Optional[Tensor],
    norm_bias: Optional[Tensor],
    norm_eps: float,
    norm: Optional[str],
) -> Tensor:
    shape = _mlp_shape(x, fc1_weight, fc2_weight, weight_layout, norm)
    return _dispatch.run(
        "mlp",
        (
            *(x, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, weight_layout),
            *(norm_weight, norm_bias, norm_eps, norm),
        ),
        shape,
    )


@torch.library.custom_op(add_op_namespace_prefix("swiglu_mlp"), mutates_args=())
def _swiglu_mlp(
    x: Tensor,
    gate_weight: Tensor,
    gate_bias: Optional[Tensor],
    up_weight: Tensor,
    up_bias: Optional[Tensor],
    down_weight: Tensor,
    down_bias: Optional[Tensor],
    activation: str,
    weight_layout: str,
    norm_weight: Optional[Tensor],
    norm_bias: Optional[Tensor],
    norm_eps: float,
    norm: Optional[str],
) -> Tensor:
    return _dispatch.run(
        "swiglu_mlp",
        (
            *(x, gate_weight, gate_bias, up_weight, up_bias, down_weight, down_bias),
            *(activation, weight_layout, norm_weight, norm_bias, norm_eps, norm),
        ),
        _mlp_shape(x, gate_weight, down_weight, weight_layout, norm),
        _for_kernel,
    )


def _mlp_shape(
    x: Tensor, first: Tensor, last: Tensor, weight_layout: str, norm: Optional[str]
) -> dict:
    return {
        "tokens": x.shape[0],
        "width": x.shape[1],
        "hidden": _out_features(first, weight_layout),
        "out": _out_features(last, weight_layout),
        "inner_norm": norm is not None,
    }


def _for_kernel(arguments: Sequence[Any]) -> List[Any]:
    """The launch arguments: two halves of a packed matrix as that matrix, all tensors dense."""
    x, gate, gate_bias, up, up_bias, *rest = arguments
    if _are_halves(gate, up):
        gate, gate_bias = _whole(gate), _joined_bias(gate, gate_bias, up_bias)
        up, up_bias = None, None
    elif _are_halves(up, gate):
        up, up_bias = _whole(up), _joined_bias(up, up_bias, gate_bias)
        gate, gate_bias = None, None
    return _dispatch.dense([x, gate, gate_bias, up, up_bias, *rest])


def _are_halves(first: Tensor, second: Tensor) -> bool:
    """Whether two [in, out] tensors are the left and the right half of one dense matrix."""
    columns = first.shape[1]
    return (
        first.shape == second.shape
        and first.stride() == second.stride() == (2 * columns, 1)
        and first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and second.storage_offset() - first.storage_offset() == columns
    )


def _whole(half: Tensor) -> Tensor:
    """The dense matrix that `half` is the left half of."""
    rows, columns = half.shape
    return half.as_strided((rows, 2 * columns), (2 * columns, 1), half.storage_offset())


def _joined_bias(
    weight: Tensor, first: Optional[Tensor], second: Optional[Tensor]
) -> Optional[Tensor]:
    """Two biases in a row, with zeros for one that is absent; None if both are."""
    if first is None and second is None:
        return None
    zeros = weight.new_zeros(weight.shape[1])
    return torch.cat([zeros if bias is None else bias for bias in (first, second)])


@_linear.register_fake
def _(x, weight, bias, weight_layout):
    return x.new_empty((x.shape[0], _out_features(weight, weight_layout)))


@_mlp.register_fake
def _(
    x, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, weight_layout,
    norm_weight, norm_bias, norm_eps, norm,
):  # fmt: skip
    return x.new_empty((x.shape[0], _out_features(fc2_weight, weight_layout)))


@_swiglu_mlp.register_fake
def _(
    x, gate_weight, gate_bias, up_weight, up_bias, down_weight, down_bias, activation,
    weight_layout, norm_weight, norm_bias, norm_eps, norm,
):  # fmt: skip
    return x.new_empty((x.shape[0], _out_features(down_weight, weight_layout)))


differentiate_reference(_linear, reference.linear)
differentiate_reference(_mlp, reference.mlp)
differentiate_reference(_swiglu_mlp, reference.swiglu_mlp)

for _operator in (_linear, _mlp, _swiglu_mlp):
    merge_into_images(_operator, {"x": 2})
