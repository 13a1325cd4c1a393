"""The emulator's `nki` package: what a kernel sees after `import nki`."""

from ..kernel import Kernel, jit, simulate
from . import collectives, isa, language

__all__ = ["Kernel", "collectives", "isa", "jit", "language", "simulate"]
