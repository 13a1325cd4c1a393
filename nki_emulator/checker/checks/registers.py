"""E18: registers have no value while the kernel is compiled."""

import ast

from ..ast_tools import text
from ..old_names import RANGE_ALIASES
from ..values import NONE, ApiName, BuiltinName, Register

CONVERSIONS = frozenset(
    [BuiltinName(name) for name in "bool divmod float int len max min range".split()]
    + [ApiName(path) for path in RANGE_ALIASES]
)
WRITES = frozenset({"nki.isa.register_move", "nki.isa.register_load"})


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            check_condition(unit, context, node, scope)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                check_truth(unit, context, value, scope)
        elif isinstance(node, ast.UnaryOp):
            check_unary(unit, context, node, scope)
        elif isinstance(node, ast.BinOp):
            check_arithmetic(unit, context, node, scope, (node.left, node.right))
        elif isinstance(node, ast.AugAssign):
            check_augmented(unit, context, node, scope)
        elif isinstance(node, ast.Compare):
            check_compare(unit, context, node, scope)
        elif isinstance(node, ast.Call):
            check_conversion(unit, context, node, scope)
    for call in context.api_calls(unit):
        if call.path in WRITES and call.value("dst") == Register(loop=True):
            found = f"`{text(call.node)}`: {text(call.nodes['dst'])} counts the loop"
            context.report(unit.module, "E18-loop-register-write", call.node, found)


def is_register(context, node, scope):
    return isinstance(context.value(node, scope), Register)


def check_condition(unit, context, node, scope):
    # `while register:` is deprecated, not refused: deprecated.py.
    if not isinstance(node, ast.While):
        check_truth(unit, context, node.test, scope)


def check_truth(unit, context, node, scope):
    if is_register(context, node, scope):
        found = f"`{text(node)}` is a register"
        context.report(unit.module, "E18-register-in-condition", node, found)


def check_unary(unit, context, node, scope):
    if isinstance(node.op, ast.Not):
        check_truth(unit, context, node.operand, scope)
    else:
        check_arithmetic(unit, context, node, scope, (node.operand,))


def check_arithmetic(unit, context, node, scope, operands):
    for operand in operands:
        if is_register(context, operand, scope):
            found = f"`{text(node)}`: {text(operand)} is a register"
            context.report(unit.module, "E18-register-arithmetic", node, found)
            return


def check_augmented(unit, context, node, scope):
    operands = [node.value]
    if isinstance(node.target, ast.Name):
        owner = scope.owner(node.target.id)
        others = owner.bindings[node.target.id] if owner else []
        if any(
            isinstance(context.evaluator.binding(binding, owner), Register)
            for binding in others
            if binding.node is not node
        ):
            operands = [node.target]
            found = f"`{text(node)}`: {node.target.id} is a register"
            context.report(unit.module, "E18-register-arithmetic", node, found)
            return
    check_arithmetic(unit, context, node, scope, operands)


def check_compare(unit, context, node, scope):
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, sides[1:]):
        if NONE in (context.value(left, scope), context.value(right, scope)):
            continue
        if not isinstance(operator, (ast.In, ast.NotIn)):
            check_arithmetic(unit, context, node, scope, (left, right))


def check_conversion(unit, context, node, scope):
    function = context.value(node.func, scope)
    if function not in CONVERSIONS:
        return
    for argument in node.args:
        if is_register(context, argument, scope):
            found = f"`{text(node)}`: {text(argument)} is a register"
            context.report(unit.module, "E18-register-conversion", node, found)
            return
