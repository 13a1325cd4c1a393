"""E04: enum members, and nothing else, where the API or Python code has enums."""

import ast

from ..ast_tools import text
from ..binding import bind
from ..values import NONE, ApiName, ClassValue, Constant, EnumMember
from .calls import called_signature

VERSION = ApiName("nki.isa.get_nc_version")


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, ast.Call):
            signature = called_signature(context, node, scope)
            if signature is not None:
                check_arguments(unit, context, node, scope, signature)
        elif isinstance(node, ast.Compare):
            check_compare(unit, context, node, scope)
        elif isinstance(node, ast.BinOp):
            for side in (node.left, node.right):
                if is_enum(context, side, scope):
                    report_operator(unit, context, node)
                    break


def check_arguments(unit, context, node, scope, signature):
    for name, argument in bind(node, signature).arguments.items():
        enum = signature.enum_of(name)
        for choice in choices(argument):
            value = context.value(choice, scope)
            if name == "buffer":
                if isinstance(value, Constant) and value != NONE:
                    found = f"buffer={text(choice)}"
                    context.report(unit.module, "E04-buffer-name", choice, found)
            elif enum is not None:
                check_member(unit, context, name, choice, value, enum)


def choices(node):
    """The expressions of which one is the value of ``node``: both arms of a conditional."""
    if isinstance(node, ast.IfExp):
        return choices(node.body) + choices(node.orelse)
    return [node]


def check_member(unit, context, name, node, value, enum):
    members = context.api.enums[enum]
    short = enum.rpartition(".")[2]
    allowed = f"{name} takes nisa.{short}: {', '.join(members)}"
    found = f"{name}={text(node)}"
    if isinstance(value, Constant) and value != NONE:
        fix = f"write nisa.{short}.{value.value}" if value.value in members else None
        context.report(unit.module, "E04-enum-value", node, found, allowed, fix)
    elif isinstance(value, EnumMember) and value.enum != enum:
        context.report(unit.module, "E04-wrong-enum", node, found, allowed)


def is_enum(context, node, scope):
    """A member of an enum, or what nisa.get_nc_version() returns."""
    if isinstance(context.value(node, scope), EnumMember):
        return True
    return isinstance(node, ast.Call) and context.value(node.func, scope) == VERSION


def check_compare(unit, context, node, scope):
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, sides[1:]):
        enums = [is_enum(context, side, scope) for side in (left, right)]
        if not any(enums):
            continue
        if isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            report_operator(unit, context, node)
        elif isinstance(operator, (ast.Eq, ast.NotEq)) and not all(enums):
            other = context.value(right if enums[0] else left, scope)
            if isinstance(other, Constant) and other != NONE and is_isa_enum(context, node, scope):
                report_operator(unit, context, node)


def is_isa_enum(context, node, scope):
    """True if one side is an enum of nki.isa, which numbers no longer stand for."""
    for side in (node.left, *node.comparators):
        value = context.value(side, scope)
        if isinstance(value, EnumMember) and not isinstance(value.enum, ClassValue):
            return True
        if isinstance(side, ast.Call) and context.value(side.func, scope) == VERSION:
            return True
    return False


def report_operator(unit, context, node):
    context.report(unit.module, "E04-enum-comparison", node, f"`{text(node)}`")
