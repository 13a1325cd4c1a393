"""E09 to E12: operands of DMA and of memset."""

import ast

from ..api import INTEGER_DTYPES, ISA, PACKED_DTYPES
from ..ast_tools import text
from ..binding import bind
from ..tensor_views import sizes
from ..values import UNKNOWN, ApiName, Constant, EnumMember, Tensor

HWDGE = EnumMember(f"{ISA}.dge_mode", "hwdge")

# The one permutation of each rank (NKI 0.6 reference, nki.isa.dma_transpose).
PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def check(unit, context):
    for node, scope in unit.nodes:
        if not isinstance(node, ast.Call):
            continue
        function = context.value(node.func, scope)
        if not isinstance(function, ApiName):
            continue
        handler = HANDLERS.get(function.path)
        if handler is not None:
            signature = context.evaluator.api.functions[function.path]
            nodes = bind(node, signature).arguments
            values = context.evaluator.arguments(node, signature, scope)
            handler(unit, context, node, scope, nodes, values)


def check_copy(unit, context, node, scope, nodes, values):
    check_buffers(unit, context, scope, nodes, values)
    dst = values.get("dst", UNKNOWN)
    src = values.get("src", UNKNOWN)
    if values.get("dge_mode") == HWDGE and isinstance(dst, Tensor) and isinstance(src, Tensor):
        if None not in (dst.dtype, src.dtype) and dst.dtype != src.dtype:
            context.report(
                unit.module, "E11-hwdge-cast", node, f"src is {src.dtype}, dst is {dst.dtype}"
            )


def check_compute(unit, context, node, scope, nodes, values):
    check_buffers(unit, context, scope, nodes, values)
    sources = nodes.get("srcs")
    if isinstance(sources, (ast.List, ast.Tuple)):
        for source in sources.elts:
            check_buffer(unit, context, "srcs", source, context.value(source, scope))


def check_buffers(unit, context, scope, nodes, values):
    for name in ("dst", "src"):
        if name in nodes:
            check_buffer(unit, context, name, nodes[name], values[name])


def check_buffer(unit, context, name, node, value):
    if isinstance(value, Tensor) and value.buffer == "psum":
        context.report(unit.module, "E09-dma-psum", node, f"{name} `{text(node)}` is in nl.psum")


def check_transpose(unit, context, node, scope, nodes, values):
    check_buffers(unit, context, scope, nodes, values)
    axes = sizes(values.get("axes", UNKNOWN))
    if axes is not None and None not in axes and axes not in PERMUTATIONS.values():
        context.report(
            unit.module, "E12-transpose-axes", nodes["axes"], f"axes={text(nodes['axes'])}"
        )
        return
    dst = values.get("dst", UNKNOWN)
    src = values.get("src", UNKNOWN)
    dst_shape = dst.shape if isinstance(dst, Tensor) else None
    src_shape = src.shape if isinstance(src, Tensor) else None
    rank = len(axes) if axes is not None else None
    if src_shape is not None and rank is not None and rank != len(src_shape):
        found = f"axes={text(nodes['axes'])} for src of shape {src_shape}"
        context.report(unit.module, "E12-transpose-axes", nodes["axes"], found)
    elif dst_shape is not None and src_shape is not None:
        expected = transposed(src_shape)
        if not agree(dst_shape, expected):
            found = f"src {src_shape} becomes {expected}, dst is {dst_shape}"
            context.report(unit.module, "E12-transpose-shape", node, found)
    elif dst_shape is not None and rank is not None and rank != len(dst_shape):
        found = f"axes of rank {rank}, dst of rank {len(dst_shape)}"
        context.report(unit.module, "E12-transpose-shape", node, found)


def transposed(shape):
    order = PERMUTATIONS.get(len(shape))
    return None if order is None else tuple(shape[axis] for axis in order)


def agree(shape, expected):
    """False if ``shape`` certainly differs from ``expected``."""
    if expected is None:
        return True
    return len(shape) == len(expected) and all(
        one is None or other is None or one == other for one, other in zip(shape, expected)
    )


def check_memset(unit, context, node, scope, nodes, values):
    dst = values.get("dst", UNKNOWN)
    value = values.get("value", UNKNOWN)
    if not isinstance(dst, Tensor) or not isinstance(value, Constant):
        return
    found = f"{text(nodes['value'])} into {dst.dtype}"
    if dst.dtype in INTEGER_DTYPES and type(value.value) is float:
        context.report(unit.module, "E10-memset-type", nodes["value"], found)
    elif dst.dtype in PACKED_DTYPES and type(value.value) in (int, float) and value.value != 0:
        context.report(unit.module, "E10-memset-packed", nodes["value"], found)


HANDLERS = {
    f"{ISA}.dma_copy": check_copy,
    f"{ISA}.dma_compute": check_compute,
    f"{ISA}.dma_transpose": check_transpose,
    f"{ISA}.memset": check_memset,
}

