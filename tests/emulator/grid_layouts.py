"""Layouts of the grid: how an operand of P partitions and W elements each lies in a larger tile.

A layout builds the same view twice, from the tile with the view methods of NKI and from a NumPy
array of the tile's shape with NumPy's own, so that the harness knows which elements the view
addresses without asking the emulator. Elements count in row-major order of the view's free
dimensions, whatever its rank.
"""

from dataclasses import dataclass
from typing import Callable

import numpy as np

PARTITIONS = 128


@dataclass(frozen=True)
class Layout:
    """One way to lie in a tile.

    ``tile(p, w)`` is the shape of the tile, ``nki(t, p, w)`` and ``numpy(a, p, w)`` the view.
    ``fits(p, w)`` says for which sizes it exists, ``rank`` how many dimensions the view has,
    ``repeats`` that elements are addressed more than once (inputs only), ``start`` the first
    partition.
    """

    name: str
    tile: Callable
    nki: Callable
    numpy: Callable
    rank: int = 2
    fits: Callable = lambda p, w: True
    repeats: bool = False
    start: int = 0


def _sliced(name, tile, key, **settings):
    """A layout that a slice makes, written alike for NKI and NumPy."""
    return Layout(
        name, tile, lambda t, p, w: t[key(p, w)], lambda a, p, w: a[key(p, w)], **settings
    )


def _reshaped(name, tile, shape, order, key=None, **settings):
    """A layout made by reshape, permute and a slice."""

    def nki(t, p, w):
        view = t.reshape(shape(p, w)).permute(order)
        return view if key is None else view[key(p, w)]

    def numpy(a, p, w):
        view = a.reshape(shape(p, w)).transpose(order)
        return view if key is None else view[key(p, w)]

    return Layout(name, tile, nki, numpy, rank=len(order), **settings)


def _from_partition(start, name=None, extra=0, first=0):
    most = 32 if start % 64 else 64
    return _sliced(
        name or f"from partition {start}",
        lambda p, w: (PARTITIONS, w + extra),
        lambda p, w: (slice(start, start + p), slice(first, first + w)),
        fits=lambda p, w: p <= most,
        start=start,
    )


def _fours(p, w):
    return w % 4 == 0


PLAIN = Layout("plain", lambda p, w: (p, w), lambda t, p, w: t, lambda a, p, w: a)
COLUMNS = _sliced(
    "columns of a wider tile", lambda p, w: (p, w + 5),
    lambda p, w: (slice(0, p), slice(2, w + 2)),
)  # fmt: skip
SOME_PARTITIONS = _sliced(
    "some partitions", lambda p, w: (PARTITIONS, w), lambda p, w: (slice(0, p), slice(0, w))
)
STRIDED = _sliced(
    "every third column", lambda p, w: (p, 3 * w + 1),
    lambda p, w: (slice(0, p), slice(1, 3 * w + 1, 3)),
)  # fmt: skip
FROM_32, FROM_64, FROM_96 = (_from_partition(start) for start in (32, 64, 96))
CORNER = _from_partition(32, "rows and columns of a larger tile", 7, 3)
CUBE = _reshaped("3-D", lambda p, w: (p, w), lambda p, w: (p, w // 4, 4), (0, 1, 2), fits=_fours)
CUBE_PERMUTED = _reshaped(
    "3-D permuted", lambda p, w: (p, w), lambda p, w: (p, 4, w // 4), (0, 2, 1), fits=_fours
)
CUBE_SLICED = _reshaped(
    "3-D slice", lambda p, w: (p, w // 4 * 6), lambda p, w: (p, w // 4, 6), (0, 1, 2),
    lambda p, w: (slice(0, p), slice(0, w // 4), slice(1, 5)), fits=_fours,
)  # fmt: skip
FOUR_PERMUTED = _reshaped(
    "4-D permuted", lambda p, w: (p, w), lambda p, w: (p, 2, w // 4, 2), (0, 3, 2, 1),
    fits=_fours,
)  # fmt: skip
FIVE_PERMUTED = _reshaped(
    "5-D permuted", lambda p, w: (p, w), lambda p, w: (p, 2, 2, w // 8, 2), (0, 4, 3, 2, 1),
    fits=lambda p, w: w % 8 == 0,
)  # fmt: skip
# Stride 0: one element, or one group of elements, read again and again.
REPEATED = Layout(
    "one element repeated", lambda p, w: (p, 1), lambda t, p, w: t.broadcast(1, w),
    lambda a, p, w: np.broadcast_to(a, (p, w)), repeats=True,
)  # fmt: skip
REPEATED_INNER = Layout(
    "each element repeated", lambda p, w: (p, w // 4),
    lambda t, p, w: t.reshape((p, w // 4, 1)).broadcast(2, 4),
    lambda a, p, w: np.broadcast_to(a[:, :, None], (p, w // 4, 4)),
    rank=3, fits=_fours, repeats=True,
)  # fmt: skip
REPEATED_OUTER = Layout(
    "row repeated", lambda p, w: (p, 4), lambda t, p, w: t.reshape((p, 1, 4)).broadcast(1, w // 4),
    lambda a, p, w: np.broadcast_to(a[:, None, :], (p, w // 4, 4)),
    rank=3, fits=_fours, repeats=True,
)  # fmt: skip
# [p, 2, w / 2]: bounds of sequences, and the operands of a double-row matmul.
PAIRED = Layout(
    "two rows", lambda p, w: (p, w), lambda t, p, w: t.reshape((p, 2, w // 2)),
    lambda a, p, w: a.reshape(p, 2, w // 2), rank=3, fits=lambda p, w: w % 2 == 0,
)  # fmt: skip
PAIRED_SLICED = Layout(
    "two rows of longer ones", lambda p, w: (p, w + 6),
    lambda t, p, w: t.reshape((p, 2, w // 2 + 3))[:, :, 1 : 1 + w // 2],
    lambda a, p, w: a.reshape(p, 2, w // 2 + 3)[:, :, 1 : 1 + w // 2], rank=3,
    fits=lambda p, w: w % 2 == 0,
)  # fmt: skip
# DMA has no rule about the first partition.
ODD_ROWS = _sliced(
    "from partition 5", lambda p, w: (PARTITIONS, w + 1),
    lambda p, w: (slice(5, 5 + p), slice(1, 1 + w)), fits=lambda p, w: p + 5 <= PARTITIONS, start=5,
)  # fmt: skip

FLAT = (PLAIN, COLUMNS, SOME_PARTITIONS, STRIDED, FROM_32, FROM_64, FROM_96, CORNER)
SOLID = (*FLAT, CUBE, CUBE_PERMUTED, CUBE_SLICED, FOUR_PERMUTED, FIVE_PERMUTED)
REPEATING = (REPEATED, REPEATED_INNER, REPEATED_OUTER)
# Views whose last dimension has four elements.
LAST_FOUR = (CUBE, CUBE_PERMUTED, CUBE_SLICED)
DMA = (*SOLID, ODD_ROWS)
