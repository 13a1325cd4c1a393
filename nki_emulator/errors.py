"""Errors of the emulator, each with a rule id and the place in the kernel that broke the rule.

An error is found deep inside the emulator, but the reader wrote the kernel: so every error carries
the innermost source line outside this package, the chain of kernel calls that led there, and the
operands of the instruction, if there is one. The message starts with the rule id in brackets, e.g.
``[matmul-moving-free] ...``, so that tests and documentation can refer to a rule by name, and ends
with the place where the rule is documented (`rulebook`).
"""

import inspect
import linecache
import os
import sys
import warnings
from dataclasses import dataclass

from .rulebook import place_of

PACKAGE_DIRECTORY = os.path.dirname(os.path.abspath(__file__)) + os.sep

# The function in kernel.py that calls the user's kernel: frames outside it are not the kernel's.
KERNEL_ENTRY = "call_kernel_function"


@dataclass(frozen=True)
class SourceLine:
    """One line of a kernel: file name, line number and the function it is in."""

    file: str
    line: int
    function: str

    @property
    def text(self):
        """The source text of the line, stripped; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self):
        return f"{self.file}:{self.line}"


def kernel_frames(depth=2):
    """The kernel's frames, innermost first, as a list of :class:`SourceLine`.

    Frames of the emulator are left out, and the walk stops where the emulator entered the kernel.
    Outside a kernel it is the caller's line alone.
    """
    lines = []
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE_DIRECTORY):
            if code.co_name == KERNEL_ENTRY:
                return lines
        else:
            lines.append(SourceLine(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return lines[:1]


def kernel_line(depth=2):
    """The innermost source line outside the emulator, or None."""
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE_DIRECTORY):
            return SourceLine(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


class NkiError(Exception):
    """Base of every error the emulator raises about a kernel.

    Attributes: ``rule`` (id of the rule), ``message``, ``location`` (innermost kernel
    :class:`SourceLine` or None), ``chain`` (all kernel lines, innermost first), ``instruction``
    (its name, if one was running) and ``operands`` (list of ``name=description`` strings).
    """

    def __init__(self, rule, message):
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.chain = kernel_frames()
        self.location = self.chain[0] if self.chain else None
        self.instruction = None
        self.operands = []

    def __reduce__(self):
        return _rebuilt, (type(self), self.args, self.__dict__)

    def add_instruction(self, name, implementation, arguments):
        """Attach the running instruction; ``arguments`` follow the session parameter."""
        if self.instruction is None:
            names = list(inspect.signature(implementation).parameters)[1:]
            self.instruction = name
            self.operands = [
                f"{label}={argument.describe()}"
                for label, argument in zip(names, arguments)
                if hasattr(argument, "describe")
            ]

    def __str__(self):
        parts = [f"[{self.rule}] {self.message}"]
        if self.instruction:
            parts.append(f"  in nisa.{self.instruction}({', '.join(self.operands)})")
        for number, line in enumerate(self.chain):
            parts.append(f"  {'called from' if number else 'at'} {line} in {line.function}")
            if line.text:
                parts.append(f"      {line.text}")
        place = place_of(self.rule, self.instruction)
        if place:
            parts.append(f"  documentation: {place}")
        return "\n".join(parts)


def _rebuilt(kind, arguments, state):
    """An error from another process, with its kernel lines as they were there."""
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(state)
    return error


class NkiValidationError(NkiError):
    """A documented rule of the language or the hardware was broken."""


class NkiCapacityError(NkiError):
    """SBUF or PSUM is full, or two tiles claim the same bytes."""


class NkiUninitializedRead(NkiError):
    """An instruction reads an element that nothing has written."""


class NkiArgumentError(NkiError, TypeError):
    """A kernel was called with arguments it cannot take."""


class NkiNotImplemented(NkiError, NotImplementedError):
    """The API exists in NKI 0.6 and the emulator does not implement it yet."""

    def __init__(self, name, detail=""):
        super().__init__(
            "not-implemented", f"{name} is not implemented by this emulator yet. {detail}".rstrip()
        )


class NkiWarning(UserWarning):
    """Legal but suspicious: deprecated names, values outside a documented range."""


def warn(rule, message, category=NkiWarning):
    """Warn about the kernel line that is running; Python shows it once per line by default."""
    line = kernel_line()
    text = f"[{rule}] {message} (documentation: {place_of(rule)})"
    if line is None:
        warnings.warn(text, category, stacklevel=3)
    else:
        warnings.warn_explicit(text, category, line.file, line.line)
