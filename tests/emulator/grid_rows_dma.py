"""Rows of the grid: DMA copies, transposes, sums, gathers and scatters."""

import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import (
    COLUMNS,
    CUBE,
    CUBE_PERMUTED,
    CUBE_SLICED,
    DMA,
    FLAT,
    FOUR_PERMUTED,
    ODD_ROWS,
    PLAIN,
    REPEATING,
    STRIDED,
    Layout,
)
from .grid_values import ALL, COMPUTABLE, NUMPY, bits, eighths, f32, kind, raw
from .support import nisa, nl

MEMORY = ("hbm", "sbuf")
S, H = ("sbuf",), ("hbm",)
DGE = nisa.dge_mode


def _copied(x, env):
    if env.dtypes["src"] == env.dtypes["dst"]:
        return {"dst": Result(x["src"], bitwise=True)}
    return {"dst": f32(x["src"])}


def _convertible(dtypes, generation):
    packed = [dtype for dtype in (dtypes["src"], dtypes["dst"]) if kind(dtype) == "packed"]
    return not packed or dtypes["src"] == dtypes["dst"]


def _copy(label, same=(), **options):
    return Row(
        "dma_copy", (
            Operand("src", ALL, values=bits, buffers=MEMORY, layouts=(*DMA, *REPEATING)),
            Operand("dst", ALL, output=True, buffers=MEMORY, layouts=DMA),
        ), _copied, options, label, legal=_convertible, in_place=("src",), free=True, same=same,
        generation=3 if same else 2,
    )  # fmt: skip


def _wide_enough(dtypes, generation):
    return np.dtype(NUMPY[dtypes["src"]]).itemsize in (2, 4)


def _two_bytes(dtypes, generation):
    return np.dtype(NUMPY[dtypes["src"]]).itemsize == 2


def _transpose(label, axes, source, destination, **settings):
    """``source`` are layouts of src; dst has one shape, in the layout ``destination``."""

    def reference(x, env):
        moved = raw(x["src"]).reshape(env.shapes["src"]).transpose(axes)
        found = np.ascontiguousarray(moved).reshape(moved.shape[0], -1)
        return {"dst": Result(found.view(x["src"].dtype), True)}

    settings = {"legal": _wide_enough, "options": {"axes": axes}, **settings}
    return Row(
        "dma_transpose", (
            Operand("src", ALL, base="float16", values=bits, buffers=MEMORY, layouts=source),
            Operand("dst", ALL, base="float16", output=True, buffers=S, layouts=destination[0],
                    shape=destination[1]),
        ), reference, label=label, same=(("src", "dst"),), free=True, **settings,
    )  # fmt: skip


