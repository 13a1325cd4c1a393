"""Choosing what the package runs on CPU tensors, for the length of a `with` block."""

from __future__ import annotations

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
