"""Bind the arguments of a call to a signature, as Python would."""

from dataclasses import dataclass, field

from .ast_tools import has_star


@dataclass
class Bound:
    """arguments: parameter name -> expression. The lists name what did not fit."""

    arguments: dict = field(default_factory=dict)
    too_many: list = field(default_factory=list)
    unknown: list = field(default_factory=list)
    repeated: list = field(default_factory=list)
    missing: list = field(default_factory=list)


def bind(call, signature):
    """Bind an ast.Call; what * and ** bring in is unknown and never reported."""
    bound = Bound()
    star = has_star(call)
    names = list(signature.names)
    if not star:
        for argument in call.args:
            if names:
                bound.arguments[names.pop(0)] = argument
            elif not signature.any_positional:
                bound.too_many.append(argument)
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in signature.names:
            if not signature.any_keyword:
                bound.unknown.append(keyword)
        elif keyword.arg in bound.arguments:
            bound.repeated.append(keyword)
        else:
            bound.arguments[keyword.arg] = keyword.value
    if not star:
        bound.missing = [name for name in signature.required if name not in bound.arguments]
    return bound
