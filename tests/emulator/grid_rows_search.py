"""Rows of the grid: searches of the Vector Engine, gathers and positions of GpSimd."""

import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import FLAT, PAIRED, PAIRED_SLICED, PLAIN, SOLID, SOME_PARTITIONS
from .grid_values import (
    COMPUTABLE,
    INTEGERS,
    NUMPY,
    bits,
    distinct,
    eighths,
    f32,
    kind,
    normal,
    raw,
)
from .support import nl

S = ("sbuf",)
UP_TO_3D = tuple(one for one in SOLID if one.rank <= 3)
CORE = 16


def _no_nan(generator, dtype, shape):
    """Infinities, zeros and large values, but no NaN: how it compares is not documented."""
    values = normal(generator, dtype, shape)
    if kind(dtype) == "float" and dtype != "float8_e8m0fnu":
        extremes = np.array([np.inf, -np.inf, 0, 1, 240, -240], np.float32)
        chosen = generator.choice(extremes, shape).astype(values.dtype)
        values = np.where(generator.random(shape) < 0.5, chosen, values)
        values[np.isnan(f32(values))] = 2
    return values


# max8, nc_find_index8, nc_match_replace8.


def _eight(role, dtypes=COMPUTABLE, **settings):
    return Operand(role, dtypes, shape=lambda p, w: (p, 8), **settings)


def _matches(data, vals, order):
    """Position of each of the eight values, -1 if there is none left; by partition and slot."""
    found = np.full(vals.shape, -1, np.int64)
    for partition in range(len(data)):
        taken = set()
        for slot in order:
            for position, value in enumerate(data[partition]):
                if value == vals[partition, slot] and position not in taken:
                    taken.add(position)
                    found[partition, slot] = position
                    break
    return found


def _some_of_the_data(x, env):
    """Six of the eight values occur in data, two of them twice; the others may not."""
    data, vals = f32(x["data"]), f32(x["vals"])
    columns = env.generator.integers(0, data.shape[1], (len(data), 6))
    vals[:, [0, 2, 3, 5, 6, 7]] = np.take_along_axis(data, columns, axis=1)
    vals[:, 4] = vals[:, 2]
    kept = np.clip(vals, -200, 200) if kind(env.dtypes["vals"]) != "bool" else vals
    if env.dtypes["vals"].startswith("u"):
        kept = np.abs(kept)
    if env.dtypes["vals"] == "float8_e8m0fnu":
        kept = np.where(kept > 0, kept, 1)
    if env.dtypes["vals"] in ("int8", "uint8"):
        kept = np.clip(kept, -100, 100)
    return {"vals": kept.astype(NUMPY[env.dtypes["vals"]])}


def _indices(found, dtype):
    return Result(found.astype(NUMPY[dtype]), True)  # -1 as an unsigned integer is all ones.


def _find(x, env):
    found = _matches(f32(x["data"]), f32(x["vals"]), range(8))
    return {"dst": _indices(found, env.dtypes["dst"])}


def _replace(imm, index):
    indices = (_eight("dst_idx", ("uint32", "uint16"), output=True, layouts=FLAT),)

    def reference(x, env):
        found = _matches(f32(x["data"]), f32(x["vals"]), range(7, -1, -1))
        values = f32(x["data"]).copy()
        for partition, slot in zip(*np.nonzero(found >= 0)):
            values[partition, found[partition, slot]] = imm
        results = {"dst": values}
        if index:
            results["dst_idx"] = _indices(found, env.dtypes["dst_idx"])
        return results

    return Row(
        "nc_match_replace8", (
            Operand("data", values=distinct, extremes=_no_nan, layouts=UP_TO_3D),
            _eight("vals", values=distinct, layouts=UP_TO_3D),
            Operand("dst", output=True),
            *(indices if index else ()),
        ), reference, {"imm": imm}, f"{imm}", prepare=_some_of_the_data, partitions=(7, 33),
        in_place=("data",), widths=(16,), extremes=False,
    )  # fmt: skip


SEARCHES = [
    Row(
        "max8", (
            Operand("src", values=_no_nan, extremes=_no_nan, layouts=UP_TO_3D),
            _eight("dst", output=True, layouts=FLAT),
        ),
        lambda x, env: {"dst": np.sort(f32(x["src"]), axis=1)[:, :-9:-1]}, widths=(24, 8),
        loose=("src",), extremes=False,
    ),
    Row(
        "nc_find_index8", (
            Operand("data", values=distinct, extremes=_no_nan, layouts=UP_TO_3D),
            _eight("vals", values=distinct, layouts=UP_TO_3D),
            _eight("dst", ("uint32", "uint16"), output=True, layouts=FLAT),
        ), _find, prepare=_some_of_the_data, partitions=(7, 33), widths=(16,), extremes=False,
        loose=("data",),
    ),
    _replace(-2.5, True), _replace(0.0, False),
]  # fmt: skip


