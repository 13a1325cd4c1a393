"""The backward rule of every operator: differentiate the reference.

The forward result is computed again from the saved inputs with PyTorch operations, and PyTorch
differentiates those. No NKI kernel runs in a backward pass.
"""

from typing import Any, Callable

import torch


def differentiate_reference(operator: Any, function: Callable[..., Any]) -> None:
    """Give `operator` a backward rule.

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
            return function(*changed)

        _, pull_back = torch.func.vjp(of_wanted, *(arguments[position] for position in wanted))
        result = [None] * len(arguments)
        pulled = pull_back(gradients if len(gradients) > 1 else gradients[0])
        for position, gradient in zip(wanted, pulled):
            result[position] = gradient
        return tuple(result)

    operator.register_autograd(backward, setup_context=keep_inputs)
