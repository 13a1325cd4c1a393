"""Checks a built folder before anybody loads or publishes it.

What can be read is read without running it: the metadata and digests with the parsers of the
kernels library, the sources as syntax trees. What cannot, whether the package imports and its
public names exist, is tried in a process of its own.
"""

import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kernels._rust import Digest, DigestValidationError, Metadata

from hub import probe
from hub.arrows import wrong_imports_in_package
from hub.build import GENERATED
from hub.source import literal_all

# The oldest Python that a kernel on the Hub has to support (the kernels library's documentation,
# "Kernel requirements").
OLDEST_PYTHON = (3, 9)
# The kernels library knows which Python dependencies a backend may have; these are ours.
PYTHON_DEPENDS = {"cpu": [], "neuron": ["nki"]}
# Functions of torch.library that name an operator or a namespace in their first argument.
_REGISTRATIONS = (
    "Library",
    "custom_op",
    "define",
    "impl",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
)
# Namespaces of torch's own operators.
_TORCH_NAMESPACES = ("aten", "prim", "prims", "higher_order")
# What the metadata of all variants must say alike.
_COMMON_METADATA = ("name", "version", "license", "upstream", "source")
# Ends the name of a class that transformers builds in place of a layer; it may have a constructor.
_LAYOUT = "Layout"
_LAYER_MEMBERS = ("forward", "can_torch_compile", "has_backward")


@dataclass(frozen=True)
class Finding:
    """Something wrong with a build: `place` is a path in it, with a line number if it has one."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def check(folder: Path) -> list[Finding]:
    """Check every variant in `folder` and that they agree with each other; [] is a clean bill."""
    variants = sorted(path for path in folder.glob("torch-*") if path.is_dir())
    if not variants:
        return [Finding(str(folder), "no variant (torch-<backend>) in it; build it first")]
    findings = [finding for variant in variants for finding in _check_text(variant)]
    findings += _disagreements(variants) + _metadata_disagreements(variants)
    # Code that breaks a rule is not run.
    return findings or _check_imports(variants)


def _check_text(variant: Path) -> list[Finding]:
    """Check what one variant says, without running it."""
    findings = _check_files(variant)
    try:
        metadata = Metadata.read_from_file(variant / "metadata.json")
    except (OSError, ValueError) as error:
        return findings + [Finding(f"{variant.name}/metadata.json", str(error))]
    findings += _check_metadata(variant, metadata)
    for path in sorted(variant.rglob("*.py")):
        name = path.relative_to(variant).as_posix()
        findings += [
            Finding(f"{variant.name}/{name}:{line}", message)
            for line, message in check_source(path.read_text(encoding="utf-8"), name)
        ]
    return findings


def check_source(source: str, name: str) -> list[tuple[int, str]]:
    """Return (line, what is wrong) for the file `name` of a variant."""
    try:
        tree = ast.parse(source, feature_version=OLDEST_PYTHON)
    except SyntaxError as error:
        version = ".".join(map(str, OLDEST_PYTHON))
        return [(error.lineno or 0, f"does not parse as Python {version}: {error.msg}")]
    findings = wrong_imports_in_package(source, name)
    if name != "_ops.py":
        findings += _fixed_operator_names(tree)
    if name == "__init__.py" and literal_all(source) is None:
        findings.append((1, "__all__ must be one assignment of a list of string literals"))
    if name in ("layers.py", "layers/__init__.py"):
        findings += _layers_with_state(tree)
    return sorted(findings)


def _check_files(variant: Path) -> list[Finding]:
    findings = []
    for path in sorted(variant.rglob("*")):
        place = f"{variant.name}/{path.relative_to(variant).as_posix()}"
        if path.is_symlink():
            findings.append(Finding(place, "is a link; a build holds regular files only"))
        elif path.suffix in (".pyc", ".pyo"):
            findings.append(Finding(place, "is bytecode; build again without running the build"))
        elif path.is_dir() and path.name == "tests" or path.name.startswith("test_"):
            findings.append(Finding(place, "is a test; tests are not shipped"))
    if not (variant / "__init__.py").is_file():
        findings.append(Finding(variant.name, "has no __init__.py"))
    return findings


def _check_metadata(variant: Path, metadata: Metadata) -> list[Finding]:
    place = f"{variant.name}/metadata.json"
    findings = []
    backend = str(metadata.backend.backend_type).lower()
    if variant.name != f"torch-{backend}":
        findings.append(Finding(place, f"is for backend {backend!r}, not for this folder's"))
    expected = PYTHON_DEPENDS.get(backend)
    if expected is not None and list(metadata.python_depends) != expected:
        found = list(metadata.python_depends)
        findings.append(Finding(place, f"python-depends is {found}, not {expected}"))
    prefix = f"_{metadata.name.python_name}_{backend}_"
    if not (metadata.id.startswith(prefix) and metadata.id.isidentifier()):
        findings.append(Finding(place, f"id is {metadata.id!r}, not {prefix}<unique id>"))
    operators = variant / "_ops.py"
    text = operators.read_text(encoding="utf-8") if operators.is_file() else ""
    if f'"{metadata.id}"' not in text:
        message = f"does not name the operator namespace of this build, {metadata.id!r}"
        findings.append(Finding(f"{variant.name}/_ops.py", message))
    if metadata.provenance is None:
        findings.append(Finding(place, "has no provenance"))
    if metadata.digest is None:
        return findings + [Finding(place, "has no digest")]
    try:
        metadata.digest.validate(Digest.hash_variant(metadata.digest.algorithm, variant))
    except DigestValidationError as error:
        findings += [Finding(variant.name, str(violation)) for violation in error.violations]
    return findings


def _fixed_operator_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Find operators named without the build's namespace: two builds would share them."""
    findings = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "torch.ops":
            if node.attr not in _TORCH_NAMESPACES:
                message = f"torch.ops.{node.attr} is a fixed namespace; use `ops` from ._ops"
                findings.append((node.lineno, message))
        if not (isinstance(node, ast.Call) and node.args):
            continue
        function = ast.unparse(node.func)
        is_registration = function.split(".")[-1] in _REGISTRATIONS and (
            function.startswith(("torch.library.", "library.")) or "." not in function
        )
        if is_registration and not (
            isinstance(node.args[0], ast.Call)
            and ast.unparse(node.args[0].func) == "add_op_namespace_prefix"
        ):
            message = (
                f"{function}({ast.unparse(node.args[0])}) does not name its operator with "
                "add_op_namespace_prefix(...) from ._ops"
            )
            findings.append((node.lineno, message))
    return findings


