"""Checks on what callers pass in. Every error names the argument, what was found and what to do.

All functions take the public function's name first, for the message. They look at shapes, dtypes
and devices, so that `torch.compile` can trace them; `lengths` and `bounds` also at values, where
that waits for no device and nothing is being traced.
"""

import numbers
from typing import Any, Optional, Sequence, Tuple

import torch

FLOATING = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_FLOATING_NAMES = "bfloat16, float16, float32 or float64"

# Constants reach the kernels as float32.
_LARGEST = torch.finfo(torch.float32).max

ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "silu", "relu")
NORMS = ("layer", "rms")
ROPES = ("half", "interleaved")


def fail(function: str, argument: str, found: str, allowed: str, remedy: str) -> ValueError:
    """The error to raise: `argument` is `found`, where `allowed` was asked for."""
    return ValueError(f"neuron-vit: {function}: {argument} {found}; {allowed}. {remedy}.")


def wrong_type(function: str, argument: str, value: Any, allowed: str, remedy: str) -> TypeError:
    """The error to raise: `argument` is of the type of `value`, where `allowed` was asked for."""
    found = "None" if value is None else f"a {type(value).__name__}"
    return TypeError(
        f"neuron-vit: {function}: {argument} is {found}; it must be {allowed}. {remedy}."
    )


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
    """`value` is a torch tensor with strides: not sparse, not nested."""
    if not isinstance(value, torch.Tensor):
        raise wrong_type(
            function,
            argument,
            value,
            "a torch.Tensor",
            "Convert it, for example with torch.as_tensor",
        )
    if value.is_nested or value.layout != torch.strided:
        found = "is a nested tensor" if value.is_nested else f"has layout {value.layout}"
        raise fail(
            function,
            argument,
            found,
            "it must be a dense tensor",
            f"Convert it, for example with {argument}.to_padded_tensor(0.0)"
            if value.is_nested
            else f"Convert it with {argument}.to_dense()",
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


def lengths(function: str, argument: str, value: torch.Tensor) -> None:
    """No value is negative, where the values can be read. There is no upper bound."""
    if not _readable(value) or value.numel() == 0:
        return
    least = int(value.min())
    if least < 0:
        raise fail(
            function,
            argument,
            f"holds {least}",
            "lengths must be at least 0; 0 hides all keys of an image, the number of keys or more "
            "hides none",
            f"Count the keys that take part, or clamp with {argument}.clamp(min=0)",
        )


def bounds(function: str, argument: str, value: torch.Tensor, tokens: int) -> None:
    """The values, two or more, ascend from 0 to `tokens`, where they can be read."""
    if not _readable(value):
        return
    found = value.tolist()
    wrong = ""
    if found[0] != 0:
        wrong = f"begins with {found[0]}"
    elif found[-1] != tokens:
        wrong = f"ends with {found[-1]}"
    for i in range(1, len(found)):
        if not wrong and found[i] < found[i - 1]:
            wrong = f"falls from {found[i - 1]} to {found[i]} at position {i}"
    if wrong:
        raise fail(
            function,
            argument,
            wrong,
            f"the bounds of segments must ascend from 0 to the number of tokens, {tokens}",
            "Make them of the lengths of the segments, with a 0 in front of lengths.cumsum(0)",
        )


def _readable(tensor: torch.Tensor) -> bool:
    """Whether the values can be read here and now: on a CPU, neither traced, transformed nor
    fake."""
    # First what torch.compile knows, so that it sees no more of this.
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._are_functorch_transforms_active()
    )


def mask(
    function: str, argument: str, value: Any, other_argument: str, other: torch.Tensor
) -> None:
    """`value` is a bool mask, or a bias in float32 or the dtype of `other`, on its device."""
    is_tensor(function, argument, value)
    if not (value.dtype == torch.bool or value.is_floating_point() or value.is_complex()):
        raise fail(
            function,
            argument,
            f"has dtype {_name(value.dtype)}",
            "it must be bool (True: the key takes part), or a bias that is added to the scores, "
            f"in the dtype of {other_argument}, {_name(other.dtype)}, or float32",
            f"For a mask of ones and zeros pass {argument}.bool(), which is {argument} != 0",
        )
    if value.dtype not in (torch.bool, torch.float32):
        like(function, argument, value, other_argument, other)
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
    choices = " or ".join(repr(choice) for choice in allowed)
    if not isinstance(value, str):
        raise wrong_type(function, argument, value, choices, "Pass one of these names")
    if value not in allowed:
        raise fail(
            function,
            argument,
            f"is {value!r}",
            f"it must be {choices}",
            "Use PyTorch's own function for anything else",
        )


def epsilon(function: str, value: Any, argument: str = "eps") -> None:
    """`value` is a number that may be added to a variance."""
    if not is_number(value):
        raise wrong_type(function, argument, value, "a number of at least 0", "Use 1e-5")
    if not 0 <= value <= _LARGEST:
        raise fail(
            function,
            argument,
            f"is {value!r}",
            f"it must be a number from 0 to {_LARGEST:.4g}, the largest float32",
            "Use 1e-5",
        )


def score_factor(function: str, argument: str, value: Any) -> None:
    """`value` is a number in the range of float32 that attention scores are multiplied with."""
    remedy = "Use head_dim ** -0.5"
    if not is_number(value):
        raise wrong_type(function, argument, value, "a number", remedy)
    if not -_LARGEST <= value <= _LARGEST:
        allowed = f"it must be finite and at most {_LARGEST:.4g} in size, the largest float32"
        raise fail(function, argument, f"is {value!r}", allowed, remedy)


def probability(function: str, argument: str, value: Any) -> None:
    """`value` is a number from 0 to 1."""
    if not is_number(value):
        raise wrong_type(function, argument, value, "a number from 0 to 1", "Use 0.0")
    if not 0.0 <= value <= 1.0:
        raise fail(function, argument, f"is {value}", "it must be from 0 to 1", "Use 0.0")


def flag(function: str, argument: str, value: Any) -> None:
    """`value` is True or False."""
    if not isinstance(value, bool):
        raise wrong_type(function, argument, value, "a bool", "Pass True or False")


def is_number(value: Any) -> bool:
    """Whether `value` is a real number and no bool."""
    kinds = (numbers.Real, torch.SymInt, torch.SymFloat)
    return isinstance(value, kinds) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer and no bool."""
    return isinstance(value, (numbers.Integral, torch.SymInt)) and not isinstance(value, bool)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


def module(function: str, model: Any, remedy: str) -> None:
    """`model` is a torch.nn.Module."""
    if not isinstance(model, torch.nn.Module):
        raise wrong_type(function, "model", model, "a torch.nn.Module", remedy)
