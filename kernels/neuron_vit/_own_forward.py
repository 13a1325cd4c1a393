"""Running a module's own forward pass where one of our kernels was to take its place."""

from typing import Any, Callable

import torch
from torch import Tensor

from . import _dispatch
from .errors import NeuronVitUnsupported


def run_own(
    kernel: str, function: Callable[[Tensor], Any], x: Tensor, reason: str, remedy: str
) -> Any:
    """`function(x)` in place of `kernel`, after a warning or with an error where that would run.

    In torch.compile it is an error: what `_dispatch` does at every call cannot be traced.
    """
    if torch.compiler.is_compiling():
        raise NeuronVitUnsupported(
            f"neuron-vit: {reason}. {remedy[:1].upper()}{remedy[1:]}, or compile the model before "
            "its modules are replaced."
        )
    # The module's own operations follow autocast, which `_dispatch` turns off for ours.
    return function(_dispatch.run_without_kernel(kernel, _same, (x,), reason, remedy))


def _same(x: Tensor) -> Tensor:
    return x
