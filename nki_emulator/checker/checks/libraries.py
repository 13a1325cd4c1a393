"""E06, E22: builtins, host libraries and the old namespace inside kernel code."""

import ast
import builtins
import sys

from ..ast_tools import text
from ..values import ApiName, BuiltinName, ClassValue, FunctionValue, LibraryName

ALLOWED_BUILTINS = frozenset(
    "bool dict divmod float int isinstance len list max min print range slice str tuple".split()
)

ALLOWED_LIBRARY = frozenset(
    f"math.{name}" for name in ("ceil", "floor", "gcd", "inf", "pi", "sqrt")
) | {"math", "numpy", "numpy.inf"}

BUILTIN_FIXES = {
    "abs": "write value if value >= 0 else -value",
    "breakpoint": "remove it after debugging: it works under a simulator only",
    "enumerate": "loop over range(len(...))",
    "zip": "loop over range(len(...))",
}

# Libraries that are certainly not part of NKI; others may be kernel libraries of their own.
HOST_LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "jax",
    "ml_dtypes",
    "numpy",
    "pandas",
    "scipy",
    "tensorflow",
    "torch",
    "torch_neuronx",
    "torch_xla",
    "transformers",
}

OLD_NAMESPACE = "neuronxcc"
SHARED_CONSTANT = ApiName("nki.language.shared_constant")


def is_host_value(value):
    """Certainly something of Python or of a host library, or a function or class of one's own."""
    if isinstance(value, LibraryName):
        return value.root in HOST_LIBRARIES
    return isinstance(value, (BuiltinName, FunctionValue, ClassValue))


def check(unit, context):
    allowed = constant_arguments(unit, context)
    covered = set()
    for node, scope in unit.nodes:
        if id(node) in covered or id(node) in allowed:
            continue
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = context.value(node, scope)
            if isinstance(value, LibraryName):
                covered.update(id(inner) for inner in ast.walk(node))
                check_library(unit, context, node, scope, value)
            elif isinstance(value, BuiltinName):
                check_builtin(unit, context, node, value.name)
    for decorator in unit.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        value = context.value(called, unit.function.scope)
        if isinstance(value, LibraryName) and value.root == OLD_NAMESPACE:
            check_library(unit, context, called, unit.function.scope, value)


def constant_arguments(unit, context):
    """Ids of nodes inside nl.shared_constant(...), where a NumPy array is what is asked for."""
    found = set()
    for node, scope in unit.nodes:
        if isinstance(node, ast.Call) and context.value(node.func, scope) == SHARED_CONSTANT:
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                found.update(id(inner) for inner in ast.walk(argument))
    return found


def check_library(unit, context, node, scope, value):
    if value.root == OLD_NAMESPACE:
        report_old_namespace(unit, context, node, scope)
    elif value.root in HOST_LIBRARIES and value.path not in ALLOWED_LIBRARY:
        context.report(unit.module, "E22-library", node, f"`{text(node)}` is {value.path}")


def report_old_namespace(unit, context, node, scope):
    """At the import that brings neuronxcc in, once, rather than at every use."""
    name = node
    while isinstance(name, ast.Attribute):
        name = name.value
    owner = scope.owner(name.id) if isinstance(name, ast.Name) else None
    place = node
    if owner is not None:
        imports = [binding.node for binding in owner.bindings[name.id] if binding.kind == "import"]
        place = imports[0] if imports else node
    context.report(unit.module, "E06-neuronxcc", place, f"`{text(place)}`")


def check_builtin(unit, context, node, name):
    if name in ALLOWED_BUILTINS:
        return
    value = getattr(builtins, name)
    if isinstance(value, type) and issubclass(value, BaseException):
        # Only `raise` and `except` have a use for it, and they are refused themselves.
        return
    if callable(value):
        context.report(unit.module, "E22-builtin", node, f"`{name}`", fix=BUILTIN_FIXES.get(name))
