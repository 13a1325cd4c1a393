"""Vector Engine: the eight largest values of a partition, and where eight values are.

Values are compared in float32. The documentation says nothing about the order of NaN, so the
instructions refuse NaN where the result would depend on it.
"""

import numpy as np

from .. import rules
from ..access import read_float32, write_float32, write_raw
from ..errors import NkiValidationError
from .alu import rows, shaped
from .operands import number

EIGHT = 8
# Stubs of max8 and nc_find_index8: elements of a partition, and dimensions of a tile.
LEAST, MOST = 8, 16384
MAX_DIMS = 3
INDEX_DTYPES = ("uint16", "uint32")


def max8(session, dst, src, name):
    """dst = the eight largest values of each partition, in descending order."""
    rules.on_chip(dst, "dst")
    _require_searchable(src, "src")
    rules.not_packed(dst, "dst")
    _require_eight(dst, "dst", src)
    values = rows(read_float32(src, "src"))
    _refuse_nan(values, "src")
    largest = np.partition(values, values.shape[1] - EIGHT, axis=1)[:, -EIGHT:]
    largest.sort(axis=1)
    write_float32(dst, largest[:, ::-1])
    return session.finish("max8", "vector", (dst,), (src,), name)


def nc_find_index8(session, dst, data, vals, name):
    """dst = index of the first occurrence of each of eight values; all ones if there is none.

    A value that is given several times takes successive occurrences, in ascending order.
    """
    _require_index(dst, "dst", data)
    found = _match(data, vals, range(EIGHT))
    _write_indices(dst, found)
    return session.finish("nc_find_index8", "vector", (dst,), (data, vals), name)


def nc_match_replace8(session, dst, data, vals, imm, dst_idx, name):
    """dst = data with the first occurrence of each of eight values replaced by imm.

    A value that is given several times takes successive occurrences from the last slot of dst_idx
    to the first. The stub does not say what a slot without a match gets: here all ones, as
    documented for nc_find_index8; nor does it give limits, which are taken from there too.
    """
    rules.on_chip(dst, "dst")
    rules.not_packed(dst, "dst")
    if dst_idx is not None:
        _require_index(dst_idx, "dst_idx", data)
    found = _match(data, vals, reversed(range(EIGHT)))
    rules.same_free_size(data, "data", dst, "dst")
    filler = number(imm, "imm")
    values = rows(read_float32(data, "data")).copy()
    partition, slot = np.nonzero(found >= 0)
    values[partition, found[partition, slot]] = filler
    write_float32(dst, shaped(values, dst))
    writes = (dst,)
    if dst_idx is not None:
        _write_indices(dst_idx, found)
        writes = (dst, dst_idx)
    return session.finish("nc_match_replace8", "vector", writes, (data, vals), name)


def _match(data, vals, order):
    """Column where each value is found, -1 if nowhere; (partitions, 8).

    Slots are served in ``order``, and an element of ``data`` serves one slot.
    """
    _require_searchable(data, "data")
    rules.on_chip(vals, "vals")
    rules.not_packed(vals, "vals")
    rules.same_partitions(vals, "vals", data.shape[0], "data")
    _require_rank(vals, "vals")
    if vals.size != EIGHT * vals.shape[0]:
        raise NkiValidationError(
            "eight-values",
            f"vals has {vals.size // vals.shape[0]} elements per partition; it holds {EIGHT}.",
        )
    wanted = rows(read_float32(vals, "vals"))
    _refuse_nan(wanted, "vals")
    values = rows(read_float32(data, "data"))
    partitions = np.arange(values.shape[0])
    free = np.ones(values.shape, np.bool_)
    found = np.empty(wanted.shape, np.intp)
    for slot in order:
        matches = values == wanted[:, slot : slot + 1]
        matches &= free
        column = matches.argmax(axis=1)
        hit = matches[partitions, column]
        free[partitions[hit], column[hit]] = False
        found[:, slot] = np.where(hit, column, -1)
    return found


def _write_indices(dst, found):
    # -1, cast to an unsigned type, is all ones.
    write_raw(dst, found.astype(dst.info.storage))


def _require_searchable(tensor, role):
    rules.on_chip(tensor, role)
    rules.not_packed(tensor, role)
    _require_rank(tensor, role)
    width = tensor.size // tensor.shape[0]
    if not LEAST <= width <= MOST:
        raise NkiValidationError(
            "search-width",
            f"{role} has {width} elements per partition; allowed: {LEAST} to {MOST}.",
        )


def _require_rank(tensor, role):
    if tensor.ndim > MAX_DIMS:
        raise NkiValidationError(
            "tile-rank",
            f"{role} has {tensor.ndim} dimensions; this instruction takes at most "
            f"{MAX_DIMS}. Use .flatten_dims.",
        )


def _require_index(tensor, role, data):
    rules.on_chip(tensor, role)
    rules.tensor(data, "data")
    _require_eight(tensor, role, data)
    rules.dtype_in(tensor, role, INDEX_DTYPES)


def _require_eight(tensor, role, data):
    rules.same_partitions(tensor, role, data.shape[0], "the tile that is searched")
    if tensor.shape[1:] != (EIGHT,):
        raise NkiValidationError(
            "eight-values",
            f"{role} has shape {list(tensor.shape)}; it is 2-D, [{data.shape[0]}, {EIGHT}].",
        )


def _refuse_nan(values, role):
    if np.isnan(values).any():
        raise NkiValidationError(
            "nan-order",
            f"{role} holds NaN, and the documentation does not say how NaN compares.",
        )
