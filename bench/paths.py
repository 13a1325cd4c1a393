"""Paths: what the package runs on CPU tensors, for the length of a `with` block; output files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager


def cpu_path():
    """The package's PyTorch operations, whatever the caller's environment asks for."""
    return _environment(NKI_SIMULATOR="0", NEURON_VIT_REQUIRE_NKI="0")


def emulated_nki(target: str = "trn2", lnc: int = 1, strict: bool = True):
    """The NKI kernels under emulation of `lnc` cores of `target`, "trn2" or "trn3".

    With `strict`, a case that no kernel covers raises `NeuronVitUnsupported`; otherwise it runs as
    PyTorch operations and `last_path()` says so.
    """
    return _environment(
        NKI_SIMULATOR="1",
        NEURON_VIT_REQUIRE_NKI="1" if strict else "0",
        NEURON_PLATFORM_TARGET_OVERRIDE=target,
        NEURON_LOGICAL_NC_CONFIG=str(lnc),
    )


def target(name: str):
    """Kernels called directly run as on `name`, "trn1", "trn2" or "trn3"."""
    return _environment(NEURON_PLATFORM_TARGET_OVERRIDE=name)


def output(path: str) -> str:
    """An argument that names a file to write, refused before the work whose result goes there."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{path} is a folder, or lies in one that does not exist")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
