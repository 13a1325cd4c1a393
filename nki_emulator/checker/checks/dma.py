"""E09 to E12: operands of DMA and of memset."""

import ast

from ..api import INTEGER_DTYPES, ISA, LANGUAGE, PACKED_DTYPES
from ..ast_tools import text
from ..tensor_views import sizes
from ..values import Constant, EnumMember, Tensor

HWDGE = EnumMember(f"{ISA}.dge_mode", "hwdge")

# The one permutation of each rank (NKI 0.6 reference, nki.isa.dma_transpose).
PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}

TWO_BYTES = frozenset({"bfloat16", "float16", "int16", "uint16"})

# nki.language.store is a DMA copy of its `value`.
DMA = frozenset(
    (f"{ISA}.dma_copy", f"{ISA}.dma_compute", f"{ISA}.dma_transpose", f"{LANGUAGE}.store")
)


def check(unit, context):
    for call in context.api_calls(unit):
        if call.path in DMA:
            check_buffers(unit, context, call)
        if call.path == f"{ISA}.dma_copy":
            check_hwdge(unit, context, call)
        elif call.path == f"{ISA}.dma_transpose":
            check_transpose(unit, context, call)
            check_transpose_hwdge(unit, context, call)
        elif call.path == f"{ISA}.memset":
            check_memset(unit, context, call)


def check_buffers(unit, context, call):
    for name in ("dst", "src", "value"):
        if name in call.nodes:
            check_buffer(unit, context, name, call.nodes[name], call.value(name))
    sources = call.nodes.get("srcs")
    if isinstance(sources, (ast.List, ast.Tuple)):
        for source in sources.elts:
            check_buffer(unit, context, "srcs", source, context.value(source, call.scope))


def check_buffer(unit, context, name, node, value):
    if isinstance(value, Tensor) and value.buffer == "psum":
        context.report(unit.module, "E09-dma-psum", node, f"{name} `{text(node)}` is in nl.psum")


def check_hwdge(unit, context, call):
    dst = call.tensor("dst")
    src = call.tensor("src")
    if call.value("dge_mode") != HWDGE or dst is None or src is None:
        return
    if None not in (dst.dtype, src.dtype) and dst.dtype != src.dtype:
        found = f"src is {src.dtype}, dst is {dst.dtype}"
        context.report(unit.module, "E11-hwdge-cast", call.node, found)


def check_transpose(unit, context, call):
    axes = sizes(call.value("axes"))
    written = f"axes={text(call.nodes['axes'])}" if "axes" in call.nodes else ""
    if axes is not None and None not in axes and axes not in PERMUTATIONS.values():
        context.report(unit.module, "E12-transpose-axes", call.nodes["axes"], written)
        return
    dst_shape = getattr(call.tensor("dst"), "shape", None)
    src_shape = getattr(call.tensor("src"), "shape", None)
    rank = len(axes) if axes is not None else None
    if src_shape is not None and rank is not None and rank != len(src_shape):
        found = f"{written} for src of shape {src_shape}"
        context.report(unit.module, "E12-transpose-axes", call.nodes["axes"], found)
    elif dst_shape is not None and src_shape is not None:
        expected = transposed(src_shape)
        if not agree(dst_shape, expected):
            found = f"src {src_shape} becomes {expected}, dst is {dst_shape}"
            context.report(unit.module, "E12-transpose-shape", call.node, found)
    elif dst_shape is not None and rank is not None and rank != len(dst_shape):
        found = f"{written}, dst has rank {len(dst_shape)}"
        context.report(unit.module, "E12-transpose-shape", call.node, found)


def check_transpose_hwdge(unit, context, call):
    src = call.tensor("src")
    if call.value("dge_mode") != HWDGE or src is None:
        return
    found = None
    if src.dtype is not None and src.dtype not in TWO_BYTES:
        found = f"src is {src.dtype}"
    elif src.shape and src.shape[-1] is not None and src.shape[-1] > 128:
        found = f"src has shape {src.shape}"
    elif src.shape and src.shape[0] is not None and not fits_hwdge(src.shape):
        found = f"src has shape {src.shape}"
    if found is not None:
        context.report(unit.module, "E12-transpose-hwdge", call.node, found)


def fits_hwdge(shape):
    """False if the first axis, which is known, certainly cannot be transposed by hardware DGE."""
    if len(shape) == 2:
        return shape[0] == 16
    if shape[0] not in (1, 2, 4, 8, 16):
        return False
    return shape[-2] is None or shape[0] * shape[-2] % 16 == 0


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


def check_memset(unit, context, call):
    dst = call.tensor("dst")
    value = call.value("value")
    if dst is None or not isinstance(value, Constant):
        return
    node = call.nodes["value"]
    found = f"{text(node)} into {dst.dtype}"
    if dst.dtype in INTEGER_DTYPES and type(value.value) is float:
        context.report(unit.module, "E10-memset-type", node, found)
    elif dst.dtype in PACKED_DTYPES and type(value.value) in (int, float) and value.value != 0:
        context.report(unit.module, "E10-memset-packed", node, found)