# [4, 2, w / 4, 2] becomes [2, 2, w / 4, 4].
FOURS = Layout(
    "4-D", lambda p, w: (p, w), lambda t, p, w: t.reshape((p, 2, w // 8, 4)),
    lambda a, p, w: a.reshape(p, 2, w // 8, 4), rank=4,
)  # fmt: skip
COPIES = [
    _copy(""),
    _copy("static", dge_mode=DGE.none),
    _copy("software", dge_mode=DGE.swdge),
    _copy("hardware", (("src", "dst"),), dge_mode=DGE.hwdge, engine=nisa.engine.sync),
]
TRANSPOSES = [
    _transpose("2-D", (1, 0), (PLAIN, COLUMNS, STRIDED, ODD_ROWS), (FLAT, lambda p, w: (w, p))),
    # [p, w / 4, 4] becomes [4, w / 4, p].
    _transpose(
        "3-D", (2, 1, 0), (CUBE, CUBE_PERMUTED, CUBE_SLICED),
        ((CUBE_PERMUTED, CUBE), lambda p, w: (4, w // 4 * p)), partitions=(4,), widths=(16,),
    ),
    _transpose(
        "4-D", (3, 1, 2, 0), (FOUR_PERMUTED,), ((FOURS,), lambda p, w: (2, w // 2 * p)),
        partitions=(4,), widths=(16, 40),
    ),
    _transpose(
        "hardware 2-D", (1, 0), (PLAIN, COLUMNS), (FLAT, lambda p, w: (w, p)), partitions=(16,),
        options={"dge_mode": DGE.hwdge}, legal=_two_bytes, generation=3,
    ),
]  # fmt: skip


# dma_compute.


def _sum(count, scales):
    roles = [f"src{number}" for number in range(count)]

    def reference(x, env):
        return {"dst": sum(f32(x[role]).astype(np.float64) for role in roles)}

    def call(views, options):
        nisa.dma_compute(views["dst"], [views[role] for role in roles], nl.add, **options)

    return Row(
        "dma_compute", (
            *(Operand(role, values=eighths, buffers=MEMORY, layouts=(*DMA, *REPEATING))
              for role in roles),
            Operand("dst", output=True, buffers=MEMORY, layouts=DMA),
        ), reference, {"scales": scales}, f"{count} sources", call=call, free=True,
        in_place=("src0",), extremes=False,
    )  # fmt: skip


# Gather and scatter: rows of an HBM tensor by a (P, 1) tile of indices.

ROWS_OF_TABLE = 40


def _row_indices(generator, dtype, shape):
    """Every row at most once."""
    return generator.permutation(ROWS_OF_TABLE)[: shape[0], None].astype(NUMPY[dtype])


def _picked(view, index, rows):
    width = view.shape[1]
    return view.ap(pattern=[[width, rows], [1, width]], vector_offset=index, indirect_dim=0)


def _index(**settings):
    return Operand("index", ("uint32", "int32"), buffers=S, values=_row_indices, layouts=(PLAIN,),
                   shape=lambda p, w: (p, 1), extremes=_row_indices, **settings)  # fmt: skip


def _table(role, dtypes, values=bits, **settings):
    return Operand(role, dtypes, buffers=H, layouts=(PLAIN,), values=values,
                   shape=lambda p, w: (ROWS_OF_TABLE, w), **settings)  # fmt: skip


def _gather():
    def reference(x, env):
        rows = x["src"][x["index"][:, 0]]
        return _copied({"src": rows}, env)

    def call(views, options):
        src = _picked(views["src"], views["index"], views["index"].shape[0])
        nisa.dma_copy(dst=views["dst"], src=src)

    return Row(
        "dma_copy", (
            _table("src", ALL), _index(),
            Operand("dst", ALL, output=True, buffers=MEMORY, layouts=FLAT),
        ), reference, label="gather", call=call, free=True, partitions=(7, 33), generation=3,
        legal=_convertible, extremes=False, loose=("src", "index", "dst"),
    )  # fmt: skip


def _scatter():
    def reference(x, env):
        found = x["dst"].copy()
        written = np.zeros(found.shape, np.bool_)
        rows = x["index"][:, 0]
        written[rows] = True
        if env.dtypes["src"] == env.dtypes["dst"]:
            found[rows] = x["src"]
            return {"dst": Result(found, True, written)}
        wide = np.zeros(found.shape, np.float32)
        wide[rows] = f32(x["src"])
        return {"dst": Result(wide, written=written)}

    def call(views, options):
        dst = _picked(views["dst"], views["index"], views["index"].shape[0])
        nisa.dma_copy(dst=dst, src=views["src"])

    return Row(
        "dma_copy", (
            Operand("src", ALL, values=bits, buffers=MEMORY, layouts=FLAT), _index(),
            _table("dst", ALL, output=True),
        ), reference, label="scatter", call=call, free=True, partitions=(7, 33), generation=3,
        legal=_convertible, extremes=False, loose=("src", "index", "dst"),
    )  # fmt: skip


def _add_rows(scatters):
    """table[rows] += tile, or tile += table[rows]: the output is also a source."""
    target, source = ("table", "tile") if scatters else ("tile", "table")

    def reference(x, env):
        found, rows = f32(x[target]), x["index"][:, 0]
        written = np.ones(found.shape, np.bool_)
        if scatters:
            written[:] = False
            written[rows] = True
            found[rows] += f32(x["tile"])
        else:
            found = found + f32(x["table"])[rows]
        return {target: Result(found, written=written)}

    def call(views, options):
        rows = _picked(views["table"], views["index"], views["index"].shape[0])
        dst = rows if scatters else views["tile"]
        nisa.dma_compute(dst, [rows, views["tile"]], nl.add)

    table = _table("table", COMPUTABLE, eighths, output=scatters, keeps=scatters)
    tile = Operand("tile", COMPUTABLE, output=not scatters, keeps=not scatters, values=eighths,
                   buffers=S, layouts=FLAT)  # fmt: skip
    operands = (table, tile, _index()) if scatters else (tile, table, _index())
    return Row(
        "dma_compute", operands, reference,
        label="scatter" if scatters else "gather", call=call, free=True, partitions=(7, 33),
        generation=3, extremes=False, loose=("table", "tile", "index"),
    )  # fmt: skip


SUMS = [_sum(2, None), _sum(3, [1.0, 1.0, 1.0]), _add_rows(True), _add_rows(False)]
ROWS = [*COPIES, *TRANSPOSES, *SUMS, _gather(), _scatter()]
