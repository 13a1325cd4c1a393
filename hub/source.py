"""What a Python file says without running it: its imports, its `__all__` and its constants."""

import ast
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

_IMPORT_CALLS = ("importlib.import_module", "import_module", "__import__")


@dataclass(frozen=True)
class Import:
    """One imported module.

    `level` counts the leading dots (0 is an absolute import), `module` is what follows them.
    `lazy` says that it happens inside a function, not when the file is imported.
    """

    module: str
    level: int
    lazy: bool
    line: int


def read_imports(source: str) -> list[Import]:
    """List every import in `source`, calls of import_module with a literal name included.

    `from . import a, b` counts as the modules a and b, since it may import them.
    """
    return list(_walk(ast.parse(source), lazy=False))


def _walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, 0, lazy, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            for module in [child.module] if child.module else [name.name for name in child.names]:
                yield Import(module, child.level, lazy, child.lineno)
        elif isinstance(child, ast.Call) and ast.unparse(child.func) in _IMPORT_CALLS:
            name = child.args[0] if child.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                module = name.value.lstrip(".")
                yield Import(module, len(name.value) - len(module), lazy, child.lineno)
        inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _walk(child, lazy or inside)


def literal_all(source: str) -> list[str] | None:
    """Return the `__all__` of `source`, or None if it is not a plain list of string literals.

    The Hub's tools read the public names from the text, so that nothing but one assignment of a
    list counts: no tuple, no annotation, no `+=`.
    """
    found = None
    for node in ast.walk(ast.parse(source)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            continue
        if found is not None or not isinstance(node, ast.Assign):
            return None
        if not isinstance(node.value, ast.List):
            return None
        found = [item.value for item in node.value.elts if isinstance(item, ast.Constant)]
        if len(found) != len(node.value.elts) or not all(isinstance(name, str) for name in found):
            return None
    return found


def literal_constants(path: Path) -> dict[str, Any] | None:
    """Map the constants at the top of the file `path` to their values, without running it.

    Those are the upper-case names, with a leading underscore or none, that are assigned a literal.
    None if there is no such file.
    """
    if not path.is_file():
        return None
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        if name.isupper():
            with contextlib.suppress(ValueError):
                found[name] = ast.literal_eval(node.value)
    return found
