"""Rows of the grid: copies, fills and selections."""

import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import SOLID
from .grid_values import (
    ALL,
    COMPUTABLE,
    FLOATS,
    INTEGERS,
    bits,
    converted,
    f32,
    finite,
    kind,
    normal,
    raw,
)
from .support import nisa, nl

S = ("sbuf",)
E = nisa.engine
CMD = nisa.reduce_cmd
FP32_MIN = np.finfo(np.float32).min


# tensor_copy: bit for bit between equal dtypes, else through float32.


def _copied(x, env):
    if env.dtypes["src"] == env.dtypes["dst"]:
        return {"dst": Result(x["src"], bitwise=True)}
    return {"dst": f32(x["src"])}


def _convertible(dtypes, generation):
    packed = [dtype for dtype in (dtypes["src"], dtypes["dst"]) if kind(dtype) == "packed"]
    return not packed or dtypes["src"] == dtypes["dst"]


def _buffers(engine):
    return S if engine is E.gpsimd else ("sbuf", "psum")


def _copy(engine, values, **settings):
    buffers = _buffers(engine)
    return Row(
        "tensor_copy",
        (
            Operand("src", ALL, values=values, buffers=buffers),
            Operand("dst", ALL, output=True, buffers=buffers),
        ),
        _copied, {"engine": engine}, engine.name, legal=_convertible, in_place=("src",), **settings,
    )  # fmt: skip


# On ScalarE the stub tells of a cast to float32 on NeuronCore-v2 only; small values do not tell.
COPIES = [
    _copy(E.unknown, bits),
    _copy(E.vector, bits),
    _copy(E.gpsimd, bits),
    _copy(E.scalar, normal, generation=3, extremes=False),
]


# memset.


def _fill(value, dtypes, engine=E.unknown):
    def reference(x, env):
        if kind(env.dtypes["dst"]) == "packed":
            return {"dst": Result(np.zeros_like(x["dst"]), bitwise=True)}
        return {"dst": np.full(x["dst"].shape, value, np.float64)}

    return Row(
        "memset", (Operand("dst", dtypes, output=True, buffers=_buffers(engine)),), reference,
        {"value": value, "engine": engine}, f"{value} {engine.name}", extremes=False,
        loose=("dst",),
    )  # fmt: skip


SIGNED = ("int8", "int16", "int32")
FILLS = [
    _fill(0, ALL),
    _fill(1, COMPUTABLE),
    _fill(100, (*FLOATS, *INTEGERS), E.vector),
    _fill(-7, (*FLOATS, *SIGNED), E.gpsimd),
    _fill(0.3, FLOATS),
    _fill(-np.inf, FLOATS, E.vector),
]


# Selections.


def _reversed_if(reverse, predicate):
    chosen = predicate != 0
    return ~chosen if reverse else chosen


def _predicated(source, reverse):
    def reference(x, env):
        chosen = _reversed_if(reverse, x["predicate"])
        if source is None:
            taken = x["src"]
        else:
            taken = np.broadcast_to(converted(source, env.dtypes["dst"]), x["dst"].shape)
        return {"dst": Result(np.where(chosen, taken, x["dst"]), True, chosen)}

    options = {"reverse_pred": reverse}
    operands = [
        Operand("predicate", ("uint8", "uint16", "uint32"), values=_half_zero),
        Operand("dst", COMPUTABLE, output=True),
    ]
    same = ()
    if source is None:
        operands.append(Operand("src", COMPUTABLE, values=bits))
        same = (("src", "dst"),)
    else:
        options["src"] = source
    return Row(
        "tensor_copy_predicated", tuple(operands), reference, options,
        f"{'tile' if source is None else source}{' reversed' if reverse else ''}", same=same,
        places_legal=lambda b: b["predicate"] != "psum" or b.get("src") != "psum",
        legal=lambda dtypes, generation: source is None or _holds(dtypes["dst"], source),
        in_place=("src",) if source is None else (),
    )  # fmt: skip


def _holds(dtype, number):
    """Whether a number is a value of the dtype: an integer of an integer dtype, 0 or 1 of bool."""
    if dtype in FLOATS:
        return True
    if number != int(number):
        return False
    return dtype in SIGNED or number == 1 or (dtype != "bool" and number >= 0)


