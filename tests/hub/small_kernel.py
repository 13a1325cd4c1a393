"""A small checkout of a kernel, laid out like this project's own, for tests to build and break."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FILES = {
    "kernels/neuron_vit/__init__.py": '''
"""A kernel with one operator."""

from . import layers
from .functions import double

__all__ = ["double", "layers"]
''',
    "kernels/neuron_vit/_ops.py": '''
"""The operator namespace of a checkout."""


def add_op_namespace_prefix(op_name):
    return f"_checkout::{op_name}"
''',
    "kernels/neuron_vit/functions.py": '''
"""The public functions."""

import torch

from . import reference
from ._ops import add_op_namespace_prefix, ops


@torch.library.custom_op(add_op_namespace_prefix("double"), mutates_args=())
def _double(x: torch.Tensor) -> torch.Tensor:
    return reference.double(x)


@_double.register_fake
def _double_fake(x):
    return torch.empty_like(x)


def double(x):
    """Return twice x."""
    return ops.double(x)
''',
    "kernels/neuron_vit/layers.py": '''
"""Layers."""

import torch


class Double(torch.nn.Module):
    """Twice its input."""

    scale: int
    can_torch_compile = True

    def forward(self, x):
        return x * 2
''',
    "nki_src/__init__.py": '"""The kernels."""\n',
    "nki_src/double.py": '''
"""A kernel."""

import nki


@nki.jit
def double(x):
    return x
''',
    "reference/__init__.py": '''
"""The reference."""


def double(x):
    return x * 2
''',
    "benchmarks/benchmark.py": '''
"""A benchmark."""

import torch
from kernels.benchmark import Benchmark


class DoubleBenchmark(Benchmark):
    """The one operator."""

    def setup_double(self):
        self.x = torch.ones(4)

    def benchmark_double(self):
        self.out = self.kernel.double(self.x)

    def verify_double(self):
        return self.x + self.x
''',
    "benchmarks/notes.txt": "not a benchmark\n",
    ".gitignore": "/build/\n__pycache__/\n",
}
_LINKS = {
    "kernels/neuron_vit/nki_src": "../../nki_src",
    "kernels/neuron_vit/reference": "../../reference",
    "kernels/neuron_vit/LICENSE": "../../LICENSE",
    "torch-ext/neuron_vit": "../kernels/neuron_vit",
}
# Identity for the commits of the checkout; the machine's own configuration is not consulted.
_GIT_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Author",
    "GIT_AUTHOR_EMAIL": "author@example.invalid",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Author",
    "GIT_COMMITTER_EMAIL": "author@example.invalid",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "PATH": os.environ["PATH"],
}


def write_checkout(root: Path) -> Path:
    """Write the checkout to `root`, with this project's build.toml, CARD.md and LICENSE."""
    for name, text in _FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    for name, target in _LINKS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    for name in ("build.toml", "CARD.md", "LICENSE"):
        shutil.copyfile(ROOT / name, root / name)
    return root


def commit(root: Path) -> str:
    """Commit everything in `root`, which becomes a git checkout; return the commit id."""
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "A kernel")
    return git(root, "rev-parse", "HEAD").strip()


def git(root: Path, *arguments: str) -> str:
    """Run git in `root` and return what it prints."""
    command = ["git", *arguments]
    run = subprocess.run(
        command, cwd=root, env=_GIT_ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return run.stdout
