"""W01 to W07: what NKI 0.6 still accepts and announces to drop."""

import ast

from ..ast_tools import text
from ..old_names import ENGINE_CONSTANTS, RANGE_ALIASES, TILE_SIZE_NAMES
from ..values import ApiName, Register

SCALES = {
    "nki.isa.nc_matmul_mx": ("stationary_scale", "moving_scale"),
    "nki.isa.quantize_mx": ("dst_scale",),
}


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, (ast.Attribute, ast.Name)):
            check_name(unit, context, node, scope)
        elif isinstance(node, ast.While):
            if isinstance(context.value(node.test, scope), Register):
                found = f"`while {text(node.test)}`"
                context.report(unit.module, "W03-while-register", node, found)
    for call in context.api_calls(unit):
        check_scales(unit, context, call)


def check_name(unit, context, node, scope):
    path = api_path(context, node, scope)
    found = f"`{text(node)}`"
    if path in RANGE_ALIASES:
        context.report(unit.module, "W01-range-alias", node, found)
    elif path == "nki.language.dynamic_range":
        context.report(unit.module, "W02-dynamic-range", node, found)
    elif path in TILE_SIZE_NAMES:
        context.report(unit.module, "W04-tile-size-name", node, found, fix=TILE_SIZE_NAMES[path])
    elif path in ENGINE_CONSTANTS:
        context.report(unit.module, "W05-engine-constant", node, found, fix=ENGINE_CONSTANTS[path])
    elif path == "nki.isa.activation_reduce":
        context.report(unit.module, "W06-activation-reduce", node, found)


def api_path(context, node, scope):
    """Dotted path of an expression that stands for something of the API, or None."""
    if isinstance(node, ast.Attribute):
        # tile_size members are numbers to the evaluator: name them by where they are read.
        owner = context.value(node.value, scope)
        return f"{owner.path}.{node.attr}" if isinstance(owner, ApiName) else None
    owner = scope.owner(node.id)
    if owner is None or all(binding.kind == "import" for binding in owner.bindings[node.id]):
        value = context.value(node, scope)
        return value.path if isinstance(value, ApiName) else None
    return None


def check_scales(unit, context, call):
    for name in SCALES.get(call.path, ()):
        tensor = call.tensor(name)
        if tensor is not None and tensor.dtype == "uint8":
            found = f"{name} `{text(call.nodes[name])}` is uint8"
            context.report(unit.module, "W07-scale-dtype", call.nodes[name], found)
