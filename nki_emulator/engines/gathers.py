"""GpSimd Engine: gathers along the free axis, within SBUF.

Of a source only the elements that are gathered have to be written, and of the indices only those
that count.
"""

import numpy as np

from .. import rules
from ..access import read_raw, write_raw
from ..errors import NkiUninitializedRead, NkiValidationError
from ..registers import is_integer
from .alu import rows
from .gpsimd import require_sbuf

CORE = 16  # Partitions of one GpSimd core (stub, local_gather).
# Stub, local_gather: "tile size constraints".
ELEMENTS = (1, 2, 4, 8, 16, 32)
MOST_INDICES = 4096


def local_gather(session, dst, src_buffer, index, num_elem_per_idx, num_valid_indices, name):
    """Gather runs of elements with indices that 16 partitions, one core, share.

    The indices of a core are read partition first: number i is in its partition i % 16, column
    i // 16. Index i makes elements [i * n, (i + 1) * n) of every partition of the core from the n =
    num_elem_per_idx elements of the same partition of src_buffer that start at the index.
    """
    for tensor, role in ((dst, "dst"), (src_buffer, "src_buffer"), (index, "index")):
        require_sbuf(tensor, role)
    rules.not_packed(src_buffer, "src_buffer")
    _require_same_dtype(dst, src_buffer, "src_buffer")
    rules.dtype_in(index, "index", ("uint16",))
    require_whole_cores(src_buffer, "src_buffer")
    require_same_cores(index, "index", src_buffer, "src_buffer")
    rules.same_partitions(dst, "dst", src_buffer.shape[0], "src_buffer")
    if not is_integer(num_elem_per_idx) or num_elem_per_idx not in ELEMENTS:
        raise NkiValidationError(
            "gather-elements", f"num_elem_per_idx={num_elem_per_idx!r}; allowed: {list(ELEMENTS)}."
        )
    partitions = src_buffer.shape[0]
    _require_count(num_valid_indices, index.size // partitions * CORE)
    width = num_valid_indices * num_elem_per_idx
    if dst.size != partitions * width:
        raise NkiValidationError(
            "gather-shape",
            f"{num_valid_indices} indices of {num_elem_per_idx} elements make {width} elements "
            f"per partition; dst has {dst.size // dst.shape[0]} (shape {list(dst.shape)}).",
        )
    starts = _indices_of_cores(index, num_valid_indices)
    limit = src_buffer.size // partitions - num_elem_per_idx
    _require_in_range(starts, limit, "index")
    columns = (starts[:, :, None] + np.arange(num_elem_per_idx)).reshape(len(starts), width)
    columns = np.repeat(columns, CORE, axis=0)
    write_raw(dst, _take(src_buffer, columns, "src_buffer"))
    return session.finish("local_gather", "gpsimd", (dst,), (src_buffer, index), name)


def _require_count(count, available):
    # The stub documents a default. The release notes of 0.6 ("Known Issues") say to pass the number
    # and to size dst for it, because num_elem_per_idx is ignored otherwise.
    if not is_integer(count):
        raise NkiValidationError(
            "gather-count",
            f"num_valid_indices={count!r}; in NKI 0.6 it must be given, as an integer: the number "
            f"of indices of each core, here at most {min(available, MOST_INDICES)}.",
        )
    if not 1 <= count <= min(available, MOST_INDICES):
        raise NkiValidationError(
            "gather-count",
            f"num_valid_indices={count}; a core has {available} indices here and takes at most "
            f"{MOST_INDICES}.",
        )


def _indices_of_cores(index, count):
    """The first ``count`` indices of each core, (cores, count)."""
    partitions = index.shape[0]
    columns = index.size // partitions
    partition, column = np.ogrid[0:partitions, 0:columns]
    require_written(index, column * CORE + partition % CORE < count, "index")
    by_core = index.array.reshape(partitions // CORE, CORE, columns).transpose(0, 2, 1)
    return by_core.reshape(partitions // CORE, columns * CORE)[:, :count].astype(np.intp)


def nc_n_gather(session, dst, data, indices, name):
    """dst[p, i] = data[p, indices[p, i]], with the free dimensions of all three flattened."""
    for tensor, role in ((dst, "dst"), (data, "data"), (indices, "indices")):
        require_sbuf(tensor, role)
    rules.not_packed(data, "data")
    _require_same_dtype(dst, data, "data")
    rules.dtype_in(indices, "indices", ("uint32",))
    rules.same_free_size(indices, "indices", dst, "dst")
    rules.same_partitions(data, "data", dst.shape[0], "dst")
    columns = rows(read_raw(indices, "indices")).astype(np.intp)
    _require_in_range(columns, data.size // data.shape[0] - 1, "indices")
    write_raw(dst, _take(data, columns, "data"))
    return session.finish("nc_n_gather", "gpsimd", (dst,), (data, indices), name)


def require_whole_cores(tensor, role):
    """A number of partitions that fills GpSimd cores."""
    if tensor.shape[0] % CORE:
        raise NkiValidationError(
            "core-partitions",
            f"{role} has {tensor.shape[0]} partitions; it must be a multiple of {CORE}, the "
            f"partitions of one GpSimd core.",
        )


def require_same_cores(tensor, role, other, other_role):
    """Two tiles in the same partitions, so that each core finds both in its own."""
    rules.same_partitions(tensor, role, other.shape[0], other_role)
    if tensor.start_partition != other.start_partition:
        raise NkiValidationError(
            "same-cores",
            f"{role} starts at partition {tensor.start_partition} and {other_role} at "
            f"{other.start_partition}; a GpSimd core reaches its own {CORE} partitions only, so "
            f"they must be equal.",
        )


def require_written(tensor, needed, role):
    """Everything that an instruction reads of a tile was written.

    ``needed`` is a boolean array, (partitions, elements of a partition).
    """
    storage = tensor.storage
    if storage.complete:
        return
    missing = needed & ~rows(storage.is_written(tensor))
    if missing.any():
        partition, column = np.argwhere(missing)[0]
        raise NkiUninitializedRead(
            "uninitialized-read",
            f"{role} is read at partition {partition}, element {column}, which nothing has "
            f"written ({np.count_nonzero(missing)} such elements). Tile: {storage.describe()}.",
        )


def _take(tensor, columns, role):
    """The elements at ``columns``, (partitions, count), of each partition, as raw integers."""
    if not tensor.storage.complete:
        needed = np.zeros((tensor.shape[0], tensor.size // tensor.shape[0]), np.bool_)
        np.put_along_axis(needed, columns, True, axis=1)
        require_written(tensor, needed, role)
    return np.take_along_axis(rows(tensor.array.view(tensor.info.raw)), columns, axis=1)


def _require_in_range(indices, highest, role):
    largest = int(indices.max())
    if largest > highest:
        partition, element = np.argwhere(indices > highest)[0]
        raise NkiValidationError(
            "gather-range",
            f"{role} holds {indices[partition, element]}; the highest legal value is {highest}, "
            f"and what happens beyond it is undefined.",
        )


def _require_same_dtype(dst, source, role):
    if dst.dtype != source.dtype:
        raise NkiValidationError(
            "same-dtype", f"{role} is {source.dtype} and dst {dst.dtype}; they must be equal."
        )
