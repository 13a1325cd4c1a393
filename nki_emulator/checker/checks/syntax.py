"""E02, E21: Python that is outside the subset."""

import ast

from ..ast_tools import text
from ..values import ApiName
from .libraries import is_host_value

# Syntax nodes that are refused wherever they stand.
REFUSED = {
    "Lambda": ("E21-lambda", "lambda"),
    "ListComp": ("E21-comprehension", "a list comprehension"),
    "SetComp": ("E21-comprehension", "a set comprehension"),
    "DictComp": ("E21-comprehension", "a dict comprehension"),
    "GeneratorExp": ("E21-comprehension", "a generator expression"),
    "Try": ("E21-try", "try"),
    "TryStar": ("E21-try", "try"),
    "Raise": ("E21-raise", "raise"),
    "NamedExpr": ("E21-walrus", "an assignment expression (:=)"),
    "Yield": ("E21-yield", "yield"),
    "YieldFrom": ("E21-yield", "yield from"),
    "Global": ("E21-global", "global"),
    "Nonlocal": ("E21-global", "nonlocal"),
    "Delete": ("E21-del", "del"),
    "Match": ("E21-match", "match"),
    "AsyncFunctionDef": ("E21-async", "async def"),
    "AsyncFor": ("E21-async", "async for"),
    "AsyncWith": ("E21-async", "async with"),
    "Await": ("E21-async", "await"),
    "Set": ("E21-set", "a set"),
    "ClassDef": ("E21-nested-class", "a class inside a function"),
    "Import": ("E21-import", "an import inside a function"),
    "ImportFrom": ("E21-import", "an import inside a function"),
}

NO_REORDER = ApiName("nki.language.no_reorder")

# Integers are 32 bits wide; the largest unsigned one still fits a register.
INTEGER_LIMIT = 2**32


def check(unit, context):
    if isinstance(unit.node, ast.AsyncFunctionDef):
        context.report(unit.module, "E21-async", unit.node, f"async def {unit.node.name}")
    for node, scope in unit.nodes:
        name = type(node).__name__
        if name in REFUSED:
            rule, words = REFUSED[name]
            context.report(unit.module, rule, node, words)
        elif isinstance(node, ast.Compare):
            check_compare(unit, context, node)
        elif isinstance(node, ast.With):
            check_with(unit, context, node, scope)
        elif isinstance(node, (ast.For, ast.While)) and node.orelse:
            context.report(unit.module, "E21-loop-else", node.orelse[0], "else on a loop")
        elif isinstance(node, ast.Starred):
            context.report(unit.module, "E21-star", node, f"`{text(node)}`")
        elif isinstance(node, ast.Call):
            check_keyword_star(unit, context, node)
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
            context.report(unit.module, "E21-matmul-operator", node, f"`{text(node)}`")
        elif isinstance(node, ast.Constant):
            check_literal(unit, context, node)


def check_compare(unit, context, node):
    for operator in node.ops:
        if isinstance(operator, (ast.Is, ast.IsNot)):
            words = "is not" if isinstance(operator, ast.IsNot) else "is"
            context.report(unit.module, "E02-is", node, f"`{words}` in `{text(node)}`")


def check_with(unit, context, node, scope):
    for item in node.items:
        expression = item.context_expr
        called = expression.func if isinstance(expression, ast.Call) else expression
        value = context.value(called, scope)
        if is_host_value(value) or isinstance(value, ApiName) and value != NO_REORDER:
            context.report(unit.module, "E21-with", node, f"`with {text(expression)}`")


def check_keyword_star(unit, context, node):
    for keyword in node.keywords:
        if keyword.arg is None:
            context.report(unit.module, "E21-star", keyword.value, f"`**{text(keyword.value)}`")


def check_literal(unit, context, node):
    value = node.value
    if isinstance(value, (bytes, complex)):
        context.report(
            unit.module, "E21-literal", node, f"{value!r} of type {type(value).__name__}"
        )
    elif type(value) is int and value >= INTEGER_LIMIT:
        context.report(unit.module, "E21-literal", node, f"{value} needs more than 32 bits")
