"""The public API, read from the text of the package, and which changes need a new version.

The API is what the package's `__all__` names. `public_api.json`, beside build.toml, records it with
the version it belongs to; a change shows up as a difference to the record. Users ask the Hub for a
version, and get whatever was last published as that version, so that a name that goes away or
changes its signature needs a new one. A name that is added does not: all variants are published
together, so nobody is left with one that lacks it.

Nothing is imported, so that the text does not depend on the installed Python or torch.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from hub.manifest import read_manifest
from hub.source import literal_all

RECORD = Path("public_api.json")
_COMMAND = "neuron-vit-hub public-api --record"


@dataclass(frozen=True)
class Difference:
    """What became of a recorded API, one line a name.

    `breaking` are names that are gone or changed, `added` names that are new.
    """

    breaking: list[str]
    added: list[str]


class ApiError(Exception):
    """Why an API cannot be read or recorded."""


def read_api(package: Path) -> dict[str, str]:
    """Map each public name of the package in the folder `package` to its declaration.

    A class brings its public members along, as "Class.member", and a module its names.
    """
    init = package / "__init__.py"
    names = literal_all(init.read_text(encoding="utf-8"))
    if names is None:
        raise ApiError(f"{init}: __all__ must be one assignment of a list of string literals")
    api: dict[str, str] = {}
    for name in names:
        _describe(api, name, _find(init, name))
    return dict(sorted(api.items()))


def compare(recorded: dict[str, str], current: dict[str, str]) -> Difference:
    """Compare two results of `read_api`."""
    breaking = [f"{name} is gone" for name in recorded if name not in current]
    breaking += [
        f"{name} was {recorded[name]} and is {current[name]}"
        for name in recorded
        if name in current and recorded[name] != current[name]
    ]
    added = [f"{name} {current[name]}" for name in current if name not in recorded]
    return Difference(breaking, added)


def check_api(root: Path) -> list[str]:
    """Compare the checkout `root` with its record; [] means that they agree.

    Each line says what changed; the last one says what to do.
    """
    manifest = read_manifest(root)
    record = _read_record(root)
    if record is None:
        return [f"there is no {RECORD}: run `{_COMMAND}`"]
    version, recorded = record
    difference = compare(recorded, read_api(manifest.package))
    if version != manifest.version:
        return [
            f"{RECORD} is the API of version {version}, build.toml says {manifest.version}: "
            f"run `{_COMMAND}`"
        ]
    if difference.breaking:
        return [*difference.breaking, *difference.added, _raise_version(version)]
    if difference.added:
        return [*difference.added, f"these names are new: run `{_COMMAND}`"]
    return []


def record_api(root: Path) -> Path:
    """Record the API of the checkout `root` and return the file.

    Raises ApiError for a breaking change to a version that is recorded already, and for a version
    below the recorded one.
    """
    manifest = read_manifest(root)
    current = read_api(manifest.package)
    record = _read_record(root)
    if record is not None:
        version, recorded = record
        if manifest.version < version:
            raise ApiError(
                f"build.toml says version {manifest.version}, {RECORD} is of version {version}; "
                "versions only go up"
            )
        breaking = compare(recorded, current).breaking
        if breaking and manifest.version == version:
            raise ApiError("\n".join([*breaking, _raise_version(version)]))
    path = root / RECORD
    document = {"version": manifest.version, "api": current}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def _raise_version(version: int) -> str:
    return (
        f"this breaks callers of version {version}: set version = {version + 1} in build.toml, "
        f"then run `{_COMMAND}`"
    )


def _read_record(root: Path) -> tuple[int, dict[str, str]] | None:
    path = root / RECORD
    if not path.is_file():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["version"], document["api"]


def _find(path: Path, name: str) -> ast.stmt | Path:
    """Follow `name` from the file `path` to its definition, or to the file of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            return node
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _follow(path, node, alias.name)
    raise ApiError(f"{path}: the public name {name} is not defined at the top of a module")


def _follow(path: Path, node: ast.ImportFrom, name: str) -> ast.stmt | Path:
    """Find the `name` that the relative import `node` brings into the file `path`."""
    folder = path.parents[node.level - 1]
    target = folder.joinpath(*node.module.split(".")) if node.module else folder
    submodule = _module_file(target / name)
    if submodule is not None:
        return submodule
    file = _module_file(target)
    if file is None or file == path:
        raise ApiError(f"{path}: {ast.unparse(node)} names a module that is not there")
    return _find(file, name)


def _module_file(path: Path) -> Path | None:
    for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def _describe(api: dict[str, str], name: str, found: ast.stmt | Path) -> None:
    if isinstance(found, Path):
        api[name] = "module"
        for inner in _names_of_module(found):
            _describe(api, f"{name}.{inner}", _find(found, inner))
    elif isinstance(found, ast.ClassDef):
        api[name] = f"class{_bases(found)} {_constructor(found)}".rstrip()
        for member in found.body:
            # The fields of a dataclass are in its constructor.
            if _is_dataclass(found) and isinstance(member, ast.AnnAssign):
                continue
            for inner, text in _members(member):
                if not inner.startswith("_"):
                    api[f"{name}.{inner}"] = text
    elif isinstance(found, ast.FunctionDef):
        api[name] = _signature(found)
    else:
        api[name] = _value(found)


def _names_of_module(path: Path) -> list[str]:
    source = path.read_text(encoding="utf-8")
    definitions = (ast.ClassDef, ast.FunctionDef)
    names = literal_all(source) or [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, definitions) and not node.name.startswith("_")
    ]
    if not names:
        raise ApiError(f"{path} is public and defines no names; give it an __all__")
    return names


def _bases(node: ast.ClassDef) -> str:
    return f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""


def _is_dataclass(node: ast.ClassDef) -> bool:
    decorators = [ast.unparse(item).split("(")[0] for item in node.decorator_list]
    return "dataclass" in decorators or "dataclasses.dataclass" in decorators


def _constructor(node: ast.ClassDef) -> str:
    if _is_dataclass(node):
        fields = [ast.unparse(item) for item in node.body if isinstance(item, ast.AnnAssign)]
        return f"({', '.join(fields)})"
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return f"({ast.unparse(item.args)})"
    return ""


def _members(node: ast.stmt) -> list[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef):
        decorators = "".join(f"@{ast.unparse(item)} " for item in node.decorator_list)
        return [(node.name, decorators + _signature(node))]
    if isinstance(node, ast.Assign):
        return [(ast.unparse(target), _value(node)) for target in node.targets]
    if isinstance(node, ast.AnnAssign):
        return [(ast.unparse(node.target), _value(node))]
    return []


def _signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returns}"


def _value(node: ast.Assign | ast.AnnAssign) -> str:
    annotation = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
    value = f"= {ast.unparse(node.value)}" if node.value is not None else ""
    return f"{annotation} {value}".strip()
