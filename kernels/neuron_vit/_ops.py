"""The namespace that the package's torch operators live in.

This is the version for a checkout. A Hub build replaces it, so that two builds in one process do
not share a namespace.
"""

import torch

_OPS_NAME = "_neuron_vit_checkout"

ops = getattr(torch.ops, _OPS_NAME)


def add_op_namespace_prefix(op_name: str) -> str:
    """`op_name` with the namespace in front, as `torch.library` wants it."""
    return f"{_OPS_NAME}::{op_name}"
