"""Making `import nki` find the emulator, and undoing it.

If an installed `nki` has `jit` it is the Neuron SDK's, and nothing is replaced. A module of that
name without `jit` is a placeholder on the package index and counts as absent.
"""

import importlib
import sys

from . import nki as emulated

_NAMES = {
    "nki": emulated,
    "nki.language": emulated.language,
    "nki.isa": emulated.isa,
    # nki-library imports the enumerations from here.
    "nki.isa.constants": emulated.isa,
    "nki.collectives": emulated.collectives,
    "nki.typing": emulated.typing,
}


def install():
    """Make `import nki` work and return the module: the real one if there is one."""
    if sys.modules.get("nki") is emulated:
        return emulated
    real = _real_nki()
    if real is not None:
        return real
    for name in [name for name in sys.modules if name == "nki" or name.startswith("nki.")]:
        del sys.modules[name]
    sys.modules.update(_NAMES)
    return emulated


def uninstall():
    """Remove the emulator from `sys.modules`; modules that imported it keep what they have."""
    for name, module in _NAMES.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def _real_nki():
    try:
        module = importlib.import_module("nki")
    except ModuleNotFoundError as error:
        if error.name != "nki":
            raise
        return None
    return module if hasattr(module, "jit") else None
