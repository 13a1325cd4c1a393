"""Who watches a module, and whether a tensor was written to."""

from typing import Sequence

from torch import Tensor, nn

# Where transformers says which outputs of its layers it is collecting.
RECORDER = "transformers.utils.output_capturing"

FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")


def hooked(module: nn.Module, kinds: Sequence[str]) -> bool:
    """Whether somebody wants to see the module called. transformers' own hooks, by which it records
    outputs, stay in place and most of the time do nothing."""
    return any(
        getattr(hook, "__module__", "") != RECORDER
        for kind in kinds
        for hook in getattr(module, kind).values()
    )


def changes(tensor: Tensor) -> int:
    """How often PyTorch has counted a write to the tensor. One that was made in inference mode
    counts none; nobody may write to it outside of that mode."""
    return -1 if tensor.is_inference() else tensor._version
