"""Checks on what callers pass in. Every error names the argument, what was found and what to do.

All functions take the public function's name first, for the message. They only look at shapes,
dtypes and devices, so that `torch.compile` can trace them.
"""

from typing import Any, Optional, Sequence, Tuple

import torch

FLOATING = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_FLOATING_NAMES = "bfloat16, float16, float32 or float64"

ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "silu", "relu")
NORMS = ("layer", "rms")
ROPES = ("half", "interleaved")


def fail(function: str, argument: str, found: str, allowed: str, remedy: str) -> ValueError:
    """The error to raise: `argument` is `found`, where `allowed` was asked for."""
    return ValueError(f"neuron-vit: {function}: {argument} {found}; {allowed}. {remedy}.")


def floating_tensor(function: str, argument: str, value: Any, dimensions: str = "") -> None:
    """`value` is a tensor of a dtype that the package computes in.

    `dimensions` is "at least n" or "exactly n", or empty where any number goes.
    """
    is_tensor(function, argument, value)
    if value.dtype not in FLOATING:
        raise fail(
            function,
            argument,
            f"has dtype {_name(value.dtype)}",
            f"it must be {_FLOATING_NAMES}",
            f"Convert it, for example with {argument}.to(torch.bfloat16)",
        )
    if dimensions:
        rule, count = dimensions.rsplit(" ", 1)
        found = value.dim()
        if found < int(count) or (rule == "exactly" and found != int(count)):
            raise fail(
                function,
                argument,
                f"has shape {tuple(value.shape)}",
                f"it must have {dimensions} dimensions",
                "Reshape it",
            )


def is_tensor(function: str, argument: str, value: Any) -> None:
    """`value` is a torch tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"neuron-vit: {function}: {argument} is a {type(value).__name__}; it must be a "
            "torch.Tensor. Convert it, for example with torch.as_tensor."
        )


def like(
    function: str, argument: str, value: Any, other_argument: str, other: torch.Tensor
) -> None:
    """`value` is a tensor with the dtype and on the device of `other`."""
    is_tensor(function, argument, value)
    if value.dtype != other.dtype:
        raise fail(
            function,
            argument,
            f"has dtype {_name(value.dtype)}, {other_argument} has {_name(other.dtype)}",
            "they must be the same",
            f"Convert one, for example with {argument}.to({other.dtype})",
        )
    same_device(function, argument, value, other_argument, other)


def same_device(
    function: str, argument: str, value: torch.Tensor, other_argument: str, other: torch.Tensor
) -> None:
    """`value` is on the device of `other`."""
    if value.device != other.device:
        raise fail(
            function,
            argument,
            f"is on {value.device}, {other_argument} is on {other.device}",
            "they must be on the same device",
            f"Move one, for example with {argument}.to({str(other.device)!r})",
        )


def integers(
    function: str, argument: str, value: Any, other_argument: str, other: torch.Tensor
) -> None:
    """`value` is a tensor of int32 or int64 on the device of `other`."""
    is_tensor(function, argument, value)
    if value.dtype not in (torch.int32, torch.int64):
        raise fail(
            function,
            argument,
            f"has dtype {_name(value.dtype)}",
            "it must be int32 or int64",
            f"Convert it with {argument}.to(torch.int32)",
        )
    same_device(function, argument, value, other_argument, other)


def parameter(
    function: str,
    argument: str,
    value: Any,
    shape: Sequence[Optional[int]],
    meaning: str,
    other_argument: str,
    other: torch.Tensor,
) -> None:
    """`value` is a tensor like `other`, of `shape` (None: any size), which `meaning` explains."""
    like(function, argument, value, other_argument, other)
    fits = value.dim() == len(shape) and all(
        wanted is None or found == wanted for found, wanted in zip(value.shape, shape)
    )
    if not fits:
        wanted_text = ", ".join("any" if size is None else str(size) for size in shape)
        raise fail(
            function,
            argument,
            f"has shape {tuple(value.shape)}",
            f"it must be ({wanted_text}{',' if len(shape) == 1 else ''}), {meaning}",
            f"Check it against {other_argument} of shape {tuple(other.shape)}",
        )


def one_of(function: str, argument: str, value: Any, allowed: Tuple[str, ...]) -> None:
    """`value` is one of the strings `allowed`."""
    if value not in allowed:
        raise fail(
            function,
            argument,
            f"is {value!r}",
            f"it must be {' or '.join(repr(choice) for choice in allowed)}",
            "Use PyTorch's own function for anything else",
        )


def epsilon(function: str, value: Any, argument: str = "eps") -> None:
    """`value` is a number that may be added to a variance."""
    if not isinstance(value, (int, float)) or not value >= 0:
        raise fail(
            function, argument, f"is {value!r}", "it must be a number of at least 0", "Use 1e-5"
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