def _half_zero(generator, dtype, shape):
    return normal(generator, dtype, shape) * (generator.random(shape) < 0.5).astype("int8").astype(
        normal(generator, dtype, (1,)).dtype
    )


def _select(reverse, other, command, fold):
    """select_reduce; ``other`` is a number or None for a column."""

    def reference(x, env):
        chosen = _reversed_if(reverse, x["predicate"])
        values = np.where(chosen, f32(x["on_true"]), f32(x.get("on_false", other)))
        found = {"dst": values}
        if fold:
            found["reduce_res"] = values.max(axis=1, keepdims=True)
        return found

    operands = [
        Operand("predicate", ("int8", "uint8", "int16", "uint16"), values=_half_zero),
        Operand(
            "on_true", tuple(d for d in COMPUTABLE if d not in ("tfloat32", "int32", "uint32"))
        ),
        Operand("dst", output=True),
    ]
    options = {"reverse_pred": reverse, "reduce_cmd": command}
    if other is None:
        operands.append(Operand("on_false", shape=lambda p, w: (p, 1)))
    else:
        options["on_false"] = other
    if fold:
        operands.append(Operand("reduce_res", FLOATS, output=True, shape=lambda p, w: (p, 1)))
    return Row(
        "select_reduce", tuple(operands), reference, options,
        f"{'reversed ' if reverse else ''}{'column' if other is None else other} {command.name}",
        places_legal=lambda b: not b["predicate"] == b["on_true"] == "psum",
        in_place=("on_true",), extremes=not fold,
    )  # fmt: skip


COMPARE = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip


def _range(first, second, start, fold):
    def reference(x, env):
        index = np.float32(start) + np.arange(x["on_true_tile"].shape[1], dtype=np.float32)
        inside = COMPARE[first](index, x["bound0"]) & COMPARE[second](index, x["bound1"])
        values = np.where(inside, f32(x["on_true_tile"]), FP32_MIN)
        found = {"dst": values}
        if fold:
            found["reduce_res"] = values.max(axis=1, keepdims=True)
        return found

    def bounds(generator, dtype, shape):
        return (start + generator.integers(0, 24, shape)).astype(np.float32)

    column = {"shape": lambda p, w: (p, 1), "values": bounds, "extremes": bounds}
    operands = (
        Operand("on_true_tile", FLOATS),
        Operand("bound0", ("float32",), **column),
        Operand("bound1", ("float32",), **column),
        # A float8 type without infinity cannot hold the fill of the numerical note.
        Operand("dst", tuple(d for d in COMPUTABLE if d not in ("float8_e4m3fn", "float8_e8m0fnu")),
                output=True),
        *((Operand("reduce_res", output=True, shape=lambda p, w: (p, 1)),) if fold else ()),
    )  # fmt: skip
    return Row(
        "range_select", operands, reference,
        {"comp_op0": getattr(nl, first), "comp_op1": getattr(nl, second), "range_start": start},
        f"{first} {second} from {start}", in_place=("on_true_tile",), generation=3,
        extremes=not fold,
    )  # fmt: skip


SELECTIONS = [
    _predicated(None, False), _predicated(None, True), _predicated(1, False),
    _predicated(-2, True), _predicated(0.5, False),
    _select(False, 0.0, CMD.idle, False), _select(True, -1.5, CMD.idle, False),
    _select(False, None, CMD.idle, False), _select(True, None, CMD.reset_reduce, True),
    _select(False, FP32_MIN, CMD.reset_reduce, True),
    _range("greater_equal", "less", 0, False), _range("greater", "less_equal", 5, True),
    _range("equal", "greater_equal", -3, True), _range("less", "less", 1000, False),
]  # fmt: skip


# Patterns of GpSimd.


def _affine(partitions, pattern, offset, multiplier):
    """offset + partition * multiplier + the pattern, [partitions, elements], exact integers."""
    values = np.zeros(1, np.int64)
    for step, count in pattern:
        values = (values[:, None] + step * np.arange(count)).reshape(-1)
    return offset + multiplier * np.arange(partitions)[:, None] + values[None, :]


