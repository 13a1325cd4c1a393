"""E18: fori_loop, while_loop and dynamic_range."""

import ast

from ..ast_tools import always_returns, returns, text
from ..binding import bind
from ..scopes import parameters
from ..values import (
    NONE,
    UNKNOWN,
    ApiName,
    BuiltinName,
    ClassValue,
    Constant,
    Container,
    FunctionValue,
    Register,
    Sequence,
    Tensor,
    is_integer,
)

FORI_LOOP = ApiName("nki.language.fori_loop")
WHILE_LOOP = ApiName("nki.language.while_loop")
DYNAMIC_RANGE = ApiName("nki.language.dynamic_range")
NO_REORDER = ApiName("nki.language.no_reorder")
LOOPS = (FORI_LOOP, WHILE_LOOP, DYNAMIC_RANGE)

NOT_A_FUNCTION = (Constant, Container, Register, Sequence, Tensor)


def loop_arguments(node, scope, evaluator):
    """(which loop, argument expressions by parameter) of a call, or (None, {})."""
    function = evaluator.expression(node.func, scope)
    if function not in LOOPS:
        return None, {}
    return function, bind(node, evaluator.api.functions[function.path]).arguments


def find_loop_parameters(program, evaluator):
    """Tell ``evaluator`` which parameters are the registers that loops pass to their bodies.

    Only for functions that are used as loop bodies and for nothing else.
    """
    uses = {}
    loops = {}
    for unit in program.units:
        for node, scope in unit.nodes:
            if isinstance(node, ast.Name):
                value = evaluator.expression(node, scope)
                if isinstance(value, FunctionValue):
                    uses[value.node] = uses.get(value.node, 0) + 1
            elif isinstance(node, ast.Call):
                loop, arguments = loop_arguments(node, scope, evaluator)
                body = arguments.get("body_fun")
                if isinstance(body, ast.Name):
                    value = evaluator.expression(body, scope)
                    if isinstance(value, FunctionValue):
                        loops.setdefault(value.node, []).append(loop)
    for function, kinds in loops.items():
        names = parameters(function.args)
        if names and uses.get(function) == len(kinds) and len(set(kinds)) == 1:
            evaluator.loop_parameters[names[0]] = Register(loop=kinds[0] == FORI_LOOP)
    evaluator.forget()


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, ast.Call):
            loop, arguments = loop_arguments(node, scope, context.evaluator)
            if loop is not None:
                check_loop(unit, context, scope, loop, arguments)
        elif isinstance(node, ast.With) and is_no_reorder(node, scope, context.evaluator):
            for statement in node.body:
                check_no_reorder(unit, context, statement, scope)
        elif isinstance(node, ast.For):
            check_loop_tensors(unit, context, node, scope)


def check_loop(unit, context, scope, loop, arguments):
    bounds = {FORI_LOOP: ("lower", "upper"), WHILE_LOOP: (), DYNAMIC_RANGE: ("start", "stop")}
    for name in bounds[loop]:
        if name in arguments:
            check_bound(unit, context, name, arguments[name], scope)
    if "init" in arguments:
        value = context.value(arguments["init"], scope)
        if isinstance(value, NOT_A_FUNCTION) and not isinstance(value, Register):
            found = f"init={text(arguments['init'])}"
            context.report(unit.module, "E18-loop-bound", arguments["init"], found)
    if "step" in arguments:
        value = context.value(arguments["step"], scope)
        positive = is_integer(value) and value.value > 0
        if not positive and value != UNKNOWN:
            found = f"step={text(arguments['step'])}"
            context.report(unit.module, "E18-loop-step", arguments["step"], found)
    if "body_fun" in arguments:
        check_body(unit, context, loop, arguments["body_fun"], scope)


def check_bound(unit, context, name, node, scope):
    value = context.value(node, scope)
    if is_integer(value) or (name == "stop" and value == NONE):
        return
    if isinstance(value, (Constant, Container, Sequence, Tensor)):
        context.report(unit.module, "E18-loop-bound", node, f"{name}={text(node)}")


