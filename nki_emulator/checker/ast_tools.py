"""Small questions about syntax trees that several checks ask."""

import ast

SNIPPET_LENGTH = 60


def has_star(call):
    """True if a call passes *arguments or **keywords."""
    return any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )


def text(node):
    """Source of an expression on one line, shortened."""
    whole = " ".join(ast.unparse(node).split())
    return whole if len(whole) <= SNIPPET_LENGTH else whole[: SNIPPET_LENGTH - 3] + "..."


def always_returns(statements):
    """True if control cannot run off the end of ``statements``."""
    for statement in statements:
        if isinstance(statement, (ast.Return, ast.Raise)):
            return True
        if isinstance(statement, ast.If):
            if always_returns(statement.body) and always_returns(statement.orelse):
                return True
        if isinstance(statement, ast.With) and always_returns(statement.body):
            return True
    return False


OTHER_CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def returns(function):
    """The return statements of a function itself, not of functions inside it."""
    found = []
    pending = list(function.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Return):
            found.append(node)
        elif not isinstance(node, OTHER_CODE):
            pending = list(ast.iter_child_nodes(node)) + pending
    return found
