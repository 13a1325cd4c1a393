"""The emulator's `nki` package: what a kernel sees after `import nki`."""

from ..kernel import Kernel, jit, simulate
from . import collectives, isa, language, typing
from .language import DType as dtype  # What public kernels annotate dtypes with.

__all__ = ["Kernel", "collectives", "dtype", "isa", "jit", "language", "simulate", "typing"]
