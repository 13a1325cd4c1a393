"""E16-class-base, E21-decorator: classes that kernel code uses."""

import ast

from ..ast_tools import text
from ..values import UNKNOWN, ApiName, BuiltinName, ClassValue, LibraryName
from .libraries import is_host_value

NKI_OBJECT = ApiName("nki.language.NKIObject")
ENUM = LibraryName("enum.Enum")
DATACLASS = LibraryName("dataclasses.dataclass")


def check_class(value, context):
    node = value.node
    bases = [context.value(base, value.scope) for base in node.bases]
    for base, expression in zip(bases, node.bases):
        if is_other_base(base):
            found = f"class {node.name} inherits from {text(expression)}"
            context.report(value.module, "E16-class-base", node, found)
    if not bases:
        context.report(value.module, "E16-class-base", node, f"class {node.name} has no base")
    elif len(bases) > 1 and not any(is_other_base(base) for base in bases):
        found = f"class {node.name} has {len(bases)} bases"
        context.report(value.module, "E16-class-base", node, found)
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        decorating = context.value(called, value.scope)
        if decorating != DATACLASS and is_host_value(decorating):
            context.report(value.module, "E21-decorator", decorator, f"`@{text(decorator)}`")


def is_other_base(base):
    """Certainly neither NKIObject nor Enum."""
    if base in (NKI_OBJECT, ENUM, UNKNOWN):
        return False
    if isinstance(base, LibraryName):
        # A package that is not under check may hand NKIObject on.
        return not base.path.endswith(".NKIObject")
    return isinstance(base, (ApiName, BuiltinName, ClassValue))
