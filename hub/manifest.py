"""build.toml: what a checkout says about the kernel it holds."""

from dataclasses import dataclass
from pathlib import Path

import tomlkit
from kernels._rust import Build

MANIFEST = "build.toml"


@dataclass(frozen=True)
class Manifest:
    """The parts of a build.toml (edition 5) that a Python-only kernel uses.

    `backends` and `python_depends` (by backend) are in the order of the file.
    """

    root: Path
    name: str
    version: int
    license: str
    backends: tuple[str, ...]
    repo_id: str
    python_depends: dict[str, list[str]]
    upstream: str | None
    source: str | None

    @property
    def module(self) -> str:
        """The kernel's name as a Python module."""
        return self.name.replace("-", "_")

    @property
    def package(self) -> Path:
        """The folder of the package to build, where the Hub's own builder looks for it too."""
        return self.root / "torch-ext" / self.module


def read_manifest(root: Path) -> Manifest:
    """Read and validate `root`/build.toml.

    The parser in the kernels wheel decides whether the file is valid; it raises ValueError with
    the reason. A file for a compiled kernel is refused here, because this builder only copies.
    """
    path = root / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; run this in a checkout of the kernel, or name one with --root"
        )
    Build.open(root)
    document = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    if "torch-noarch" not in document:
        raise ValueError(f"{path} has no [torch-noarch] table; only such kernels can be built here")
    general = document["general"]
    if "repo-id" not in general.get("hub", {}):
        raise ValueError(f"{path} has no repo-id under [general.hub]; the card needs it")
    shared = general.get("python-depends", [])
    return Manifest(
        root=root,
        name=general["name"],
        version=general["version"],
        license=general["license"],
        backends=tuple(general["backends"]),
        repo_id=general["hub"]["repo-id"],
        python_depends={
            backend: [*shared, *general.get(backend, {}).get("python-depends", [])]
            for backend in general["backends"]
        },
        upstream=general.get("upstream"),
        source=general.get("source"),
    )
