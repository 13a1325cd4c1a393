"""Python tracebacks of errors in a kernel, without the emulator's own frames.

The reader of a traceback wrote the script and the kernel, so these are the frames that it shows:
those of the emulator, which lie between the script and the kernel and below an instruction, are
left out. One remains, the call that raises the error to the script. Set
``NKI_EMULATOR_TRACEBACK=full`` to see all frames.
"""

import functools
import os
import sys
from types import TracebackType

from .errors import PACKAGE_DIRECTORY, NkiError

VARIABLE = "NKI_EMULATOR_TRACEBACK"


def kernel_errors(function):
    """Decorate an entry point of the emulator: its errors show the caller and the kernel."""

    @functools.wraps(function)
    def entry(*arguments, **keywords):
        __tracebackhide__ = True  # for pytest
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            raise error.with_traceback(trimmed(error))  # NKI_EMULATOR_TRACEBACK=full # noqa: B904

    return entry


def from_script(script):
    """A `sys.excepthook` that shows a traceback from the first frame of ``script`` on."""

    def show(kind, error, entry):
        if os.environ.get(VARIABLE) != "full":
            while entry is not None and entry.tb_frame.f_code.co_filename != script:
                entry = entry.tb_next
            error.__traceback__ = entry
        sys.__excepthook__(kind, error, entry)

    return show


def trimmed(error):
    """The traceback of ``error`` without the emulator's frames; None if nothing is left.

    In an error that the emulator did not raise on purpose the frames after the last kernel frame
    stay: they show a defect of the emulator, or an exception of the kernel's own libraries.
    """
    if os.environ.get(VARIABLE) == "full":
        return error.__traceback__
    entries = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept = [entry for entry in entries if not _is_emulator(entry)]
    if not isinstance(error, NkiError):
        last = entries.index(kept[-1]) if kept else -1
        kept += entries[last + 1 :]
    trimmed = None
    for entry in reversed(kept):
        trimmed = TracebackType(trimmed, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trimmed


def _is_emulator(entry):
    return entry.tb_frame.f_code.co_filename.startswith(PACKAGE_DIRECTORY)
