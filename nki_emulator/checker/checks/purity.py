"""E23: kernels and module-level values."""

import ast

from ..ast_tools import text
from ..scopes import FUNCTIONS
from ..values import (
    ApiName,
    ClassValue,
    Container,
    Instance,
    LibraryName,
    ModuleValue,
    Sequence,
)

CHANGING_METHODS = frozenset(
    "add append clear discard extend insert pop popitem remove reverse setdefault sort "
    "update".split()
)


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                check_target(unit, context, target, scope)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in CHANGING_METHODS:
                check_changed(unit, context, node.func.value, scope, node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            check_read(unit, context, node, scope)


def check_target(unit, context, target, scope):
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            check_target(unit, context, element, scope)
    elif isinstance(target, (ast.Subscript, ast.Attribute)):
        check_changed(unit, context, target.value, scope, target)


def check_changed(unit, context, expression, scope, place):
    """``expression`` is changed in place: refused if it is a container or object of a module."""
    value = context.value(expression, scope)
    if isinstance(value, (ApiName, LibraryName, ModuleValue, ClassValue)):
        is_global = isinstance(place, ast.Attribute)
    else:
        is_global = is_changeable(value) and is_module_level(expression, scope)
    if is_global:
        context.report(unit.module, "E23-global-change", place, f"`{text(place)}`")


def is_changeable(value):
    return isinstance(value, (Container, Instance)) or (
        isinstance(value, Sequence) and value.kind == "list"
    )


def is_module_level(expression, scope):
    if not isinstance(expression, ast.Name):
        return False
    owner = scope.owner(expression.id)
    return owner is not None and owner.parent is None


def check_read(unit, context, node, scope):
    owner = scope.owner(node.id)
    if owner is None or owner.parent is not None:
        return
    changed = changed_names(owner, context)
    if node.id in changed:
        found = f"`{node.id}` is changed at line {changed[node.id]}"
        context.report(unit.module, "E23-changing-global", node, found)


def changed_names(module_scope, context):
    """Module-level names that a host function of the module changes, with the line of a change."""
    cache = context.changed_names
    if module_scope not in cache:
        cache[module_scope] = find_changes(module_scope, context)
    return cache[module_scope]


def find_changes(module_scope, context):
    found = {}
    kernel_code = {unit.node for unit in context.program.units}
    for function in ast.walk(module_scope.node):
        if isinstance(function, FUNCTIONS) and function not in kernel_code:
            local = {
                node.id
                for node in ast.walk(function)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            } | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
            declared = {
                name
                for node in ast.walk(function)
                if isinstance(node, ast.Global)
                for name in node.names
            }
            for node in ast.walk(function):
                name = changed_by(node, declared)
                if is_value(name, module_scope) and (name in declared or name not in local):
                    found.setdefault(name, node.lineno)
    return found


def is_value(name, module_scope):
    """True for a name that the module assigns, unlike one that it imports or defines."""
    bindings = module_scope.bindings.get(name, ())
    return any(binding.kind == "value" for binding in bindings)


def changed_by(node, declared):
    """The name that a statement changes: assigned after `global`, or changed in place."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id if node.id in declared else None
    target = None
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        target = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in CHANGING_METHODS:
            target = node.func.value
    return target.id if isinstance(target, ast.Name) else None
