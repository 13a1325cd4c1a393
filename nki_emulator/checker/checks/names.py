"""E05-unknown-name, E07-beta-name, E14-removed-function: names of nki, nl, nisa and of tensors."""

import ast
import difflib

from ..ast_tools import text
from ..old_names import REMOVED_FUNCTIONS, beta_replacement
from ..values import ApiName, Tensor


def check(unit, context):
    covered = set()
    for node, scope in unit.nodes:
        if id(node) in covered or not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        value = context.value(node, scope)
        if isinstance(value, ApiName):
            if isinstance(node, ast.Name) and not is_imported(node.id, scope):
                # A local name for something of the API: reported where it is assigned.
                continue
            # The outermost attribute comes first; what it stands on is part of it.
            covered.update(id(inner) for inner in ast.walk(node))
            check_path(unit, context, node, value.path)
        elif isinstance(node, ast.Attribute):
            owner = context.value(node.value, scope)
            if isinstance(owner, Tensor):
                check_tensor_attribute(unit, context, node)


def is_imported(name, scope):
    owner = scope.owner(name)
    if owner is None:
        return True
    return all(binding.kind == "import" for binding in owner.bindings[name])


def check_path(unit, context, node, path):
    api = context.api
    if path in REMOVED_FUNCTIONS:
        fix = REMOVED_FUNCTIONS[path]
        context.report(unit.module, "E14-removed-function", node, f"`{text(node)}`", fix=fix)
        return
    replacement = beta_replacement(path)
    if replacement is not None:
        context.report(unit.module, "E07-beta-name", node, f"`{text(node)}`", fix=replacement)
        return
    missing = first_missing(api, path)
    if missing is not None:
        parent, _, name = missing.rpartition(".")
        context.report(
            unit.module,
            "E05-unknown-name",
            node,
            f"`{text(node)}`: {parent} has no {name}",
            fix=suggestion(name, api.members(parent)),
        )


def first_missing(api, path):
    """The shortest part of ``path`` that NKI 0.6 lacks, or None."""
    parts = path.split(".")
    for length in range(2, len(parts) + 1):
        part = ".".join(parts[:length])
        if api.lacks(part):
            return part
    return None


def suggestion(name, known):
    """ "did you mean", or None for the rule's own words."""
    close = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(close)}?" if close else None


def check_tensor_attribute(unit, context, node):
    api = context.api
    known = set(api.tensor_methods) | api.tensor_attributes
    if node.attr not in known:
        public = sorted(name for name in known if not name.startswith("_"))
        context.report(
            unit.module,
            "E05-unknown-name",
            node,
            f"`{text(node)}`: NkiTensor has no {node.attr}",
            fix=suggestion(node.attr, public),
        )
