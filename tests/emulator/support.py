"""Helpers of the emulator's tests.

`pair(rule, kernel, good, bad)` runs one kernel with arguments that just obey a rule and with
arguments that break it. The kernel marks the line that breaks the rule with a comment `# rule`; the
error must carry the rule's id and that line. `warned` is the same for rules that only warn, and
`pair_of_calls` for rules that are broken outside a kernel. Every rule has such a pair
(test_coverage.py).
"""

import ast
import functools
import linecache
import math
import warnings
from pathlib import Path

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nki_emulator import NkiError, simulate

MARK = "# rule"

# NKI name: NumPy type, of every dtype that engines compute with.
NUMPY = {
    "bool": np.bool_, "int8": np.int8, "int16": np.int16, "int32": np.int32, "uint8": np.uint8,
    "uint16": np.uint16, "uint32": np.uint32, "float16": np.float16, "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16, "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
FLOATS = ("float32", "bfloat16", "float16")


@functools.lru_cache(maxsize=None)
def _statements(file):
    """(first line, last line) of every statement without a body, or of the head of one with."""
    found = []
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            found.append((node.lineno, max(last, node.lineno)))
    return found


def marked(file, line, mark):
    """Whether the statement that ``line`` is part of holds ``mark``."""
    spans = [(first, last) for first, last in _statements(file) if first <= line <= last]
    first, last = min(spans, key=lambda span: span[1] - span[0], default=(line, line))
    return any(mark in linecache.getline(file, number) for number in range(first, last + 1))


def refused(rule, kernel, *arguments, line=MARK):
    """The kernel must fail with this rule id in the statement that holds ``line``.

    ``line`` may also be the function to blame, e.g. a lambda that the kernel calls, or None if no
    line of the kernel is. Returns the error.
    """
    with pytest.raises(NkiError) as caught:
        simulate(kernel)(*arguments)
    error = caught.value
    assert error.rule == rule, str(error)
    assert str(error).startswith(f"[{rule}] ")
    if line is None:
        return error
    assert error.location is not None, str(error)
    place = error.location
    if callable(line):
        lines = {number for _, _, number in line.__code__.co_lines()}
        assert place.file == line.__code__.co_filename and place.line in lines, str(error)
    else:
        assert marked(place.file, place.line, line), f"{place}: {place.text}"
    return error


def pair(rule, kernel, good, bad, line=MARK):
    """``kernel(*good)`` passes and ``kernel(*bad)`` breaks ``rule``."""
    good = good if isinstance(good, tuple) else (good,)
    bad = bad if isinstance(bad, tuple) else (bad,)
    simulate(kernel)(*good)
    return refused(rule, kernel, *bad, line=line)


def pair_of_calls(rule, good, bad):
    """``good()`` passes and ``bad()``, which no kernel line breaks, breaks ``rule``."""
    good()
    with pytest.raises(NkiError) as caught:
        bad()
    assert caught.value.rule == rule, str(caught.value)
    return caught.value


def warned(rule, kernel, good, bad, line=MARK):
    """``kernel(*good)`` does not warn, ``kernel(*bad)`` warns of ``rule``; returns the result."""
    good = good if isinstance(good, tuple) else (good,)
    bad = bad if isinstance(bad, tuple) else (bad,)
    _, messages = _with_warnings(kernel, good)
    assert not messages, messages[0]
    result, messages = _with_warnings(kernel, bad)
    assert messages and all(str(m.message).startswith(f"[{rule}] ") for m in messages), messages
    for message in messages:
        assert marked(message.filename, message.lineno, line), message
    return result


def _with_warnings(kernel, arguments):
    """A kernel's result, and the warnings of the emulator's rules."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        result = simulate(kernel)(*arguments)
    return result, [message for message in messages if str(message.message).startswith("[")]


def tile(shape, dtype=nl.float32, buffer=nl.sbuf, value=0):
    """A written tile (inside a kernel)."""
    made = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    nisa.memset(dst=made, value=value)
    return made


def load(source, dtype=None):
    """An HBM tensor in a new SBUF tile (inside a kernel)."""
    made = nl.ndarray(source.shape, dtype=dtype or source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=made, src=source)
    return made


def save(view):
    """A written SBUF or PSUM view as a new HBM tensor (inside a kernel)."""
    if view.buffer == nl.psum:
        copied = nl.ndarray(view.shape, dtype=view.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copied, src=view)
        view = copied
    out = nl.ndarray(view.shape, dtype=view.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=view)
    return out


def values(shape, dtype="float32", seed=0, low=None, high=None):
    """Reproducible values of an NKI dtype: normal floats, or integers over a small range."""
    generator = np.random.default_rng((seed, math.prod(shape)))
    if "int" in dtype:
        limits = np.iinfo(NUMPY[dtype])
        low = max(limits.min, -100) if low is None else low
        high = min(limits.max, 100) if high is None else high
        return generator.integers(low, high, shape, dtype=NUMPY[dtype], endpoint=True)
    if dtype == "bool":
        return generator.random(shape) < 0.5
    return generator.standard_normal(shape).astype(NUMPY[dtype])


def rounded(array, dtype):
    """``array`` rounded to an NKI float dtype by NumPy or ml_dtypes, the reference."""
    return np.asarray(array, np.float32).astype(NUMPY[dtype])


def same_bits(left, right):
    """Equal shape, dtype and bits (so that NaN equals NaN and 0 differs from -0)."""
    assert left.dtype == right.dtype and left.shape == right.shape
    np.testing.assert_array_equal(
        np.ascontiguousarray(left).view(np.uint8), np.ascontiguousarray(right).view(np.uint8)
    )


__all__ = [
    "FLOATS", "NUMPY", "load", "math", "ml_dtypes", "nisa", "nki", "nl", "np", "pair",
    "pair_of_calls", "pytest", "refused", "rounded", "same_bits", "save", "simulate", "tile",
    "values", "warned",
]  # fmt: skip
