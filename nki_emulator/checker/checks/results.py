"""E08: what a kernel returns; E17-nested-jit: kernels used by kernels."""

import ast

from ..ast_tools import returns, text
from ..reach import is_jitted
from ..values import FunctionValue, Tensor


def check(unit, context):
    if unit.is_kernel and unit.node not in nested_kernels(context):
        for statement in returns(unit.node):
            if statement.value is not None:
                check_returned(unit, context, statement.value)
    for node, scope in unit.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = context.value(node, scope)
            if isinstance(value, FunctionValue) and is_jitted(value, context.evaluator):
                context.report(unit.module, "E17-nested-jit", node, f"`{text(node)}`")


def nested_kernels(context):
    """Nodes of kernels that other kernel code uses: helpers, which may return any tensor."""
    if context.nested_kernels is None:
        context.nested_kernels = set()
        for unit in context.program.units:
            for node, scope in unit.nodes:
                if isinstance(node, (ast.Name, ast.Attribute)):
                    value = context.value(node, scope)
                    if isinstance(value, FunctionValue) and is_jitted(value, context.evaluator):
                        context.nested_kernels.add(value.node)
    return context.nested_kernels


def check_returned(unit, context, expression):
    if isinstance(expression, (ast.Tuple, ast.List)):
        for item in expression.elts:
            check_returned(unit, context, item)
        return
    value = context.value(expression, unit.scope)
    if isinstance(value, Tensor) and value.buffer not in ("shared_hbm", None):
        found = f"`{text(expression)}` is in nl.{value.buffer}"
        context.report(unit.module, "E08-return-buffer", expression, found)
