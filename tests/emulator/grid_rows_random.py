"""Rows of the grid: random numbers.

The numbers are not documented. A row checks what is: a probability of 0 or 1, an interval, that
one seed gives one sequence, that a state which was set is read back.
"""

import numpy as np

from .grid import Operand, Result, Row
from .grid_layouts import FLAT, SOLID
from .grid_values import FLOATS, INTEGERS, NUMPY, bits, converted, f32, kind, raw
from .support import nisa, nl

S = ("sbuf",)
FROM_0 = tuple(one for one in SOLID if one.start == 0)  # A lane is a partition.
E = nisa.engine
# float8_e8m0fnu has no zero.
DROPPED = (*(one for one in FLOATS if one != "float8_e8m0fnu"), *INTEGERS, "bool")


def _constant(value):
    return lambda generator, dtype, shape: np.full(shape, value).astype(NUMPY[dtype])


def _column(role, **settings):
    return Operand(role, shape=lambda p, w: (p, 1), **settings)


def _dropout(probability, column):
    def reference(x, env):
        zeros = np.zeros(x["data"].shape, x["data"].dtype)
        return {"dst": Result(x["data"] if probability == 0 else zeros, True)}

    operands = [
        Operand("data", DROPPED, values=bits, extremes=bits),
        Operand("dst", DROPPED, output=True),
    ]
    options = {}
    if column:
        content = _constant(probability)
        floats = tuple(one for one in DROPPED if kind(one) == "float")
        operands.append(_column("prob", dtypes=floats, values=content, extremes=content))
    else:
        options["prob"] = probability
    return Row(
        "dropout", tuple(operands), reference, options,
        f"{probability} {'column' if column else 'number'}", same=(("data", "dst"),),
        in_place=("data",),
        legal=lambda d, generation: kind(d["data"]) == "float"
        or d.get("prob", "float32") == "float32",
    )  # fmt: skip


def _state(engine, words):
    """rand_set_state followed by rand_get_state gives the state back."""

    def call(views, options):
        nisa.rand_set_state(views["src_seeds"], engine=engine)
        nisa.rand_get_state(views["dst"], engine=engine)

    flat = {"shape": lambda p, w: (p, words), "layouts": FLAT}
    return Row(
        "rand_get_state", (
            Operand("src_seeds", ("uint32",), values=bits, extremes=bits, buffers=S, **flat),
            Operand("dst", ("uint32",), output=True, **flat,
                    buffers=S if engine is E.gpsimd else ("sbuf", "psum")),
        ), lambda x, env: {"dst": Result(x["src_seeds"], True)}, {}, engine.name, call=call,
        generation=3 if engine is E.gpsimd else 4, loose=("src_seeds", "dst"),
        layouts_legal=lambda places: len({one.start for one in places.values()}) == 1,
        also=("rand_set_state",),
    )  # fmt: skip


def _varied(found):
    """Not one value everywhere: of 24 random elements at least a third differ."""
    return len(np.unique(raw(found))) >= 8


def _rng(engine):
    """Random bits; their distribution is in test_random.py."""
    buffers = S if engine is E.gpsimd else ("sbuf", "psum")
    return Row(
        "rng", (Operand("dst", INTEGERS, output=True, buffers=buffers),),
        lambda x, env: {"dst": Result(None, holds=_varied)}, {"engine": engine}, engine.name,
        extremes=False, loose=("dst",), generation=3 if engine is E.gpsimd else 2,
    )  # fmt: skip


def _seed():
    """One seed, one sequence: the same numbers in another tile before."""
    kept = {}

    def call(views, options):
        dst = views["dst"]
        first = nl.ndarray((dst.shape[0], dst.size // dst.shape[0]), dtype=dst.dtype)
        for tile in (first, dst):
            nisa.set_rng_seed(views["src_seeds"])
            nisa.rng(tile)
        kept["first"] = first.array.copy()

    def same(found):
        return np.array_equal(found, kept["first"]) and _varied(found)

    return Row(
        "set_rng_seed", (
            Operand("src_seeds", ("uint32", "int32", "float32", "tfloat32"), values=bits,
                    extremes=bits, shape=lambda p, w: (1, 1), layouts=FLAT),
            Operand("dst", INTEGERS, output=True, layouts=FROM_0),
        ), lambda x, env: {"dst": Result(None, holds=same)}, {}, call=call, extremes=False,
        loose=("src_seeds", "dst"),
    )  # fmt: skip


def _uniform(low, high):
    """Numbers from min to max, rounded to the dtype of dst; bounds are numbers or "column"."""

    def reference(x, env):
        dtype = env.dtypes["dst"]
        least = f32(converted(x.get("min", low), dtype))
        most = f32(converted(x.get("max", high), dtype))

        def holds(found):
            wide = f32(found)
            return bool(((least <= wide) & (wide <= most)).all()) and len(np.unique(wide)) > 1

        return {"dst": Result(None, holds=holds)}

    operands = [
        Operand("dst", ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32",
                        *INTEGERS), output=True),
    ]  # fmt: skip
    options = {}
    for role, value, content in (("min", low, (1, 2)), ("max", high, (40, 100))):
        if value == "column":
            operands.append(_column(role, dtypes=("float32",), values=_between(*content)))
        else:
            options[role] = value
    return Row(
        "rand2", tuple(operands), reference, options, f"{low} to {high}", generation=4,
        extremes=False, loose=("dst",),
    )  # fmt: skip


def _between(low, high):
    return lambda generator, dtype, shape: (
        low + (high - low) * generator.random(shape)
    ).astype(np.float32 if dtype == "tfloat32" else NUMPY[dtype])  # fmt: skip


ROWS = [
    _dropout(0.0, False), _dropout(1.0, False), _dropout(0.0, True), _dropout(1.0, True),
    _state(E.gpsimd, 6), _state(E.vector, 24), _rng(E.vector), _rng(E.gpsimd), _seed(),
    _uniform(0.0, 100.0), _uniform("column", "column"), _uniform(-3, "column"),
]  # fmt: skip
