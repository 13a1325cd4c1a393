"""Python files as modules: finding them, parsing them, resolving their imports to each other."""

import ast
import os
import sys
from dataclasses import dataclass

from .findings import CheckError

SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist"})


@dataclass(eq=False)
class Module:
    """One parsed file. path: as messages name it; file: its real path."""

    path: str
    file: str
    tree: ast.Module
    lines: list

    @property
    def folder(self):
        return os.path.dirname(self.file)

    def line(self, number):
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""


def python_files(path):
    """Every .py file of a folder, sorted, links to folders not followed; or the file itself."""
    if os.path.isfile(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith(".")
        )
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
    return found


class Sources:
    """The modules under check and, read on demand, those they import relatively."""

    def __init__(self, paths):
        """Raises CheckError with every path that is missing and every file that does not parse."""
        self.by_file = {}
        self.checked = []
        problems = []
        for path in map(os.fspath, paths):
            if not os.path.exists(path):
                problems.append(f"{path}: no such file or folder; name a Python file or a folder")
                continue
            files = python_files(path)
            if not files:
                problems.append(f"{path}: no Python file in it; name a folder that has kernels")
            for name in files:
                try:
                    module = self.load(name, name)
                except (SyntaxError, UnicodeDecodeError, ValueError) as error:
                    problems.append(unreadable(name, error))
                    continue
                if module not in self.checked:
                    self.checked.append(module)
        if problems:
            raise CheckError(problems)

    def load(self, name, shown):
        file = os.path.realpath(name)
        if file not in self.by_file:
            with open(file, "rb") as opened:
                content = opened.read()
            tree = ast.parse(content, shown)
            lines = content.decode("utf-8", "replace").splitlines()
            self.by_file[file] = Module(shown, file, tree, lines)
        return self.by_file[file]

    def imported(self, importer, level, name):
        """The Module that `from <level dots><name> import ...` in ``importer`` reads, or None."""
        if level > 0:
            folder = importer.folder
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return self.at(importer, folder, name)
        return self.absolute(importer, name)

    def absolute(self, importer, name):
        """A package above the importer, or a script's neighbour; never the standard library."""
        root = name.split(".")[0]
        if root in sys.stdlib_module_names:
            return None
        folder = importer.folder
        if not is_package(folder):
            return self.at(importer, folder, name)
        while is_package(folder):
            parent = os.path.dirname(folder)
            if os.path.basename(folder) == root:
                return self.at(importer, parent, name)
            folder = parent
        return None

    def at(self, importer, folder, name):
        base = os.path.join(folder, *name.split(".")) if name else folder
        for file in (base + ".py", os.path.join(base, "__init__.py")):
            if os.path.isfile(file):
                shown = shown_beside(importer, file)
                try:
                    return self.load(file, shown)
                except (SyntaxError, UnicodeDecodeError, ValueError) as error:
                    raise CheckError([unreadable(shown, error)]) from error
        return None


def is_package(folder):
    return os.path.isfile(os.path.join(folder, "__init__.py"))


def shown_beside(importer, file):
    """How messages name a file that ``importer`` imports: relative if the importer is."""
    if os.path.isabs(importer.path):
        return file
    return os.path.relpath(file)


def unreadable(name, error):
    if isinstance(error, SyntaxError):
        return f"{name}:{error.lineno}: not valid Python: {error.msg}; correct it first"
    return f"{name}: cannot be read as Python source: {error}"
