"""E16-dict-key: dictionaries have string keys."""

import ast

from ..ast_tools import text
from ..values import Constant, Container, EnumMember, Instance, Sequence, Tensor


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, ast.Dict):
            for key in node.keys:
                if key is not None:
                    check_key(unit, context, key, scope)
        elif isinstance(node, ast.Subscript):
            if context.value(node.value, scope) == Container("dict"):
                check_key(unit, context, node.slice, scope)


def check_key(unit, context, key, scope):
    value = context.value(key, scope)
    if isinstance(value, Constant):
        wrong = not isinstance(value.value, str)
    else:
        wrong = isinstance(value, (Container, EnumMember, Instance, Sequence, Tensor))
    if wrong:
        context.report(unit.module, "E16-dict-key", key, f"the key `{text(key)}`")
