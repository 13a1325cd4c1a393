"""GpSimd Engine: generated patterns. It reaches SBUF only."""

import math

import numpy as np

from .. import rules
from ..access import read_float32, read_raw, write_float32, write_raw
from ..dtypes import FLOAT, store_float32
from ..errors import NkiValidationError
from ..operators import binary
from .operands import number

MAX_DIMS = 4
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")


def iota(session, dst, pattern, offset, channel_multiplier, name):
    """dst[p, ...] = offset + p * channel_multiplier + affine pattern, in int32."""
    rules.on_chip(dst, "dst")
    rules.sbuf_only(dst, "dst", "the GpSimd engine")
    rules.not_packed(dst, "dst")
    values = _affine(dst, pattern, offset, channel_multiplier)
    if dst.info.kind == FLOAT:
        write_float32(dst, values.astype(np.float32))
    else:
        write_raw(dst, _saturated(values, dst.info.storage))
    return session.finish("iota", "gpsimd", (dst,), (), name)


def _saturated(values, storage):
    if storage == np.bool_:
        return values != 0
    limits = np.iinfo(storage)
    return np.clip(values.astype(np.int64), limits.min, limits.max).astype(storage)


def affine_select(
    session, dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op, offset, name
):
    """dst = on_true_tile where cmp_op(affine pattern, 0), else on_false_value."""
    rules.on_chip(dst, "dst")
    rules.on_chip(on_true_tile, "on_true_tile")
    rules.sbuf_only(dst, "dst", "the GpSimd engine")
    rules.sbuf_only(on_true_tile, "on_true_tile", "the GpSimd engine")
    rules.same_free_size(on_true_tile, "on_true_tile", dst, "dst")
    rules.not_packed(dst, "dst")
    rules.not_packed(on_true_tile, "on_true_tile")
    comparison = binary(cmp_op, "cmp_op", session)
    if comparison.name not in COMPARISONS:
        raise NkiValidationError(
            "operator-kind",
            f"cmp_op=nl.{comparison.name}; allowed: {', '.join('nl.' + n for n in COMPARISONS)}.",
        )
    affine = _affine(dst, pattern, offset, channel_multiplier)
    chosen = comparison.compute(affine, np.int32(0)) != 0
    chosen = chosen.reshape(dst.shape)
    other = number(on_false_value, "on_false_value")
    if on_true_tile.info is dst.info and dst.info.kind != FLOAT:
        # Same dtype: the selected integers are not converted.
        kept = read_raw(on_true_tile, "on_true_tile").reshape(dst.shape)
        filler = np.empty((1,), dst.info.storage)
        store_float32(filler, dst.info, np.array([other], np.float32))
        write_raw(dst, np.where(chosen, kept, filler))
    else:
        kept = read_float32(on_true_tile, "on_true_tile").reshape(dst.shape)
        write_float32(dst, np.where(chosen, kept, other))
    return session.finish("affine_select", "gpsimd", (dst,), (on_true_tile,), name)


def _affine(dst, pattern, offset, channel_multiplier):
    """The int32 values of an affine pattern, shape (partitions, counts...)."""
    try:
        pairs = [(int(step), int(count)) for step, count in pattern]
    except (TypeError, ValueError):
        raise NkiValidationError(
            "affine-pattern", f"pattern={pattern!r}; expected [[step, count], ...]."
        ) from None
    if not 1 <= len(pairs) <= MAX_DIMS or any(count < 1 for _, count in pairs):
        raise NkiValidationError(
            "affine-pattern",
            f"pattern={pattern!r}; expected 1 to {MAX_DIMS} pairs with counts of at least 1.",
        )
    partitions = dst.shape[0]
    count = math.prod(count for _, count in pairs)
    if count * partitions != dst.size:
        raise NkiValidationError(
            "affine-pattern",
            f"pattern {pattern!r} makes {count} elements per partition; dst has "
            f"{dst.size // partitions}.",
        )
    for value, role in ((offset, "offset"), (channel_multiplier, "channel_multiplier")):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise NkiValidationError("operand-type", f"{role}={value!r}; expected an integer.")
    values = np.full((partitions,) + (1,) * len(pairs), offset, np.int32)
    axes = [(channel_multiplier, partitions), *pairs]
    for axis, (step, size) in enumerate(axes):
        ramp = (np.arange(size, dtype=np.int64) * step).astype(np.int32)
        values = values + ramp.reshape((size,) + (1,) * (len(axes) - 1 - axis))
    return values
