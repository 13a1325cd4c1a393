"""E15: calls of nki.language operations that do not compile."""

import ast

from ..ast_tools import text
from ..binding import bind
from ..evaluate import is_number
from ..values import ApiName, Constant, Tensor

NO_DEVICE_FUNCTION = frozenset(f"nki.language.{name}" for name in ("divide", "mod", "fmod"))

# Element-wise operations of two tiles, except abs_max and abs_min: the reference's own examples
# give them a [128, 512] and a [128, 1] tile.
BINARY = frozenset(
    f"nki.language.{name}"
    for name in (
        "add subtract multiply maximum minimum power equal not_equal less less_equal greater "
        "greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and "
        "logical_or logical_xor"
    ).split()
)


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, ast.Call):
            function = context.value(node.func, scope)
            if isinstance(function, ApiName) and function.path in context.evaluator.api.functions:
                signature = context.evaluator.api.functions[function.path]
                arguments = context.evaluator.arguments(node, signature, scope)
                check_call(unit, context, node, function.path, arguments, bind(node, signature))


def check_call(unit, context, node, path, arguments, bound):
    found = f"`{text(node)}`"
    x = arguments.get("x")
    y = arguments.get("y")
    if path in NO_DEVICE_FUNCTION:
        context.report(unit.module, "E15-no-device-function", node, found)
    elif path == "nki.language.power" and y is not None and is_number(y):
        context.report(unit.module, "E15-scalar-power", node, found)
    elif path == "nki.language.matmul":
        transposed = arguments.get("transpose_x", Constant(False))
        if transposed == Constant(False) and not bound.unknown:
            context.report(unit.module, "E15-matmul", node, found)
    elif path == "nki.language.rsqrt":
        if isinstance(x, Tensor) and x.buffer == "psum":
            context.report(unit.module, "E15-rsqrt-psum", node, found)
    elif path == "nki.language.random_seed":
        seed = arguments.get("seed")
        if seed is not None and is_number(seed):
            context.report(unit.module, "E15-random-seed", node, found)
    elif path in BINARY and isinstance(x, Tensor) and isinstance(y, Tensor):
        if differ(x.shape, y.shape):
            shapes = f"{found}: shapes {x.shape} and {y.shape}"
            context.report(unit.module, "E15-broadcast", node, shapes)


def differ(first, second):
    """True if two shapes certainly differ."""
    if first is None or second is None:
        return False
    if len(first) != len(second):
        return True
    return any(
        one is not None and other is not None and one != other
        for one, other in zip(first, second)
    )
