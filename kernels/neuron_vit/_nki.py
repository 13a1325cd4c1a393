"""Finding `nki` and the kernels, at the first call that needs them.

The package imports on a machine without `nki`. When a kernel has to run, `nki` is one of

1. an installed `nki` that has `jit`: the Neuron SDK's. A module of that name without `jit` is a
   placeholder on the package index and counts as absent;
2. what an installed distribution provides in the entry point group `nki.provider`: a function
   without arguments that makes `import nki` work.
"""

import importlib
import importlib.metadata
from types import ModuleType
from typing import Any, Iterable, Optional

PROVIDER_GROUP = "nki.provider"

# The module of `nki_src` that holds each kernel.
_MODULES = {
    "ada_layer_norm": "norm",
    "ada_rms_norm": "norm",
    "attention": "attention",
    "layer_norm": "norm",
    "linear": "linear",
    "mlp": "mlp",
    "rms_norm": "norm",
    "swiglu_mlp": "mlp",
    "vit_block": "vit_block",
    "vit_encoder": "vit_encoder",
}


def load_nki() -> ModuleType:
    """The `nki` module.

    Raises ImportError, with what to install, when there is neither `nki` nor a provider.
    """
    nki = _usable_nki()
    if nki is not None:
        return nki
    providers = list(_providers())
    for provider in providers:
        provider.load()()
        nki = _usable_nki()
        if nki is not None:
            return nki
    found = f"{', '.join(p.name for p in providers)} did not provide it" if providers else "none"
    raise ImportError(
        "neuron-vit: running a kernel needs the Python package nki with nki.jit, which is not "
        "installed. On a Trainium instance install the Neuron SDK (pip install nki, from the "
        "Neuron package index). Elsewhere install the neuron-vit distribution, whose emulator "
        f"stands in for it (entry points in group {PROVIDER_GROUP!r}: {found}), or unset "
        "NKI_SIMULATOR to run the PyTorch reference."
    )


def kernel(name: str) -> Any:
    """The kernel `name`, decorated with `nki.jit`."""
    load_nki()
    module = importlib.import_module(f".nki_src.{_MODULES[name]}", __package__)
    return getattr(module, name)


def limits() -> ModuleType:
    """The module that knows which sizes the kernels take; it needs no `nki`."""
    return importlib.import_module(".nki_src.limits", __package__)


def _usable_nki() -> Optional[ModuleType]:
    try:
        nki = importlib.import_module("nki")
    except ModuleNotFoundError as error:
        if error.name != "nki":
            raise
        return None
    return nki if hasattr(nki, "jit") else None


def _providers() -> Iterable[importlib.metadata.EntryPoint]:
    entry_points = importlib.metadata.entry_points()
    if hasattr(entry_points, "select"):
        return entry_points.select(group=PROVIDER_GROUP)
    return entry_points.get(PROVIDER_GROUP, ())  # Python 3.9
