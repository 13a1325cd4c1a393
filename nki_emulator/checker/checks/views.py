"""E13, E19-partition-step: views of tensors."""

import ast

from ..api import ON_CHIP
from ..ast_tools import text
from ..tensor_views import sizes
from ..values import UNKNOWN, Sequence, Tensor, product


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, ast.Subscript):
            check_index(unit, context, node, scope)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            tensor = context.value(node.func.value, scope)
            signature = context.api.tensor_methods.get(node.func.attr)
            if isinstance(tensor, Tensor) and signature is not None:
                arguments = context.evaluator.arguments(node, signature, scope)
                if node.func.attr == "reshape":
                    check_reshape(unit, context, node, tensor, arguments)
                elif node.func.attr == "ap":
                    check_pattern(unit, context, node, tensor, arguments)


def check_reshape(unit, context, node, tensor, arguments):
    shape = sizes(arguments.get("shape", UNKNOWN))
    if not shape or tensor.shape is None or -1 in shape:
        return
    found = f"`{text(node)}`: {tensor.shape} to {shape}"
    counts = (tensor.size, product(shape))
    if None not in counts and counts[0] != counts[1]:
        found = f"{found}, {counts[0]} to {counts[1]} elements"
        context.report(unit.module, "E13-reshape-count", node, found)
    elif tensor.buffer in ON_CHIP and None not in (tensor.shape[0], shape[0]):
        if tensor.shape[0] != shape[0]:
            context.report(unit.module, "E13-reshape-partitions", node, found)


def check_pattern(unit, context, node, tensor, arguments):
    """The first pair of a pattern on the chip is (elements of a partition, partitions)."""
    pattern = arguments.get("pattern")
    if tensor.buffer not in ON_CHIP or tensor.row is None or not isinstance(pattern, Sequence):
        return
    first = sizes(pattern.items[0]) if pattern.items else None
    if first is None or len(first) != 2 or None in first or first[1] == 1:
        return
    if "dtype" not in arguments and first[0] != tensor.row:
        found = f"`{text(node)}` steps by {first[0]}, a partition has {tensor.row} elements"
        context.report(unit.module, "E19-partition-step", node, found)


def check_index(unit, context, node, scope):
    tensor = context.value(node.value, scope)
    if not isinstance(tensor, Tensor) or tensor.buffer not in ON_CHIP:
        return
    first = node.slice
    if isinstance(first, ast.Tuple) and first.elts:
        first = first.elts[0]
    if isinstance(first, ast.Slice) and first.step is not None:
        step = context.evaluator.integer(first.step, scope)
        if step is not None and step != 1:
            found = f"`{text(node)}` takes every {step}th partition"
            context.report(unit.module, "E19-partition-step", node, found)
