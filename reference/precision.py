"""The dtype in which statistics and sums are kept."""

import torch


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in float32, or as it is when it already holds float32 or float64."""
    if tensor.dtype in (torch.bfloat16, torch.float16):
        return tensor.float()
    return tensor
