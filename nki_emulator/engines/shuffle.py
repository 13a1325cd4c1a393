"""Vector Engine: movement between partitions within each quadrant of 32."""

import numpy as np

from .. import rules
from ..access import read_raw, write_raw
from ..errors import NkiValidationError

QUADRANT = 32
KEEP = 255  # Mask value: this output partition is not written.


def nc_stream_shuffle(session, dst, src, shuffle_mask, name):
    """In each quadrant, dst partition i = src partition shuffle_mask[i]; 255 leaves dst as it is.

    Quadrants count from the first partition of src and of dst, which may differ in height.
    """
    rules.on_chip(dst, "dst")
    rules.on_chip(src, "src")
    rules.not_packed(dst, "dst")
    if src.dtype != dst.dtype:
        raise NkiValidationError(
            "same-dtype", f"src is {src.dtype} and dst {dst.dtype}; they must be equal."
        )
    width = dst.size // dst.shape[0]
    if src.size // src.shape[0] != width:
        raise NkiValidationError(
            "free-size",
            f"src has {src.size // src.shape[0]} elements per partition (shape {list(src.shape)}) "
            f"and dst {width} (shape {list(dst.shape)}); they must be equal.",
        )
    _require_start(dst, src)
    mask = _checked_mask(shuffle_mask)
    # (dst partition, src partition) of everything that moves.
    moves = [
        (row, row - row % QUADRANT + mask[row % QUADRANT])
        for row in range(dst.shape[0])
        if mask[row % QUADRANT] != KEEP
    ]
    _move(dst, src, moves)
    return session.finish("nc_stream_shuffle", "vector", (dst,), (src,), name)


def _require_start(dst, src):
    """Both views start where an access to the larger of them, in whole quadrants, may start."""
    active = -(-max(src.shape[0], dst.shape[0]) // QUADRANT) * QUADRANT
    step = active if active <= 64 else 128
    for operand, role in ((dst, "dst"), (src, "src")):
        if operand.start_partition % step:
            legal = {32: "0, 32, 64 or 96", 64: "0 or 64", 128: "0"}[step]
            raise NkiValidationError(
                "start-partition",
                f"{role} starts at partition {operand.start_partition}; a shuffle of {active} "
                f"active partitions (the taller of src and dst) starts at {legal}.",
            )


def _checked_mask(mask):
    legal = isinstance(mask, (list, tuple)) and len(mask) == QUADRANT
    legal = legal and all(
        isinstance(entry, (int, np.integer))
        and not isinstance(entry, bool)
        and (0 <= entry < QUADRANT or entry == KEEP)
        for entry in mask
    )
    if not legal:
        raise NkiValidationError(
            "shuffle-mask",
            f"shuffle_mask={mask!r}; expected a list of {QUADRANT} integers, each 0..31 (a "
            f"partition of the quadrant) or {KEEP} (leave dst unmodified).",
        )
    return mask


def _move(dst, src, moves):
    for row, source in moves:
        if source >= src.shape[0]:
            raise NkiValidationError(
                "shuffle-source",
                f"dst partition {row} comes from partition {source} of src, which has "
                f"{src.shape[0]} partitions.",
            )
    # Only the partitions that move are read; all of them before any is written, so that src may be
    # dst itself.
    values = np.empty(src.shape, src.info.storage)
    for first, last in _runs(sorted({source for _, source in moves})):
        values[first:last] = read_raw(src[first:last], "src")
    block = values[[source for _, source in moves]].reshape((len(moves),) + dst.shape[1:])
    done = 0
    for first, last in _runs([row for row, _ in moves]):
        write_raw(dst[first:last], block[done : done + last - first])
        done += last - first


def _runs(numbers):
    """Ascending integers as half-open ranges of consecutive ones."""
    ranges = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges
