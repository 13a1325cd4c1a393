"""E05, E07, E14: arguments of every call of the NKI API and of tensor methods."""

import ast

from ..ast_tools import text
from ..binding import bind
from ..old_names import BETA_ARGUMENTS, REMOVED_ARGUMENTS
from ..values import ApiName, Tensor
from .names import suggestion


def check(unit, context):
    for node, scope in unit.nodes:
        if isinstance(node, ast.Call):
            signature = called_signature(context, node, scope)
            if signature is not None:
                check_call(unit, context, node, scope, signature)


def called_signature(context, node, scope):
    """Signature of the API function or tensor method that a call certainly calls, or None."""
    api = context.api
    function = context.value(node.func, scope)
    if isinstance(function, ApiName):
        return api.functions.get(function.path)
    if isinstance(node.func, ast.Attribute):
        if isinstance(context.value(node.func.value, scope), Tensor):
            return api.tensor_methods.get(node.func.attr)
    return None


def check_call(unit, context, node, scope, signature):
    """Report the first thing that is wrong: the rest often follows from it."""
    if context.is_old_order(node, scope, signature.path):
        context.report(unit.module, "E14-argument-order", node, f"`{text(node)}`")
        return
    bound = bind(node, signature)
    takes = f"{signature.path} takes {', '.join(signature.names) or 'no arguments'}"
    if bound.unknown:
        for keyword in bound.unknown:
            report_unknown(unit, context, keyword, signature, takes)
    elif bound.repeated:
        keyword = bound.repeated[0]
        found = f"{keyword.arg} is given by position and by keyword"
        context.report(unit.module, "E05-repeated-argument", keyword.value, found, takes)
    elif bound.too_many:
        found = f"{len(node.args)} positional arguments"
        context.report(unit.module, "E05-too-many-arguments", node, found, takes)
    elif bound.missing:
        found = f"`{text(node.func)}` without {', '.join(bound.missing)}"
        context.report(unit.module, "E05-missing-argument", node, found, takes)


def report_unknown(unit, context, keyword, signature, takes):
    found = f"{keyword.arg}={text(keyword.value)}"
    removed = REMOVED_ARGUMENTS.get((signature.path, keyword.arg))
    if removed is not None:
        context.report(
            unit.module, "E14-removed-argument", keyword.value, found, takes, fix=removed
        )
    elif is_beta_argument(signature.path, keyword.arg):
        context.report(
            unit.module,
            "E07-beta-argument",
            keyword.value,
            found,
            takes,
            fix=BETA_ARGUMENTS[keyword.arg],
        )
    else:
        context.report(
            unit.module,
            "E05-unknown-argument",
            keyword.value,
            found,
            takes,
            fix=suggestion(keyword.arg, signature.names),
        )


def is_beta_argument(path, name):
    if name == "mask":
        return path.startswith(("nki.isa.", "nki.language."))
    return name == "dtype" and path.startswith("nki.isa.")
