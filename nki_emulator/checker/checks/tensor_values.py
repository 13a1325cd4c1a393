"""E24: tensors in Python control flow."""

import ast

from ..ast_tools import text
from ..values import NONE, BuiltinName, Tensor

CONVERSIONS = frozenset("bool float int range".split())
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            check_test(unit, context, node.test, scope)
        elif isinstance(node, ast.Call):
            function = context.value(node.func, scope)
            if isinstance(function, BuiltinName) and function.name in CONVERSIONS:
                for argument in node.args:
                    report_tensor(unit, context, argument, scope)


def check_test(unit, context, test, scope):
    """A condition that is a tensor, or compares one with anything but None."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            check_test(unit, context, value, scope)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        check_test(unit, context, test.operand, scope)
    elif isinstance(test, ast.Compare):
        check_compare(unit, context, test, scope)
    else:
        report_tensor(unit, context, test, scope)


def check_compare(unit, context, test, scope):
    sides = [test.left, *test.comparators]
    for operator, left, right in zip(test.ops, sides, sides[1:]):
        if NONE in (context.value(left, scope), context.value(right, scope)):
            continue
        if isinstance(operator, (*ORDERED, ast.Eq, ast.NotEq)):
            for side in (left, right):
                report_tensor(unit, context, side, scope)


def report_tensor(unit, context, node, scope):
    if isinstance(context.value(node, scope), Tensor):
        context.report(unit.module, "E24-tensor-value", node, f"`{text(node)}` is a tensor")