PATTERNS = {
    "ramp": lambda w: [[1, w]],
    "2-D": lambda w: [[100, w // 4], [-3, 4]],
    "3-D": lambda w: [[7, 2], [0, w // 4], [11, 2]],
    "4-D": lambda w: [[-50, 2], [9, w // 8], [1, 2], [200, 2]],
}


def _generated(values, dtype):
    """32-bit integers cast to a dtype; narrower integers saturate, as every cast does."""
    if kind(dtype) == "float":
        return values.astype(np.float32)
    if dtype == "bool":
        return Result(values != 0, True)
    limits = np.iinfo(dtype)
    return Result(np.clip(values, limits.min, limits.max).astype(dtype), True)


def _iota(name, offset, multiplier):
    return Row(
        "iota", (Operand("dst", output=True, buffers=S),),
        lambda x, env: {
            "dst": _generated(
                _affine(env.partitions, PATTERNS[name](env.width), offset, multiplier),
                env.dtypes["dst"],
            )
        },
        lambda env: {
            "pattern": PATTERNS[name](env.width), "offset": offset, "channel_multiplier": multiplier
        },
        f"{name} {offset} {multiplier}", extremes=False, loose=("dst",),
    )  # fmt: skip


def _affine_select(name, compare, offset, multiplier, other):
    def reference(x, env):
        affine = _affine(env.partitions, PATTERNS[name](env.width), offset, multiplier)
        chosen = COMPARE[compare](affine, 0)
        if env.dtypes["dst"] == env.dtypes["on_true_tile"]:
            filler = converted(other, env.dtypes["dst"])
            return {"dst": Result(np.where(chosen, x["on_true_tile"], filler), True)}
        return {"dst": np.where(chosen, f32(x["on_true_tile"]), np.float32(other))}

    return Row(
        "affine_select", (
            Operand("on_true_tile", buffers=S, values=bits, extremes=finite),
            Operand("dst", output=True, buffers=S),
        ), reference,
        lambda env: {
            "pattern": PATTERNS[name](env.width), "offset": offset,
            "channel_multiplier": multiplier, "on_false_value": other,
            "cmp_op": getattr(nl, compare),
        },
        f"{name} {compare}", in_place=("on_true_tile",),
    )  # fmt: skip


GENERATED = [
    _iota("ramp", 0, 0), _iota("ramp", -300, 5), _iota("2-D", 7, -1), _iota("3-D", 2**24 + 1, 1),
    _iota("4-D", 0, 1000), _affine_select("ramp", "greater_equal", 0, -1, -9984.0),
    _affine_select("2-D", "equal", 3, 1, 0.0), _affine_select("3-D", "less", -12, 1, 1.5),
    _affine_select("4-D", "not_equal", 0, 0, -np.inf), _affine_select("ramp", "greater", 5, 1, 3.0),
    _affine_select("2-D", "less_equal", 9, -2, FP32_MIN),
]  # fmt: skip


# nc_stream_shuffle.


def _shuffle(label, mask, partitions):
    def reference(x, env):
        expected = np.array(raw(x["dst"]))
        written = np.zeros(x["dst"].shape, np.bool_)
        for row in range(len(expected)):
            source = mask[row % 32]
            if source != 255:
                expected[row] = raw(x["src"])[row - row % 32 + source]
                written[row] = True
        return {"dst": Result(expected.view(x["dst"].dtype), True, written)}

    return Row(
        "nc_stream_shuffle", (
            Operand("src", values=bits, layouts=SOLID),
            Operand("dst", output=True),
        ), reference, {"shuffle_mask": mask}, label, same=(("src", "dst"),), in_place=("src",),
        partitions=partitions, loose=("src", "dst"),
    )  # fmt: skip


SHUFFLES = [
    _shuffle("broadcast", [0] * 32, (32, 64, 96, 128, 33)),
    _shuffle("reversed", list(range(31, -1, -1)), (32, 64, 96, 128)),
    _shuffle("some kept", [255 if i % 3 else (i + 5) % 32 for i in range(32)], (32, 128)),
    _shuffle("within seven", [i % 7 for i in range(32)], (7, 39, 103)),
]

ROWS = [*COPIES, *FILLS, *SELECTIONS, *GENERATED, *SHUFFLES]
