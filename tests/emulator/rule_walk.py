"""Which rules the emulator's source raises, and which rules have a pair of tests.

A *pair* is a kernel (or call) that obeys a rule and passes, and one that breaks it and is refused
with that rule: `pair`, `pair_of_calls` and `warned` of `support.py` run both. A test counts for a
rule if the rule's id reaches one of these functions: written in the call, listed in the test's
`parametrize`, or passed to a helper of the same file that hands it on. `refused` runs the breaking
half only, so it counts if the same test also runs a kernel to its end.
"""

import ast
import functools
from collections import defaultdict
from pathlib import Path

import nki_emulator

PACKAGE = Path(nki_emulator.__file__).parent
# The language checker has rules and tests of its own.
SOURCES = [p for p in PACKAGE.rglob("*.py") if not {"checker", "rulebook"} & set(p.parts)]
TESTS = sorted(Path(__file__).parent.glob("test_*.py"))

PAIRS = {"pair", "pair_of_calls", "warned"}
RUNS = {"simulate", "record"}
# Raised with an id that is made from the name of the memory.
COMPUTED = {"sbuf-full", "psum-full"}


@functools.lru_cache(maxsize=None)
def raised_rules():
    """({rule id: [(file, line), ...]}, number of ids that are not written out)."""
    found, computed = defaultdict(list), 0
    trees = {path: ast.parse(path.read_text()) for path in SOURCES}
    errors = _error_classes(trees.values())
    for path, tree in trees.items():
        for node in ast.walk(tree):
            rule = None
            if isinstance(node, ast.Call):
                own = _name(node.func) in errors | {"warn"}
                if own or _is_super_init(node, tree, errors):
                    rule = node.args[0] if node.args else None
            elif isinstance(node, ast.Assign) and _name(node.targets[0]) == "rule":
                # An error that is raised again under another id.
                rule = node.value if isinstance(node.targets[0], ast.Attribute) else None
            if isinstance(rule, ast.Constant) and isinstance(rule.value, str):
                found[rule.value].append((path.relative_to(PACKAGE).as_posix(), rule.lineno))
            elif isinstance(rule, ast.JoinedStr):
                computed += 1
    return found, computed


def _error_classes(trees):
    """Names of the package's error classes whose first argument is a rule."""
    classes = {
        node.name: {_name(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    errors = {"NkiError"}
    while True:
        more = {name for name, bases in classes.items() if bases & errors} - errors
        if not more:
            return errors - {"NkiNotImplemented"}  # its first argument is the name of a function
        errors |= more


def _is_super_init(call, tree, errors):
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"):
        return False
    if _name(getattr(call.func.value, "func", None)) != "super":
        return False
    owners = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and call in ast.walk(n)]
    return any(owner.name in errors | {"NkiNotImplemented"} for owner in owners)


def _name(node):
    return getattr(node, "id", getattr(node, "attr", None))


@functools.lru_cache(maxsize=None)
def paired_rules():
    """{rule id: [test, ...]} of the rules that have a pair; a test is "file::function"."""
    found = defaultdict(list)
    for path in TESTS:
        for test, rules in pairs_in(ast.parse(path.read_text())):
            for rule in rules:
                found[rule].append(f"{path.name}::{test}")
    return found


def pairs_in(tree):
    """Pairs (test, rules) of a file, one for each test."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    lists = {
        _name(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)
    }
    helpers = _helpers(functions)
    for name, function in functions.items():
        if name.startswith("test_"):
            yield name, set(_rules_of(function, helpers, lists))


def _helpers(functions):
    """{helper: position of the parameter that it hands to a pair as the rule}."""
    helpers = {}
    for name, function in functions.items():
        parameters = [argument.arg for argument in function.args.args]
        for call in _calls(function):
            if _name(call.func) in PAIRS and isinstance(call.args[0], ast.Name):
                if not name.startswith("test_") and call.args[0].id in parameters:
                    helpers[name] = parameters.index(call.args[0].id)
    return helpers


def _rules_of(test, helpers, lists):
    runs_a_kernel = any(
        isinstance(call.func, ast.Call) and _name(call.func.func) in RUNS for call in _calls(test)
    )
    for call in _calls(test):
        name = _name(call.func)
        position = helpers.get(name, 0)
        counts = name in PAIRS or name in helpers or (name == "refused" and runs_a_kernel)
        if counts and len(call.args) > position:
            yield from _strings(call.args[position], test, lists)


def _calls(node):
    return [part for part in ast.walk(node) if isinstance(part, ast.Call)]


def _strings(node, test, lists):
    """The values that the expression ``node`` takes in ``test``, as far as they are written out."""
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Name):
        for decorator in test.decorator_list:
            if isinstance(decorator, ast.Call) and _name(decorator.func) == "parametrize":
                yield from _column(node.id, decorator, lists)
        for loop in ast.walk(test):
            if isinstance(loop, ast.For):
                yield from _items(_position(node.id, loop.target), loop.iter, lists)


def _column(name, decorator, lists):
    names = decorator.args[0]
    if isinstance(names, ast.Constant):
        listed = [part.strip() for part in names.value.split(",")]
    else:
        listed = [part.value for part in names.elts]
    if name in listed:
        position = listed.index(name) if len(listed) > 1 else None
        yield from _items((position,), decorator.args[1], lists)


def _position(name, target):
    """Where a loop puts its items: (None,) for the whole item, (i,) for part i, () for nowhere."""
    if isinstance(target, ast.Name):
        return (None,) if target.id == name else ()
    parts = [_name(part) for part in target.elts]
    return (parts.index(name),) if name in parts else ()


def _items(where, values, lists):
    if isinstance(values, ast.Name):
        values = lists.get(values.id)
    if not where or not isinstance(values, (ast.List, ast.Tuple)):
        return
    for item in values.elts:
        if isinstance(item, ast.Call) and _name(item.func) == "param":
            item = ast.Tuple(item.args)
        if where[0] is not None and isinstance(item, ast.Tuple):
            item = item.elts[where[0]]
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value
