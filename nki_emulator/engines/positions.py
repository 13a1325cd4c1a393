"""GpSimd Engine: where things are in a tile: segments, non-zero elements, the largest elements."""

import numpy as np

from .. import rules
from ..access import read_raw, write_float32, write_raw
from ..dtypes import to_float32
from ..errors import NkiValidationError
from ..registers import is_integer
from .gathers import CORE, require_same_cores, require_whole_cores, require_written
from .gpsimd import int32, require_sbuf

FLOAT_OR_INT = ("float32", "int32")
# Stub, topk: "Constraints".
LEAST_N, MOST_N, MOST_K = 8, 65535, 32767


def sequence_bounds(session, dst, segment_ids, name):
    """dst[0, 0] = first index of each element's segment, dst[0, 1] = one past its last.

    A segment is a run of equal ids. Elements with id 0 are padding, and get n and -1.
    """
    require_sbuf(dst, "dst")
    require_sbuf(segment_ids, "segment_ids")
    rules.dtype_in(dst, "dst", FLOAT_OR_INT)
    rules.dtype_in(segment_ids, "segment_ids", FLOAT_OR_INT)
    length = segment_ids.shape[-1]
    if segment_ids.shape != (1, length) or dst.shape != (1, 2, length):
        raise NkiValidationError(
            "sequence-shape",
            f"segment_ids has shape {list(segment_ids.shape)} and dst {list(dst.shape)}; they "
            f"must be [1, n] and [1, 2, n].",
        )
    ids = read_raw(segment_ids, "segment_ids")[0]
    if not ((ids >= 0) & (ids == np.floor(ids)) & np.isfinite(ids)).all():
        raise NkiValidationError(
            "segment-ids", "segment_ids must hold non-negative integers (0 is padding)."
        )
    edges = np.flatnonzero(ids[1:] != ids[:-1]) + 1
    edges = np.concatenate(([0], edges, [length]))
    sizes = np.diff(edges)
    padding = ids == 0
    bounds = np.stack(
        [
            np.where(padding, length, np.repeat(edges[:-1], sizes)),
            np.where(padding, -1, np.repeat(edges[1:], sizes)),
        ]
    )
    write_raw(dst, bounds.astype(dst.info.storage))
    return session.finish("sequence_bounds", "gpsimd", (dst,), (segment_ids,), name)


def nonzero_with_count(session, dst, src, index_offset, padding_val, name):
    """dst = indices of the non-zero elements, padding, and in the last element their number.

    Only the first partition of each core of 16 is read and written; the others stay as they are.
    """
    rules.from_generation(session, 3, "nonzero_with_count")
    require_sbuf(dst, "dst")
    require_sbuf(src, "src")
    rules.dtype_in(src, "src", FLOAT_OR_INT)
    rules.dtype_in(dst, "dst", ("int32",))
    require_same_cores(src, "src", dst, "dst")
    width = src.size // src.shape[0]
    if dst.size // dst.shape[0] != width + 1:
        raise NkiValidationError(
            "nonzero-shape",
            f"src has {width} elements per partition and dst {dst.size // dst.shape[0]}; dst has "
            f"exactly one more, for the count.",
        )
    offset = int32(index_offset, "index_offset")
    int32(offset + width - 1, "the largest index, index_offset + the size of a partition - 1,")
    padding = int32(padding_val, "padding_val")
    for partition in range(0, src.shape[0], CORE):
        row = slice(partition, partition + 1)
        found = np.flatnonzero(read_raw(src[row], "src"))
        result = np.full(width + 1, padding, np.int32)
        result[: found.size] = found + offset
        result[width] = found.size
        write_raw(dst[row], result)
    return session.finish("nonzero_with_count", "gpsimd", (dst,), (src,), name)


def topk(session, val_dst, idx_dst, src, n, name):
    """The K largest of n elements of each core's 16 partitions, ascending, and their indices.

    Element i of the n is in partition i % 16, column i // 16 of its core. The stub also says that
    each partition is independent and receives K values, which contradicts a source that is spread
    over 16 partitions. The vendor's kernels for Trn2 (library/api/sparse-attention-indexer-mx-
    bf16score.rst, gpsimd-topk.rst) find result j where element j of a source would be, in partition
    j % 16, column j // 16, and so does the emulator; the rest of val_dst and idx_dst is not
    written. Which of several equal elements is taken is undocumented: here those that come first.
    """
    for tensor, role in ((src, "src"), (val_dst, "val_dst"), (idx_dst, "idx_dst")):
        require_sbuf(tensor, role)
        if tensor.ndim != 2:
            raise NkiValidationError(
                "topk-shape", f"{role} has shape {list(tensor.shape)}; topk takes 2-D tiles."
            )
        rules.dtype_in(tensor, role, ("uint32",) if role == "idx_dst" else ("bfloat16",))
        rules.same_partitions(tensor, role, src.shape[0], "src")
    require_whole_cores(src, "src")
    if idx_dst.shape != val_dst.shape:
        raise NkiValidationError(
            "topk-shape",
            f"val_dst has shape {list(val_dst.shape)} and idx_dst {list(idx_dst.shape)}; both are "
            f"[partitions, K].",
        )
    count = val_dst.shape[1]
    _require_sizes(n, count, src)
    values = _snake(src, n)
    if np.isnan(values).any():
        raise NkiValidationError(
            "nan-order", "src holds NaN, and the documentation does not say how NaN compares."
        )
    largest = np.argsort(-values, axis=1, kind="stable")[:, :count][:, ::-1]
    _write_snake(val_dst, np.take_along_axis(values, largest, axis=1), write_float32)
    _write_snake(idx_dst, largest.astype(np.uint32), write_raw)
    return session.finish("topk", "gpsimd", (val_dst, idx_dst), (src,), name, n=int(n), k=count)


def _require_sizes(n, count, src):
    if not is_integer(n) or not LEAST_N <= n <= MOST_N:
        raise NkiValidationError(
            "topk-n", f"n={n!r}; it must be an integer from {LEAST_N} to {MOST_N}."
        )
    if src.shape[1] * CORE < n:
        raise NkiValidationError(
            "topk-n",
            f"n={n} elements need {-(-n // CORE)} columns of {CORE} partitions; src has "
            f"{src.shape[1]}.",
        )
    if count > min(n, MOST_K):
        raise NkiValidationError(
            "topk-k",
            f"K={count}, the columns of val_dst; it must not exceed n={n} nor {MOST_K}.",
        )


def _snake(src, n):
    """The n elements of each core in order, float32, (cores, n)."""
    partitions, columns = src.shape
    partition, column = np.ogrid[0:partitions, 0:columns]
    require_written(src, column * CORE + partition % CORE < n, "src")
    by_core = to_float32(src.array, src.info).reshape(partitions // CORE, CORE, columns)
    return by_core.transpose(0, 2, 1).reshape(partitions // CORE, CORE * columns)[:, :n]


def _write_snake(dst, results, write):
    """Put result j of each core into its partition j % 16, column j // 16."""
    cores, count = results.shape
    whole, rest = divmod(count, CORE)
    if whole:
        block = results[:, : whole * CORE].reshape(cores, whole, CORE).transpose(0, 2, 1)
        write(dst[:, 0:whole], np.ascontiguousarray(block))
    if rest:
        for core in range(cores):
            first = core * CORE
            tail = dst[first : first + rest, whole : whole + 1]
            write(tail, np.ascontiguousarray(results[core, whole * CORE :]))
