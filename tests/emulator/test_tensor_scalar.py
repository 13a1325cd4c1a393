"""tensor_scalar: operators, operands, engines and bit patterns, and the rules."""

from .numeric import DTYPES, INTEGERS, converted, f32
from .support import (
    FLOATS,
    NUMPY,
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    refused,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
VECTOR, SCALAR, GPSIMD = nisa.engine.vector, nisa.engine.scalar, nisa.engine.gpsimd
F, I8 = "float32", "int8"

ARITHMETIC = (
    "add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal", "greater",
    "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor", "power",
)  # fmt: skip
BITVEC = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")


def output(shape, dtype, buffer=S):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["number", "column", "psum"])
@pytest.mark.parametrize("reverse", [(False, False), (True, True)])
def test_tensor_scalar_two_steps(dtype, kind, reverse):
    def kernel(x, a, b):
        first, second = load(a), load(b)
        if kind == "psum":
            first = output(a.shape, nl.float32, P)
            nisa.tensor_copy(first, load(a))
        dst = output(x.shape, x.dtype)
        nisa.tensor_scalar(
            dst=dst, data=load(x), op0=nl.subtract, operand0=3.25 if kind == "number" else first,
            reverse0=reverse[0], op1=nl.multiply, operand1=0.5 if kind == "number" else second,
            reverse1=reverse[1],
        )  # fmt: skip
        return save(dst)

    x, a, b = values((100, 3, 7), dtype), values((100, 1), seed=1), values((100, 1), seed=2)
    first, second = (3.25, 0.5) if kind == "number" else (a[:, :, None], b[:, :, None])
    step = np.subtract(first, f32(x)) if reverse[0] else np.subtract(f32(x), first)
    expected = rounded(np.float32(1) * step * np.float32(1) * second, dtype)
    same_bits(simulate(kernel)(x, a, b), expected)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_tensor_scalar_operators(name):
    def kernel(x):
        dst = output(x.shape, nl.float32)
        nisa.tensor_scalar(dst, load(x), getattr(nl, name), 0.5)
        return save(dst)

    x = np.abs(values((10, 20)))
    x[:, 0] = 0.5
    same_bits(simulate(kernel)(x), f32(getattr(np, name)(x, np.float32(0.5))))


@pytest.mark.parametrize(
    "name, function, target",
    [
        ("abs", np.abs, "trn2"), ("reciprocal", np.reciprocal, "trn2"),
        ("square", np.square, "trn3"), ("relu", lambda x: np.maximum(x, 0), "trn3"),
        ("rsqrt", lambda x: 1 / np.sqrt(x), "trn2"),
    ],
)  # fmt: skip
def test_tensor_scalar_unary(on_target, name, function, target):
    on_target(target)

    def kernel(x, operand):
        dst = output(x.shape, nl.float32)
        nisa.tensor_scalar(dst, load(x), getattr(nl, name), operand)  # rule
        return save(dst)

    x = np.abs(values((10, 20))) if name == "rsqrt" else values((10, 20))
    same_bits(simulate(kernel)(x, None), f32(function(x)))
    pair("operand-unused", kernel, (x, 0), (x, 1.0))


def test_tensor_scalar_of_integers_computes_in_float32():
    def kernel(x):
        dst = output(x.shape, x.dtype)
        nisa.tensor_scalar(dst, load(x), nl.multiply, 0.5)
        return save(dst)

    x = np.array([[1, 3, 5, 2**24 + 1]], np.int32)
    np.testing.assert_array_equal(simulate(kernel)(x), [[0, 2, 2, 2**23]])


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_tensor_scalar_bits(dtype):
    def kernel(x):
        dst = output(x.shape, x.dtype)
        nisa.tensor_scalar(dst, load(x), nl.bitwise_and, 0x0F, op1=nl.left_shift, operand1=2)
        other = output(x.shape, x.dtype)
        nisa.tensor_scalar(other, load(x), nl.invert, 0)
        third = output(x.shape, x.dtype)
        nisa.tensor_scalar(third, load(x), nl.right_shift, 0x40, reverse0=True)
        return save(dst), save(other), save(third)

    x = np.arange(12, dtype=NUMPY[dtype]).reshape(3, 4)
    masked, inverted, shifted = simulate(kernel)(x)
    np.testing.assert_array_equal(masked, (x & 15) << 2)
    same_bits(inverted, ~x)
    np.testing.assert_array_equal(shifted, 0x40 >> x)


