"""A CPU implementation of the Neuron Kernel Interface (NKI 0.6), with the chip's rules.

``install()`` makes ``import nki`` work in this process; ``python -m nki_emulator script.py`` runs
a script with it. Kernels run eagerly in Python on NumPy; what the chip would refuse is an error
that shows the kernel's line.
"""

from .errors import (
    NkiArgumentError,
    NkiCapacityError,
    NkiError,
    NkiNotImplemented,
    NkiUninitializedRead,
    NkiValidationError,
    NkiWarning,
)
from .install import install, uninstall
from .kernel import jit, memory_report, record, simulate

__all__ = [
    "NkiArgumentError",
    "NkiCapacityError",
    "NkiError",
    "NkiNotImplemented",
    "NkiUninitializedRead",
    "NkiValidationError",
    "NkiWarning",
    "install",
    "jit",
    "memory_report",
    "record",
    "simulate",
    "uninstall",
]
