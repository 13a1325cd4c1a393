"""The two ways in which users copy a model."""

import copy
import io

import torch

WAYS = ("deepcopy", "pickle")


def copied(value, how):
    """A copy of `value`, made in one of WAYS."""
    if how == "deepcopy":
        return copy.deepcopy(value)
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)
