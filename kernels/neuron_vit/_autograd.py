"""The derivatives of every operator: those of the reference.

- A backward pass computes the forward result again from the saved inputs with PyTorch operations,
  and PyTorch differentiates those; so for second derivatives. No NKI kernel runs in it.
- `torch.func.grad`, `vjp`, `jvp`, `hessian` ... and forward-mode AD differentiate what they run, so
  under them the call itself runs as PyTorch operations. On an NKI path that is a fallback like any
  other: a warning, or an error with NEURON_VIT_REQUIRE_NKI=1.
"""

import functools
from typing import Any, Callable, Sequence

import torch
from torch._library.autograd import make_autograd_impl
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import _autocast, _dispatch

_TRANSFORMED = (
    "torch.func and forward-mode AD differentiate PyTorch operations, not kernels",
    "call the function outside of them, or differentiate with torch.autograd, whose forward pass "
    "runs the kernel",
)

# Devices that get the rule for transforms; on others these are refused by PyTorch or give None.
_DEVICE_KEYS = ("CPU", "CUDA", "MPS", "XPU", "XLA", "PrivateUse1", "Meta")


def differentiate_reference(operator: Any, function: Callable[..., Any]) -> None:
    """Give `operator` its derivatives.

    `function` takes the operator's arguments and returns what it returns, in PyTorch operations.
    """

    def keep_inputs(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.positions = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*(inputs[i] for i in ctx.positions))
        ctx.constants = [None if isinstance(v, torch.Tensor) else v for v in inputs]

    def backward(ctx: Any, *gradients: Any) -> Any:
        arguments = list(ctx.constants)
        for position, tensor in zip(ctx.positions, ctx.saved_tensors):
            arguments[position] = tensor
        wanted = [position for position in ctx.positions if ctx.needs_input_grad[position]]

        def of_wanted(*values: torch.Tensor) -> Any:
            changed = list(arguments)
            for position, value in zip(wanted, values):
                changed[position] = value
            # Gradients are recorded here only where they are to be differentiated once more.
            if torch.is_grad_enabled():
                return _in_differentiable_operations(function, changed)
            return function(*changed)

        with _autocast.disabled(ctx.saved_tensors[0].device):
            _, pull_back = torch.func.vjp(of_wanted, *(arguments[i] for i in wanted))
            pulled = pull_back(gradients if len(gradients) > 1 else gradients[0])
        result = [None] * len(arguments)
        for position, gradient in zip(wanted, pulled):
            result[position] = gradient
        return tuple(result)

    operator.register_autograd(backward, setup_context=keep_inputs)
    _register_transforms(operator, function)


def _register_transforms(operator: Any, function: Callable[..., Any]) -> None:
    overload = operator._opoverload
    name = operator._name
    by_autograd = make_autograd_impl(overload, operator)

    @functools.wraps(function)
    def differentiable(*arguments: Any) -> Any:
        return _in_differentiable_operations(function, arguments)

    def run(keyset: Any, *arguments: Any) -> Any:
        if not _is_transformed(arguments):
            return by_autograd(keyset, *arguments)
        complete = list(arguments)
        for argument in overload._schema.arguments[len(arguments) :]:
            complete.append(argument.default_value)
        return _dispatch.run_without_kernel(name, differentiable, complete, *_TRANSFORMED)

    # In the operator's own library, which PyTorch replaces when the operator is defined again.
    for key in _DEVICE_KEYS:
        operator._lib.impl(name, run, f"Autograd{key}", with_keyset=True)


def _is_transformed(arguments: Sequence[Any]) -> bool:
    """Whether a transform that is active wants the derivative with respect to an argument."""
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        return True
    return (
        torch._C._are_functorch_transforms_active()
        and torch.is_grad_enabled()
        and any(tensor.requires_grad for tensor in tensors)
    )


def _in_differentiable_operations(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """`function`, with an attention that has forward-mode and second derivatives."""
    with sdpa_kernel(SDPBackend.MATH):
        return function(*arguments)