def scaled(
    data=((8, 6), F, S), dst=((8, 6), F, S), op0=nl.multiply, operand0=2.0, op1=None,
    operand1=None, column=None, **options,
):  # fmt: skip
    made = tile(*dst)
    if column is not None:
        operand0 = tile(*column)
    source = tile(*data)
    nisa.tensor_scalar(made, source, op0, operand0, op1=op1, operand1=operand1, **options)  # rule


BOOL = ((8, 6), "bool", S)
INT = {"data": ((8, 6), I8, S), "dst": ((8, 6), I8, S)}
TENSOR_SCALAR_RULES = [
    ("operand-dtype", {"column": ((8, 1), F, S)}, {"column": ((8, 1), "bfloat16", S)}),
    ("vector-operand", {"column": ((8, 1), F, P)}, {"column": ((8, 6), F, S)}),
    ("partition-count", {"column": ((8, 1), F, S)}, {"column": ((4, 1), F, S)}),
    ("operand-type", {"operand0": 2}, {"operand0": None}),
    ("operand-type", {"operand0": np.float32(2)}, {"operand0": True}),
    ("operand-type", {"operand0": 2}, {"operand0": "2"}),
    ("operand-unused", {"op1": nl.add, "operand1": 1.0}, {"operand1": 1.0}),
    ("reverse", {"op0": nl.abs, "operand0": None},
     {"op0": nl.abs, "operand0": None, "reverse0": True}),
    ("operator-mix", {"op1": nl.add, "operand1": 1.0},
     {"op1": nl.bitwise_and, "operand1": 1}),
    ("integer-dtype", {**INT, "op0": nl.bitwise_and, "operand0": 1},
     {"op0": nl.bitwise_and, "operand0": 1}),
    ("operand-type", {**INT, "op0": nl.bitwise_and, "operand0": 1},
     {**INT, "op0": nl.bitwise_and, "operand0": 1.0}),
    ("operand-unused", {**INT, "op0": nl.invert, "operand0": None},
     {**INT, "op0": nl.invert, "operand0": 1}),
    ("integer-dtype", {**INT, "op0": nl.bitwise_or, "operand0": 1},
     {"data": BOOL, "dst": BOOL, "op0": nl.bitwise_or, "operand0": 1}),
    ("bitvec-width", {**INT, "op0": nl.bitwise_or, "column": ((8, 1), "uint8", P)},
     {**INT, "op0": nl.bitwise_or, "column": ((8, 1), "int16", S)}),
    ("integer-dtype", {}, {**INT, "op0": nl.bitwise_or, "column": ((8, 1), F, S)}),
    ("vector-operand", {}, {**INT, "op0": nl.bitwise_or, "column": ((8, 2), I8, S)}),
    ("bitvec-range", {**INT, "op0": nl.bitwise_or, "operand0": 255},
     {**INT, "op0": nl.bitwise_or, "operand0": 256}),
    ("bitvec-range", {**INT, "op0": nl.bitwise_or, "operand0": -128},
     {**INT, "op0": nl.bitwise_or, "operand0": -129}),
    ("operand-unused", {}, {**INT, "op0": nl.invert, "column": ((8, 1), I8, S)}),
    ("reverse", {**INT, "op0": nl.invert, "operand0": None},
     {**INT, "op0": nl.invert, "operand0": None, "reverse0": True}),
    ("reverse", {"op1": nl.add, "operand1": 1.0, "reverse1": True}, {"reverse1": True}),
    ("operator-engine", {**INT, "op0": nl.bitwise_or, "operand0": 1, "engine": VECTOR},
     {**INT, "op0": nl.bitwise_or, "operand0": 1, "engine": GPSIMD}),
    ("operator-target", {"op0": nl.abs, "operand0": 0}, {"op0": nl.square, "operand0": 0}),
    ("operator-engine", {"engine": SCALAR}, {"engine": SCALAR, "op0": nl.subtract}),
    ("operator-engine", {"engine": SCALAR, "op1": nl.add, "operand1": 1.0},
     {"engine": SCALAR, "op0": nl.add, "op1": nl.multiply, "operand1": 1.0}),
    ("operator-engine", {"engine": GPSIMD, "op0": nl.rsqrt, "operand0": 0}, {"engine": GPSIMD}),
    ("operator-engine", {"engine": GPSIMD, "op0": nl.rsqrt, "operand0": 0},
     {"engine": VECTOR, "op0": nl.rsqrt, "operand0": 0}),
    ("gpsimd-psum", {"op0": nl.rsqrt, "operand0": 0},
     {"op0": nl.rsqrt, "operand0": 0, "data": ((8, 6), F, P)}),
    ("gpsimd-psum", {"column": ((8, 1), F, S), "op1": nl.rsqrt},
     {"column": ((8, 1), F, P), "op1": nl.rsqrt}),
    ("free-size", {"dst": ((8, 2, 3), F, S)}, {"dst": ((8, 7), F, S)}),
    ("packed-dtype", {}, {"dst": ((8, 6), "float8_e5m2_x4", S)}),
    ("enum", {"engine": VECTOR}, {"engine": nisa.engine.tensor}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", TENSOR_SCALAR_RULES)
def test_tensor_scalar_rules(rule, good, bad):
    pair(rule, lambda change: scaled(**change), (good,), (bad,))


def test_gen4_scalar_engine_runs_any_arithmetic(on_target):
    on_target("trn3")
    simulate(lambda: scaled(engine=SCALAR, op0=nl.subtract))()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_tensor_scalar_dtypes(dtype, out):
    def kernel(x):
        dst = output(x.shape, out, P)
        nisa.tensor_scalar(dst, load(x), nl.multiply, 0.3, op1=nl.add, operand1=0.5)
        return save(dst)

    x = values((7, 2, 3), dtype)
    expected = f32(x) * np.float32(0.3) + np.float32(0.5)
    same_bits(simulate(kernel)(x), converted(expected, out))


def test_tensor_scalar_in_place_strided_and_repeated():
    def kernel(x, column):
        t = load(x)
        nisa.tensor_scalar(t[:, 1::2], t[:, 1::2], nl.add, t[:, 0:1])
        nisa.tensor_scalar(t[:, 0::2], load(column).broadcast(1, 5), nl.multiply, 2.0)
        return save(t)

    x, column = values((9, 10)), values((9, 1), seed=1)
    expected = x.copy()
    expected[:, 1::2] += x[:, 0:1]
    expected[:, 0::2] = 2 * column
    same_bits(simulate(kernel)(x, column), expected)


def test_tensor_scalar_of_overlapping_views():
    """The whole input is read before the result is there."""

    def kernel(x):
        t = load(x)
        nisa.tensor_scalar(t[:, 1:8], t[:, 0:7], nl.add, 1.0)
        return save(t)

    x = values((9, 8))
    same_bits(simulate(kernel)(x), np.concatenate([x[:, :1], x[:, :7] + 1], axis=1))


@pytest.mark.parametrize("name", BITVEC)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("buffer", [None, S, P])
def test_bit_operators_with_numbers_and_columns(name, dtype, reverse, buffer):
    def kernel(x, column):
        operand = 3
        if buffer is not None:
            operand = output(column.shape, column.dtype, buffer)
            nisa.tensor_copy(operand, load(column))
        dst = output(x.shape, x.dtype)
        nisa.tensor_scalar(dst, load(x), getattr(nl, name), operand, reverse0=reverse)
        return save(dst)

    x = values((7, 2, 3), dtype)
    column = values((7, 1), dtype, 1)
    if "shift" in name:
        # Shifts by less than the width; what more does is not documented.
        x, column = (x % 8, column) if reverse else (x, column % 8)
    unsigned = f"uint{8 * x.itemsize}"
    left, right = x.view(unsigned), column.view(unsigned)[:, :, None]
    if buffer is None:
        right = np.full((1, 1, 1), 3, unsigned)
    operator = getattr(np, name)
    expected = operator(right, left) if reverse else operator(left, right)
    same_bits(simulate(kernel)(x, column), expected.view(x.dtype))


def test_two_bit_operators_with_columns_in_place():
    def kernel(x, first, second):
        t = load(x)
        nisa.tensor_scalar(
            t[:, ::2], t[:, ::2], nl.bitwise_and, load(first), op1=nl.bitwise_xor,
            operand1=load(second),
        )  # fmt: skip
        return save(t)

    x, first, second = (values((7, n), "int16", n) for n in (6, 1, 1))
    second = second + 1
    expected = x.copy()
    expected[:, ::2] = (x[:, ::2] & first) ^ second
    same_bits(simulate(kernel)(x, first, second), expected)


def test_gen4_scalar_engine_takes_no_bits(on_target):
    on_target("trn3")
    refused("operator-engine", lambda: scaled(**INT, engine=SCALAR, op0=nl.bitwise_and, operand0=1))
