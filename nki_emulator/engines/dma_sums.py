"""Sums that DMA engines compute while they move data: `dma_compute`."""

from .. import operators, rules
from ..access import read_float32, write_float32
from ..dtypes import to_float32
from ..dynamic import DynamicView
from ..enums import oob_mode as oob_modes
from ..errors import NkiValidationError
from ..regions import MemoryRegion, is_sbuf
from .dma import is_vector, require_operand, row_indices
from .rows import Rows, narrowed, write_rows

MOST_SOURCES = 16


def dma_compute(session, dst, srcs, reduce_op, scales, unique_indices, oob_mode, name):
    """dst = the sum of srcs in float32; with row indices, an addition to rows or of rows."""
    if not isinstance(srcs, (list, tuple)) or not 2 <= len(srcs) <= MOST_SOURCES:
        # With one source the stub copies it, and the migration guide adds it to dst.
        raise NkiValidationError(
            "dma-compute-sources",
            f"srcs is {len(srcs) if isinstance(srcs, (list, tuple)) else srcs!r}; it is a list of "
            f"2 to {MOST_SOURCES} tensors. To add to dst, list dst as a source.",
        )
    roles = [f"srcs[{number}]" for number in range(len(srcs))]
    for operand, role in zip((dst, *srcs), ("dst", *roles)):
        _check_operand(operand, role, dst)
    operators.reduction(reduce_op, "reduce_op", session, names=("add",))
    _check_scales(scales, len(srcs))
    rules.one_of(oob_mode, "oob_mode", tuple(oob_modes))
    rules.flag(unique_indices, "unique_indices")
    skip = oob_mode is oob_modes.skip
    views = [operand for operand in (dst, *srcs) if is_vector(operand)]
    if views:
        rules.from_generation(session, 3, "dma_compute with vector_offset")
        _update_rows(dst, srcs, unique_indices, skip)
    else:
        if skip:
            raise NkiValidationError(
                "dma-oob", "oob_mode.skip is for indirect accesses; no operand is indirect."
            )
        total = read_float32(srcs[0], roles[0]).reshape(dst.shape)
        for operand, role in zip(srcs[1:], roles[1:]):
            total = total + read_float32(operand, role).reshape(dst.shape)
        write_float32(dst, total)
    return session.finish("dma_compute", "dma", (dst,), tuple(srcs), name)


def _update_rows(dst, srcs, unique_indices, skip):
    """``dst[rows] += tile`` or ``tile += src[rows]``."""
    if len(srcs) != 2 or unique_indices is not True:
        raise NkiValidationError(
            "dma-compute-rows",
            f"with vector_offset there are two sources and unique_indices=True; found "
            f"{len(srcs)} and {unique_indices!r}.",
        )
    rows_first = is_vector(srcs[0])
    gathered, other = srcs if rows_first else srcs[::-1]
    gathered_role, other_role = ("srcs[0]", "srcs[1]")[:: 1 if rows_first else -1]
    scatters = is_vector(dst)
    if scatters:
        matches = is_vector(gathered) and _same_rows(dst, gathered) and _is_tile(other)
    else:
        matches = is_vector(gathered) and not is_vector(other) and is_sbuf(dst.buffer)
        matches = matches and other.storage is dst.storage and other.region == dst.region
    if not matches:
        raise NkiValidationError(
            "dma-compute-match",
            "with vector_offset there are two forms: dst in HBM with the same indices as one "
            "source and the other source in SBUF (dst[rows] += tile), or dst in SBUF, which is "
            "also a source, and the other source in HBM with indices (tile += src[rows]).",
        )
    rows = Rows(gathered, gathered_role, row_indices(gathered, gathered_role), skip)
    values = to_float32(rows.read(), gathered.info)
    addend = read_float32(other, other_role).reshape(gathered.shape)[rows.kept]
    total = values + addend if rows_first else addend + values
    total = narrowed(total, dst.info)
    if not scatters:
        write_rows(dst, total, rows.kept)
        return
    if rows.repeated() is not None:
        raise NkiValidationError(
            "dma-compute-unique",
            f"the indices name row {rows.repeated()} twice; rows that are added to must be unique.",
        )
    rows.write(total)


def _same_rows(left, right):
    same = left.storage is right.storage and left.region == right.region
    return same and left.index.storage is right.index.storage and (
        left.index.region == right.index.region
    )  # fmt: skip


def _is_tile(operand):
    return not isinstance(operand, DynamicView) and is_sbuf(operand.buffer)


def _check_operand(operand, role, dst):
    require_operand(operand, role)
    if operand.buffer is MemoryRegion.psum:
        raise NkiValidationError("dma-psum", f"{role} is in PSUM, which DMA cannot reach.")
    rules.not_packed(operand, role)
    if operand.size != dst.size:
        raise NkiValidationError(
            "dma-size",
            f"{role} {list(operand.shape)} has {operand.size} elements and dst "
            f"{list(dst.shape)} {dst.size}; they must be equal.",
        )
    if isinstance(operand, DynamicView) and not is_vector(operand):
        raise NkiValidationError(
            "dma-compute-address",
            f"{role} has a scalar index; dma_compute takes addresses known when the kernel is "
            f"built, or vector_offset.",
        )


def _check_scales(scales, count):
    if scales is None:
        return
    listed = isinstance(scales, (list, tuple)) and len(scales) == count
    if not listed or any(isinstance(scale, bool) or scale != 1.0 for scale in scales):
        raise NkiValidationError(
            "dma-compute-scales",
            f"scales={scales!r}; allowed: None, or 1.0 for each of the {count} sources.",
        )
