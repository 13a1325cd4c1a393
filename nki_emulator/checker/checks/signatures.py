"""E01, E03, E17, E21: parameters and decorators of kernels and of the functions they reach."""

import ast

from ..ast_tools import text
from ..reach import jit_decorators
from ..scopes import FUNCTIONS
from ..values import BuiltinName, Container, Sequence
from .libraries import is_host_value

LIST_NAMES = frozenset({"list", "List"})
STATIC_METHOD = BuiltinName("staticmethod")


def check(unit, context):
    check_parameters(unit, context, unit.node)
    for node, _ in unit.nodes:
        if isinstance(node, FUNCTIONS):
            check_parameters(unit, context, node)
    check_decorators(unit, context)
    if unit.is_kernel:
        check_list_arguments(unit, context)


def check_parameters(unit, context, function):
    arguments = function.args
    if arguments.kwonlyargs:
        names = ", ".join(argument.arg for argument in arguments.kwonlyargs)
        found = f"{function.name} takes {names} by keyword only"
        context.report(unit.module, "E01-keyword-only", function, found)
    if arguments.posonlyargs:
        names = ", ".join(argument.arg for argument in arguments.posonlyargs)
        found = f"{function.name} takes {names} by position only"
        context.report(unit.module, "E21-positional-only", function, found)
    for star, argument in (("*", arguments.vararg), ("**", arguments.kwarg)):
        if argument is not None:
            context.report(
                unit.module, "E21-star", argument, f"{function.name} takes {star}{argument.arg}"
            )


def check_decorators(unit, context):
    jitted = jit_decorators(unit.function, context.evaluator)
    for decorator in unit.node.decorator_list:
        if decorator not in jitted:
            check_decorator(unit, context, decorator, unit.function.scope)
    for node, scope in unit.nodes:
        if isinstance(node, FUNCTIONS):
            for decorator in node.decorator_list:
                check_decorator(unit, context, decorator, scope)


def check_decorator(unit, context, decorator, scope):
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    value = context.value(called, scope)
    if value == STATIC_METHOD and unit.function.owner is not None:
        return
    if is_host_value(value):
        context.report(unit.module, "E21-decorator", decorator, f"`@{text(decorator)}`")


def check_list_arguments(unit, context):
    arguments = unit.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    for index, argument in enumerate(positional):
        default = arguments.defaults[index - first_default] if index >= first_default else None
        value = None if default is None else context.value(default, unit.function.scope)
        if isinstance(value, (Sequence, Container)) and value.kind == "list":
            found = f"{argument.arg}={text(default)}"
            context.report(unit.module, "E03-list-argument", default, found)
        elif argument.annotation is not None and names_a_list(argument.annotation):
            found = f"{argument.arg}: {text(argument.annotation)}"
            context.report(unit.module, "E03-list-argument", argument, found)


def names_a_list(annotation):
    """True for list, List[...], Optional[list] and the like."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return False
    if isinstance(annotation, ast.Name):
        return annotation.id in LIST_NAMES
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in LIST_NAMES
    if isinstance(annotation, ast.Subscript):
        name = annotation.value
        if names_a_list(name):
            return True
        outer = name.id if isinstance(name, ast.Name) else getattr(name, "attr", "")
        return outer == "Optional" and names_a_list(annotation.slice)
    return False


def check_jit_call(module, call, context):
    """nki.jit(...), as a decorator or where a kernel is launched."""
    for keyword in call.keywords:
        if keyword.arg == "platform_target":
            found = f"platform_target={text(keyword.value)}"
            context.report(module, "E17-platform-target", keyword.value, found)
        elif keyword.arg == "mode":
            found = f"mode={text(keyword.value)}"
            context.report(module, "W08-jit-mode", keyword.value, found)
