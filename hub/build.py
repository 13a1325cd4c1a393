"""Builds one folder per backend from a checkout, in the layout that the Hub's loader reads.

    <out>/torch-<backend>/     the package, with _ops.py and metadata.json for that backend
    <out>/benchmarks/          the scripts for `kernels benchmark`
    <out>/CARD.md              the page of the repository

The output depends on the commit alone: two builds of one commit are equal byte for byte, wherever
they are made. Files that git ignores are in no commit and stay behind; changes that are not
committed are built and said to be uncommitted.
"""

import hashlib
import json
import shutil
from pathlib import Path

from kernels._rust import Digest, DigestAlgorithm

from hub.card import render_card
from hub.manifest import Manifest, read_manifest
from hub.provenance import GitState, git_state, ignored_files

# What differs between variants: these are written, not copied.
GENERATED = ("_ops.py", "metadata.json")
# Enough of a SHA-256 that two contents sharing it within one process can be ruled out.
_UNIQUE_ID_DIGITS = 10
# Who built it, where the Hub's own builder would give its version. The number goes up when the
# same checkout would give a different build.
_BUILDER = "neuron-vit-hub/1"

_OPS = '''\
"""The operator namespace of this build, written by the builder.

The name is unique to the backend and to the content of the files, so that two builds can be
loaded into one process without one redefining the other's operators.
"""

import torch

_OPS_NAME = "{name}"

ops = getattr(torch.ops, _OPS_NAME)


def add_op_namespace_prefix(op_name: str) -> str:
    """Return `op_name` in this build's namespace, as `torch.library` wants it."""
    return f"{{_OPS_NAME}}::{{op_name}}"
'''


def build(root: Path, out: Path) -> list[Path]:
    """Build every variant of the kernel in the checkout `root` into `out`; return their folders.

    Replaces the variants, benchmarks and card of an earlier build in `out`, and touches nothing
    else there.
    """
    manifest = read_manifest(root)
    git = git_state(root)
    ignored = ignored_files(root) if git else frozenset()
    sources = _sources(manifest, ignored)
    unique_id = _unique_id(manifest, sources) + ("_dirty" if git and git.dirty else "")

    out.mkdir(parents=True, exist_ok=True)
    for stale in (*out.glob("torch-*"), out / "benchmarks"):
        shutil.rmtree(stale, ignore_errors=True)
    variants = []
    for backend in manifest.backends:
        variant = out / f"torch-{backend}"
        name = f"_{manifest.module}_{backend}_{unique_id}"
        _copy(sources, variant)
        (variant / "_ops.py").write_text(_OPS.format(name=name), encoding="utf-8")
        metadata = _metadata(manifest, backend, name, variant, git)
        text = json.dumps(metadata, indent=2) + "\n"
        (variant / "metadata.json").write_text(text, encoding="utf-8")
        variants.append(variant)

    benchmarks = sorted((root / "benchmarks").glob("benchmark*.py"))
    kept = {path.name: path for path in benchmarks if path.resolve() not in ignored}
    _copy(kept, out / "benchmarks")
    (out / "CARD.md").write_text(render_card(manifest), encoding="utf-8")
    return variants


def _sources(manifest: Manifest, ignored: frozenset[Path]) -> dict[str, Path]:
    """Map each path inside the package to the file with its content, links followed."""
    package = manifest.package
    if not (package / "__init__.py").is_file():
        raise FileNotFoundError(f"{package} holds no package: there is no __init__.py in it")
    found = {}
    folders = [package]
    while folders:
        for path in folders.pop().iterdir():
            if path.name.startswith(".") or path.name == "__pycache__" or path.suffix == ".pyc":
                continue
            if path.is_dir():
                folders.append(path)
            elif path.relative_to(package).as_posix() not in GENERATED:
                if path.resolve() not in ignored:
                    found[path.relative_to(package).as_posix()] = path
    return dict(sorted(found.items()))


def _unique_id(manifest: Manifest, sources: dict[str, Path]) -> str:
    digest = hashlib.sha256(f"{_BUILDER} {manifest.name} {manifest.version}\n".encode())
    for name, path in sources.items():
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:_UNIQUE_ID_DIGITS]


def _copy(files: dict[str, Path], folder: Path) -> None:
    for name, path in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _metadata(
    manifest: Manifest, backend: str, identifier: str, variant: Path, git: GitState | None
) -> dict:
    """Describe a variant whose other files are all in place; they are what the digest covers."""
    provenance: dict = {"kernel-builder": {"version": _BUILDER}}
    if git:
        provenance["kernel"] = {"commit": git.commit, "dirty": git.dirty}
    metadata = {
        "name": manifest.name,
        "id": identifier,
        "version": manifest.version,
        "license": manifest.license,
        "upstream": manifest.upstream,
        "source": manifest.source,
        "python-depends": manifest.python_depends[backend],
        "kernel-depends": [],
        "backend": {"type": backend},
        "digest": {
            "algorithm": "sha256",
            "files": Digest.hash_variant(DigestAlgorithm.SHA256, variant).files,
        },
        "provenance": provenance,
    }
    return {key: value for key, value in metadata.items() if value is not None}
