"""activate2 (gen4): operator pairs, functions, prelu, reductions, and the rules."""

from nki_emulator import NkiWarning

from .numeric import DTYPES, converted, f32
from .support import (
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    refused,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
F = "float32"
CMD = nisa.reduce_cmd
NONE = (0.0, 0.0, nl.bypass, nl.bypass)


@pytest.fixture(autouse=True)
def gen4(on_target):
    on_target("trn3")


def activated(x, op, imm0, imm1, op0, op1, out=nl.float32, **options):
    dst = nl.ndarray(x.shape, dtype=out)
    nisa.activate2(dst, op, load(x), imm0, imm1, op0, op1, **options)
    return save(dst)


FUNCTIONS = {"multiply": np.multiply, "add": np.add, "subtract": np.subtract}
COMBINATIONS = [
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"),
    ("subtract", "bypass"), ("bypass", "bypass"),
]  # fmt: skip
REVERSIBLE = [
    (pair_, r0, r1)
    for pair_ in COMBINATIONS
    for r0 in (False, True)
    for r1 in (False, True)
    if not (r0 and pair_[0] == "bypass") and not (r1 and pair_[1] == "bypass")
]


@pytest.mark.parametrize("names, reverse0, reverse1", REVERSIBLE)
@pytest.mark.parametrize("kind", ["number", "column", "psum"])
def test_operator_pairs(names, reverse0, reverse1, kind):
    def kernel(x, a, b):
        first, second = 1.25, -0.75
        if kind != "number":
            first, second = load(a), load(b)
        if kind == "psum":
            first = nl.ndarray(a.shape, dtype=F, buffer=P)
            nisa.tensor_copy(first, load(a))
        ops = (getattr(nl, name) for name in names)
        return activated(x, nl.copy, first, second, *ops, reverse0=reverse0, reverse1=reverse1)

    x, a, b = values((9, 2, 3)), values((9, 1), seed=1), values((9, 1), seed=2)
    first, second = np.float32(1.25), np.float32(-0.75)
    if kind != "number":
        first, second = a[:, :, None], b[:, :, None]
    expected = x
    for name, operand, reverse in zip(names, (first, second), (reverse0, reverse1)):
        if name != "bypass":
            operands = (operand, expected) if reverse else (expected, operand)
            expected = FUNCTIONS[name](*operands)
    same_bits(simulate(kernel)(x, a, b), expected)


@pytest.mark.parametrize("name", ["square", "relu", "abs", "exp", "tanh", "sign", "sqrt"])
def test_functions(name):
    x = np.abs(values((128, 9)))
    function = {"relu": lambda v: np.maximum(v, 0)}.get(name) or getattr(np, name)
    got = simulate(lambda x: activated(x, getattr(nl, name), 0.5, 0.25, nl.multiply, nl.add))(x)
    expected = function(x * np.float32(0.5) + np.float32(0.25))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("slope", [0.0, 0.25, -2.0, "float32", "bfloat16"])
def test_prelu(slope):
    def kernel(x, s):
        parameter = load(s, dtype=slope) if isinstance(slope, str) else slope
        return activated(x, nl.prelu, *NONE, relu_param=parameter)

    x, s = values((9, 2, 3)), values((9, 1), "bfloat16", 1)
    factor = f32(s)[:, :, None] if isinstance(slope, str) else np.float32(slope)
    np.testing.assert_array_equal(
        simulate(kernel)(x, s.astype(np.float32)), np.where(x > 0, x, factor * x)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_dtypes(dtype, out):
    x = values((7, 6), dtype)
    got = simulate(lambda x: activated(x, nl.square, 0.3, 0.5, nl.multiply, nl.subtract, out))(x)
    wide = f32(x) * np.float32(0.3) - np.float32(0.5)
    same_bits(got, converted(wide * wide, out))


def test_in_place_strided_and_repeated():
    def kernel(x, column):
        t = load(x)
        nisa.activate2(t[:, ::2], nl.relu, t[:, ::2], 1.0, 0.0, nl.add, nl.bypass)
        nisa.activate2(t[:, 1::2], nl.copy, load(column).broadcast(1, 3), *NONE)
        return save(t)

    x, column = values((9, 6)), values((9, 1), seed=1)
    expected = np.repeat(column, 6, axis=1)
    expected[:, ::2] = np.maximum(x[:, ::2] + 1, 0)
    same_bits(simulate(kernel)(x, column), expected)


# Reductions.


def by_magnitude(better):
    """abs_max and abs_min of the language reference: on a tie the later value."""

    def reduce(row):
        held = row[0]
        for value in row[1:]:
            held = held if better(abs(held), abs(value)) else value
        return held

    return lambda rows: np.array([reduce(row) for row in rows], np.float32)


REDUCTIONS = {
    "add": lambda rows: rows.sum(1), "maximum": lambda rows: rows.max(1),
    "minimum": lambda rows: rows.min(1), "abs_max": by_magnitude(lambda a, b: a > b),
    "abs_min": by_magnitude(lambda a, b: a < b),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("commands", [
    (CMD.reset_reduce,), (CMD.reset, CMD.reduce), (CMD.reset_reduce, CMD.reduce),
    (CMD.reduce, CMD.reset_reduce, CMD.idle),
])  # fmt: skip
def test_reductions(name, commands):
    def kernel(x):
        data, total = load(x), nl.ndarray((16, 1), dtype=nl.float32)
        op = getattr(nl, name)
        first = data[:, :, 0]
        nisa.activate2(tile((16, 6)), nl.copy, first, *NONE, reduce_op=op, reduce_cmd=CMD.reset)
        for index, command in enumerate(commands):
            last = index == len(commands) - 1
            nisa.activate2(
                tile((16, 6)), nl.copy, data[:, :, index], *NONE, reduce_op=op,
                reduce_res=total if last else None, reduce_cmd=command,
            )  # fmt: skip
        return save(total)

    x = values((16, 6, 3), "int8", low=-9, high=9).astype(np.float32)
    taken = []
    for index, command in enumerate(commands):
        if command in (CMD.reset, CMD.reset_reduce):
            taken = []
        if command in (CMD.reduce, CMD.reset_reduce):
            taken.append(x[:, :, index])
    expected = REDUCTIONS[name](np.concatenate(taken, axis=1))
    np.testing.assert_array_equal(simulate(kernel)(x)[:, 0], expected)


@pytest.mark.parametrize("name, empty", [("add", 0), ("maximum", -np.inf), ("minimum", np.inf)])
def test_reset_leaves_the_identity(name, empty):
    def kernel():
        total = tile((8, 1))
        nisa.activate2(
            tile((8, 2)), nl.copy, tile((8, 2)), *NONE, reduce_op=getattr(nl, name),
            reduce_res=total, reduce_cmd=CMD.reset,
        )  # fmt: skip
        return save(total)

    assert (simulate(kernel)() == empty).all()


def test_the_reduction_precedes_rounding_and_may_lie_within_dst():
    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=nl.bfloat16)
        nisa.activate2(
            dst, nl.copy, load(x), *NONE, reduce_op=nl.maximum, reduce_res=dst[:, 0:1],
            reduce_cmd=CMD.reset_reduce,
        )  # fmt: skip
        return save(dst)

    x = values((8, 6))
    expected = x.copy()
    expected[:, 0] = x.max(1)
    same_bits(simulate(kernel)(x), converted(expected, "bfloat16"))


# Rules.


def act(
    dst=((8, 6), F, S), op=nl.gelu, data=((8, 6), F, S), imm0=1.0, imm1=0.0, op0=nl.multiply,
    op1=nl.add, reduce_res=None, **options,
):  # fmt: skip
    imm0, imm1, reduce_res = (
        tile(*v) if isinstance(v, tuple) else v for v in (imm0, imm1, reduce_res)
    )
    made, source = tile(*dst), tile(*data)
    nisa.activate2(made, op, source, imm0, imm1, op0, op1, reduce_res=reduce_res, **options)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("activate2-operators", {"op0": nl.add, "op1": nl.bypass},
         {"op0": nl.add, "op1": nl.multiply}),
        ("activate2-operators", {"op0": nl.bypass, "op1": nl.bypass},
         {"op0": nl.bypass, "op1": nl.add}),
        ("activate2-operators", {}, {"op0": None, "op1": None}),
        ("activate2-operators", {}, {"op0": nl.maximum, "op1": nl.bypass}),
        ("reverse", {"reverse0": True}, {"op0": nl.bypass, "op1": nl.bypass, "reverse0": True}),
        ("reverse", {"reverse1": True}, {"op1": nl.bypass, "reverse1": True}),
        ("same-dtype", {"imm0": ((8, 1), "bfloat16", S), "imm1": ((8, 1), "bfloat16", S)},
         {"imm0": ((8, 1), "bfloat16", S), "imm1": ((8, 1), F, S)}),
        ("vector-operand", {"imm0": ((8, 1), F, P)}, {"imm0": ((8, 6), F, S)}),
        ("partition-count", {}, {"imm1": ((4, 1), F, S)}),
        ("operand-type", {"imm1": 1}, {"imm1": None}),
        ("operand-type", {"op": nl.prelu}, {"op": nl.prelu, "relu_param": None}),
        ("operator", {"op": nl.prelu, "relu_param": 0.5}, {"op": nl.add}),
        ("reduce-op", {"reduce_op": nl.add, "reduce_cmd": CMD.reset}, {"reduce_cmd": CMD.reset}),
        ("operator-reduce", {"reduce_op": nl.abs_min}, {"reduce_op": nl.multiply}),
        ("reduce-cmd", {}, {"reduce_op": nl.add, "reduce_cmd": CMD.load_reduce}),
        ("accumulator", {"reduce_res": ((8, 1), F, P), "reduce_op": nl.add,
                         "reduce_cmd": CMD.reset_reduce}, {"reduce_res": ((8, 1), F, S)}),
        ("vector-operand", {}, {"reduce_res": ((8, 2), F, S)}),
        ("free-size", {"dst": ((8, 3, 2), "bfloat16", P)}, {"dst": ((8, 1), F, S)}),
        ("packed-dtype", {}, {"data": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_rules(rule, good, bad):
    pair(rule, lambda change: act(**change), (good,), (bad,))


def test_needs_gen4(on_target):
    on_target("trn2")
    refused("target", act)


def test_values_outside_a_functions_range_warn():
    with pytest.warns(NkiWarning, match=r"\[activation-range\] nl\.log of -1"):
        simulate(lambda: act(op=nl.log, op0=nl.subtract, op1=nl.bypass))()
