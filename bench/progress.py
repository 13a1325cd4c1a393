"""A progress bar on a terminal's stderr; silent everywhere else, so that logs stay clean."""

from __future__ import annotations

import sys
import time

WIDTH = 20


class ProgressLine:
    """A callable context manager: each call rewrites the line with the part of the work that is
    done (0 to 1) and with what runs now, and the `with` block's end removes it."""

    def __init__(self, stream=None):
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._start = time.monotonic()

    def __enter__(self) -> ProgressLine:
        return self

    def __call__(self, text: str, done: float) -> None:
        if self._shown:
            seconds = time.monotonic() - self._start
            bar = "#" * int(done * WIDTH)
            self._stream.write(f"\r\x1b[2K[{bar:.<{WIDTH}}] {done:4.0%} {seconds:.0f} s  {text}")
            self._stream.flush()

    def __exit__(self, *exception) -> None:
        if self._shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
