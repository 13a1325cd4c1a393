"""The note that a call inside a model ran as the layer's own PyTorch operations."""

from typing import Any, Callable

import torch
from torch import Tensor

from . import _dispatch
from ._autograd import differentiate_reference
from ._ops import add_op_namespace_prefix, ops
from .errors import NeuronVitUnsupported


def note(x: Tensor, kernel: str, reason: str, remedy: str) -> Tensor:
    """Warn or raise as for a fallback of `kernel`; the tensor to go on with instead of `x`.

    `x` itself, and a copy in code that is being compiled: there the note is an operator, so that
    it is made whenever the compiled code runs.
    """
    if torch.compiler.is_compiling():
        return ops.note_fallback(x, kernel, reason, remedy)
    return _dispatch.run_without_kernel(kernel, _same, (x,), reason, remedy)


def run_own(
    kernel: str, function: Callable[[Tensor], Any], x: Tensor, reason: str, remedy: str
) -> Any:
    """`function(x)`, a module's own forward pass, in place of `kernel`, after a note.

    In torch.compile it is an error, so that a compiled model does not come to be without kernels.
    """
    if torch.compiler.is_compiling():
        raise NeuronVitUnsupported(
            f"neuron-vit: {reason}. {remedy[:1].upper()}{remedy[1:]}, or compile the model before "
            "its modules are replaced."
        )
    # The module's own operations follow autocast, which operators of this package turn off.
    return function(note(x, kernel, reason, remedy))


def _same(x: Tensor) -> Tensor:
    return x


def _copy(x: Tensor, kernel: str, reason: str, remedy: str) -> Tensor:
    return x.clone()


@torch.library.custom_op(add_op_namespace_prefix("note_fallback"), mutates_args=())
def _note_fallback(x: Tensor, kernel: str, reason: str, remedy: str) -> Tensor:
    # A copy, because an operator may not return its input.
    return _dispatch.run_without_kernel(kernel, _same, (x,), reason, remedy).clone()


@_note_fallback.register_fake
def _(x, kernel, reason, remedy):
    return torch.empty_like(x)


differentiate_reference(_note_fallback, _copy)