def _layers_with_state(tree: ast.Module) -> list[tuple[int, str]]:
    """Find members that the kernels library refuses in a layer: it lends `forward` and no more."""
    findings = []
    for layer in tree.body:
        if not isinstance(layer, ast.ClassDef):
            continue
        if layer.name.startswith("_") or layer.name.endswith(_LAYOUT):
            continue
        for member in layer.body:
            if isinstance(member, ast.AnnAssign) and member.value is None:
                continue
            names = [getattr(member, "name", None)]
            if isinstance(member, ast.Assign):
                names = [ast.unparse(target) for target in member.targets]
            elif isinstance(member, ast.AnnAssign):
                names = [ast.unparse(member.target)]
            elif isinstance(member, (ast.Expr, ast.Pass)):
                continue
            for name in names:
                if name not in _LAYER_MEMBERS:
                    message = f"layer {layer.name} defines {name}; only {', '.join(_LAYER_MEMBERS)}"
                    findings.append((member.lineno, message))
    return findings


def _check_imports(variants: list[Path]) -> list[Finding]:
    """Import all variants in one new process, as a user with several kernels would."""
    command = [sys.executable, "-I", "-B", probe.__file__, *map(str, variants)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        return [Finding(str(variants[0].parent), f"cannot be imported:\n{run.stderr.strip()}")]
    findings = []
    for variant, result in zip(variants, json.loads(run.stdout.splitlines()[-1])):
        for name in result["missing"]:
            message = f"__all__ names {name!r}, which does not exist"
            findings.append(Finding(f"{variant.name}/__init__.py", message))
        for message in result["layers"]:
            findings.append(Finding(f"{variant.name}: layers", message))
        if result["foreign"]:
            modules = ", ".join(result["foreign"])
            findings.append(Finding(variant.name, f"importing it also imports {modules}"))
    return findings


def _disagreements(variants: list[Path]) -> list[Finding]:
    """Compare each variant with the first: all must hold the same files, generated ones aside."""
    contents = []
    for variant in variants:
        files = {path.relative_to(variant).as_posix(): path for path in variant.rglob("*")}
        contents.append({name: path.read_bytes() for name, path in files.items() if path.is_file()})
    findings = []
    for variant, files in zip(variants[1:], contents[1:]):
        for name in sorted(set(contents[0]) | set(files)):
            differs = contents[0].get(name) != files.get(name)
            if differs and not (name in GENERATED and name in contents[0] and name in files):
                message = f"is not the same as in {variants[0].name}"
                findings.append(Finding(f"{variant.name}/{name}", message))
    return findings


def _metadata_disagreements(variants: list[Path]) -> list[Finding]:
    """Compare the metadata of each variant with the first's; what cannot be read is left out."""
    said = []
    for variant in variants:
        try:
            metadata = json.loads((variant / "metadata.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        values = {key: metadata.get(key) for key in _COMMON_METADATA}
        values["kernel in provenance"] = (metadata.get("provenance") or {}).get("kernel")
        said.append((variant.name, values))
    findings = []
    for name, values in said[1:]:
        for key, value in values.items():
            first = said[0][1][key]
            if value != first:
                message = f"{key} is {value!r}, in {said[0][0]} it is {first!r}"
                findings.append(Finding(f"{name}/metadata.json", message))
    return findings