# Gathers.


def _one_start(places):
    """All operands in the partitions of the same cores."""
    return len({place.start for place in places.values()}) == 1


def _up_to(limit):
    """Indices from 0 to limit(p, w) - 1."""

    def sized(p, w):
        def values(generator, dtype, shape):
            return generator.integers(0, limit(p, w), shape).astype(NUMPY[dtype])

        return values

    return sized


def _n_gather(x, env):
    found = np.take_along_axis(raw(x["data"]), x["indices"].astype(np.int64), axis=1)
    return {"dst": Result(found.view(x["data"].dtype), True)}


def _local_gather(elements, count):
    """``count`` indices a core (None: all of 16 * w / 8), ``elements`` from each."""

    def valid(p, w):
        return CORE * (w // 8) if count is None else count

    def reference(x, env):
        number = valid(env.partitions, env.width)
        found = []
        for partition in range(env.partitions):
            core = partition // CORE * CORE
            starts = x["index"][core : core + CORE].flatten(order="F")[:number].astype(np.int64)
            columns = (starts[:, None] + np.arange(elements)).reshape(-1)
            found.append(raw(x["src_buffer"])[partition, columns])
        return {"dst": Result(np.array(found).view(x["src_buffer"].dtype), True)}

    return Row(
        "local_gather", (
            Operand("src_buffer", buffers=S, values=bits),
            Operand("index", ("uint16",), buffers=S, shape=lambda p, w: (p, w // 8),
                    sized=_up_to(lambda p, w: w - elements + 1)),
            Operand("dst", output=True, buffers=S, shape=lambda p, w: (p, valid(p, w) * elements)),
        ), reference,
        lambda env: {
            "num_elem_per_idx": elements, "num_valid_indices": valid(env.partitions, env.width)
        },
        f"{elements} elements, {count or 'all'} indices", same=(("src_buffer", "dst"),),
        partitions=(16, 32, 64, 128), loose=("src_buffer", "index"), extremes=False,
        layouts_legal=_one_start,
    )  # fmt: skip


GATHERS = [
    Row(
        "nc_n_gather", (
            Operand("data", buffers=S, values=bits),
            Operand("indices", ("uint32",), buffers=S, shape=lambda p, w: (p, 2 * w),
                    sized=_up_to(lambda p, w: w)),
            Operand("dst", output=True, buffers=S, shape=lambda p, w: (p, 2 * w)),
        ), _n_gather, same=(("data", "dst"),), loose=("data",), extremes=False,
    ),
    _local_gather(1, None), _local_gather(4, 20), _local_gather(8, 3),
]  # fmt: skip


# Reductions over partitions.

OVER_PARTITIONS = {
    "add": np.add.reduce, "maximum": np.maximum.reduce, "bitwise_or": np.bitwise_or.reduce,
    "bitwise_and": np.bitwise_and.reduce, "average": None,
}  # fmt: skip


def _over_partitions(name, op):
    bitvec = name.startswith("bitwise")
    dtypes = INTEGERS if bitvec else COMPUTABLE

    def reference(x, env):
        if bitvec:
            found = OVER_PARTITIONS[name](raw(x["data"]), axis=0)[None]
            return {"dst": Result(found.view(env.dtypes["dst"]), True)}
        values = f32(x["data"])
        if name == "average":
            return {"dst": values.sum(axis=0, keepdims=True) / np.float32(env.partitions)}
        return {"dst": OVER_PARTITIONS[name](values, axis=0)[None]}

    return Row(
        "tensor_partition_reduce", (
            Operand("data", dtypes, buffers=S, values=bits if bitvec else eighths),
            Operand("dst", dtypes, buffers=S, output=True, shape=lambda p, w: (1, w)),
        ), reference, {"op": op}, name, loose=("data",), extremes=name == "maximum",
        legal=lambda d, generation: not bitvec
        or np.dtype(d["data"]).itemsize == np.dtype(d["dst"]).itemsize,
    )  # fmt: skip


PARTITION_REDUCTIONS = [
    _over_partitions("add", nl.add), _over_partitions("maximum", nl.maximum),
    _over_partitions("bitwise_or", nl.bitwise_or), _over_partitions("bitwise_and", nl.bitwise_and),
    _over_partitions("average", nl.average),
]  # fmt: skip


# Positions.


def _bounds(x, env):
    ids = x["segment_ids"][0].astype(np.float64)
    size = len(ids)
    starts, ends = np.full(size, size), np.full(size, -1)
    for i in range(size):
        if ids[i] != 0:
            same = i > 0 and ids[i] == ids[i - 1]
            starts[i] = starts[i - 1] if same else i
    for i in range(size - 1, -1, -1):
        if ids[i] != 0:
            same = i + 1 < size and ids[i] == ids[i + 1]
            ends[i] = ends[i + 1] if same else i + 1
    return {"dst": np.concatenate([starts, ends])[None].astype(np.float32)}


def _segments(generator, dtype, shape):
    return np.repeat(generator.integers(0, 4, (*shape[:-1], -(-shape[-1] // 3))), 3, axis=-1)[
        ..., : shape[-1]
    ].astype(NUMPY[dtype])


def _many_zeros(generator, dtype, shape):
    return normal(generator, dtype, shape) * (generator.random(shape) < 0.4).astype(NUMPY[dtype])


def _nonzero(offset, padding):
    def reference(x, env):
        found = np.zeros((env.partitions, env.width + 1), np.int32)
        written = np.zeros(found.shape, np.bool_)
        for partition in range(0, env.partitions, CORE):
            where = [offset + i for i, one in enumerate(x["src"][partition]) if one != 0]
            rest = [padding] * (env.width - len(where))
            found[partition] = where + rest + [len(where)]
            written[partition] = True
        return {"dst": Result(found, True, written)}

    return Row(
        "nonzero_with_count", (
            Operand("src", ("float32", "int32"), buffers=S, values=_many_zeros,
                    layouts=tuple(one for one in SOLID if one.start == 0)),
            Operand("dst", ("int32",), buffers=S, output=True, shape=lambda p, w: (p, w + 1),
                    layouts=(PLAIN, SOME_PARTITIONS)),
        ), reference, {"index_offset": offset, "padding_val": padding}, f"{offset} {padding}",
        generation=3, partitions=(128, 16, 33, 1), loose=("src",),
    )  # fmt: skip


def _topk(n, count):
    """One result a core, in snake order like the source: see positions.topk on the documents."""

    def reference(x, env):
        shape = (env.partitions, count)
        values, indices = np.zeros(shape, np.float32), np.zeros(shape, np.uint32)
        written = np.zeros(shape, np.bool_)
        for core in range(0, env.partitions, CORE):
            snake = f32(x["src"][core : core + CORE]).flatten(order="F")[:n]
            order = sorted(range(n), key=lambda i: (-snake[i], i))[:count][::-1]
            for j, i in enumerate(order):
                at = core + j % CORE, j // CORE
                values[at], indices[at], written[at] = snake[i], i, True
        return {
            "val_dst": Result(values, written=written),
            "idx_dst": Result(indices, True, written),
        }

    flat = {"buffers": S, "layouts": FLAT}
    result = {"output": True, "shape": lambda p, w: (p, count), **flat}
    return Row(
        "topk", (
            Operand("src", ("bfloat16",), values=distinct, extremes=_no_nan, **flat,
                    shape=lambda p, w: (p, -(-n // CORE) + 1)),
            Operand("val_dst", ("bfloat16",), **result),
            Operand("idx_dst", ("uint32",), **result),
        ), reference, {"n": n}, f"{count} of {n}", partitions=(16, 64, 128), loose=("src",),
        layouts_legal=_one_start,
    )  # fmt: skip


POSITIONS = [
    Row(
        "sequence_bounds", (
            Operand("segment_ids", ("float32", "int32"), buffers=S, values=_segments,
                    extremes=_segments, layouts=FLAT),
            Operand("dst", ("float32", "int32"), buffers=S, output=True,
                    shape=lambda p, w: (p, 2 * w), layouts=(PAIRED, PAIRED_SLICED)),
        ), _bounds, partitions=(1,), widths=(9, 24, 1), extremes=False,
    ),
    _nonzero(0, -1), _nonzero(1000, 7), _topk(42, 8), _topk(8, 8), _topk(100, 37), _topk(33, 1),
]  # fmt: skip

ROWS = [*SEARCHES, *GATHERS, *PARTITION_REDUCTIONS, *POSITIONS]
