"""E19-partitions, E19-start-partition: the partition axis of on-chip tensors."""

from ..api import ISA, LANGUAGE, ON_CHIP
from ..ast_tools import text
from ..evaluate import CREATORS
from ..values import Tensor

PARTITIONS = 128

# Instructions of a compute engine whose operands start where the rule allows. DMA reaches any
# partition, and instructions with rules of their own are left to the emulator.
ENGINE_INSTRUCTIONS = frozenset(
    f"{ISA}.{name}"
    for name in (
        "activate2 activation activation_reduce affine_select bn_aggr bn_stats dropout "
        "exponential iota max8 memset nc_match_replace8 nc_find_index8 nc_matmul nc_transpose "
        "range_select reciprocal scalar_tensor_tensor select_reduce tensor_copy "
        "tensor_copy_predicated tensor_reduce tensor_scalar tensor_scalar_cumulative "
        "tensor_scalar_reduce tensor_tensor tensor_tensor_scan"
    ).split()
)

ALLOCATIONS = frozenset(f"{LANGUAGE}.{name}" for name in CREATORS)


def check(unit, context):
    for call in context.api_calls(unit):
        if call.path in ALLOCATIONS:
            check_allocation(unit, context, call)
        elif call.path in ENGINE_INSTRUCTIONS:
            for parameter, argument in call.nodes.items():
                check_start(unit, context, parameter, argument, call.tensor(parameter))


def check_allocation(unit, context, call):
    tensor = context.value(call.node, call.scope)
    if isinstance(tensor, Tensor) and tensor.buffer in ON_CHIP and tensor.shape:
        count = tensor.shape[0]
        if count is not None and count > PARTITIONS:
            found = f"shape {shape_text(tensor.shape)} in nl.{tensor.buffer}: {count} partitions"
            context.report(unit.module, "E19-partitions", call.node, found)


def shape_text(shape):
    return "(" + ", ".join("?" if size is None else str(size) for size in shape) + ")"


def check_start(unit, context, parameter, argument, tensor):
    if tensor is None or tensor.buffer not in ON_CHIP or not tensor.shape:
        return
    start = tensor.start
    count = tensor.shape[0]
    if start is None or count is None:
        return
    if start not in allowed_starts(count):
        found = f"{parameter} `{text(argument)}`: {count} partitions from {start}"
        context.report(unit.module, "E19-start-partition", argument, found)


def allowed_starts(count):
    if count <= 32:
        return (0, 32, 64, 96)
    return (0, 64) if count <= 64 else (0,)