def check_body(unit, context, loop, node, scope):
    value = context.value(node, scope)
    if isinstance(value, NOT_A_FUNCTION):
        context.report(unit.module, "E18-loop-body", node, f"body_fun={text(node)}")
    if not isinstance(value, FunctionValue) or isinstance(value.node, ast.Lambda):
        return
    function = value.node
    arguments = function.args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    most = len(arguments.posonlyargs) + len(arguments.args)
    if required > 1 or (most == 0 and arguments.vararg is None):
        found = f"{function.name} takes {required if required > 1 else most} parameters"
        context.report(unit.module, "E18-loop-body", node, found)
    elif loop == FORI_LOOP:
        check_fori_body(unit, context, function)
    elif loop == WHILE_LOOP:
        check_while_body(context, value)


def check_fori_body(unit, context, function):
    for statement in returns(function):
        if statement.value is not None and not is_none(statement.value):
            found = f"{function.name} returns `{text(statement.value)}`"
            context.report(unit.module, "E18-fori-body-result", statement, found)


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def check_while_body(context, value):
    function = value.node
    scope = context.evaluator.scopes.of_function(function, value.scope)
    if not always_returns(function.body):
        found = f"{function.name} can end without a return"
        context.report(value.module, "E18-while-body-result", function, found)
        return
    refused = (*NOT_A_FUNCTION, BuiltinName, ClassValue, FunctionValue)
    for statement in returns(function):
        result = NONE if statement.value is None else context.value(statement.value, scope)
        if isinstance(result, refused) and not isinstance(result, Register):
            shown = "None" if statement.value is None else text(statement.value)
            context.report(
                value.module, "E18-while-body-result", statement, f"{function.name} returns {shown}"
            )


# --- no_reorder


def is_no_reorder(node, scope, evaluator):
    return any(
        isinstance(item.context_expr, ast.Call)
        and evaluator.expression(item.context_expr.func, scope) == NO_REORDER
        for item in node.items
    )


def check_no_reorder(unit, context, statement, scope):
    """A loop in the block, or a call of a function that has one, directly or further down."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        function = context.value(node.func, scope)
        if function in LOOPS:
            context.report(unit.module, "E18-loop-in-no-reorder", node, f"`{text(node)}`")
        elif isinstance(function, FunctionValue) and has_loop(function, context.evaluator, set()):
            found = f"`{text(node)}` runs a dynamic loop"
            context.report(unit.module, "E18-loop-in-no-reorder", node, found)


def has_loop(function, evaluator, seen):
    if function.node in seen or isinstance(function.node, ast.Lambda):
        return False
    seen.add(function.node)
    scope = evaluator.scopes.of_function(function.node, function.scope)
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call):
            called = evaluator.expression(node.func, scope)
            if called in LOOPS:
                return True
            if isinstance(called, FunctionValue) and has_loop(called, evaluator, seen):
                return True
    return False


# --- tensors of a loop body


def check_loop_tensors(unit, context, node, scope):
    """A tensor that only a dynamic_range body declares, read after the loop."""
    if not isinstance(node.iter, ast.Call):
        return
    if context.value(node.iter.func, scope) != DYNAMIC_RANGE:
        return
    end = node.end_lineno
    inside = {inner for statement in node.body for inner in ast.walk(statement)}
    for name, bindings in scope.bindings.items():
        if not all(binding.node in inside for binding in bindings):
            continue
        if not isinstance(context.value(ast.Name(name, ast.Load()), scope), Tensor):
            continue
        for used, inner_scope in unit.nodes:
            if isinstance(used, ast.Name) and used.id == name and used.lineno > end:
                if inner_scope.owner(name) is scope:
                    found = f"`{name}` is declared in the loop at line {node.lineno}"
                    context.report(unit.module, "E18-loop-tensor", used, found)
                    break
