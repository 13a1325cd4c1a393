"""A static checker of the Python subset that NKI 0.6 kernels are written in.

``python -m nki_emulator check PATH...`` finds the kernels below the paths (functions decorated with
``@nki.jit``, however it is imported), follows them to every function and class they reach, and
reports what the NKI compiler would refuse. It reads source text only: nothing is imported or run,
and neither NumPy nor ``nki`` is needed.

It reports what the source decides for certain. A value that comes from a parameter, a loop counter
or a function's result is unknown, and nothing is said about it: that is left to the emulator, which
has the values. Code of a file that no kernel reaches is host code and is not looked at.

The rules, with the document each is from, are in :mod:`~nki_emulator.checker.rules`.
"""

from .command import main
from .findings import CheckError, Finding
from .program_check import check_program
from .rules import RULES

__all__ = ["CheckError", "Finding", "RULES", "check_paths", "main"]


def check_paths(paths):
    """Findings in the kernels below ``paths`` (files or folders), ordered by place.

    Raises :class:`CheckError` if a path does not exist or a file is not valid Python.
    """
    return check_program(paths).findings
