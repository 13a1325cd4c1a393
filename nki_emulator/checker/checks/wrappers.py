"""E15: calls of nki.language operations that do not compile."""

from ..ast_tools import text
from ..evaluate import is_number
from ..values import Constant

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
    for call in context.api_calls(unit):
        found = f"`{text(call.node)}`"
        rule = broken_rule(call)
        if rule is not None:
            context.report(unit.module, rule, call.node, found)
        elif call.path in BINARY:
            check_shapes(unit, context, call, found)


def broken_rule(call):
    if call.path in NO_DEVICE_FUNCTION:
        return "E15-no-device-function"
    if call.path == "nki.language.power":
        if is_number(call.value("x")) or is_number(call.value("y")):
            return "E15-scalar-power"
    if call.path == "nki.language.matmul":
        if call.values.get("transpose_x", Constant(False)) == Constant(False):
            return "E15-matmul"
    if call.path == "nki.language.rsqrt":
        tile = call.tensor("x")
        if tile is not None and tile.buffer == "psum":
            return "E15-rsqrt-psum"
    if call.path == "nki.language.random_seed" and is_number(call.value("seed")):
        return "E15-random-seed"
    return None


def check_shapes(unit, context, call, found):
    x = call.tensor("x")
    y = call.tensor("y")
    if x is not None and y is not None and differ(x.shape, y.shape):
        shapes = f"{found}: shapes {x.shape} and {y.shape}"
        context.report(unit.module, "E15-broadcast", call.node, shapes)


def differ(first, second):
    """True if two shapes certainly differ."""
    if first is None or second is None:
        return False
    if len(first) != len(second):
        return True
    return any(
        one is not None and other is not None and one != other for one, other in zip(first, second)
    )
