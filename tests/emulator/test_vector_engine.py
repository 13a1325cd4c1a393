"""Vector Engine: operators, reductions and statistics against NumPy, and each operand rule."""

from nki_emulator import record

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

ARITHMETIC = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal,
    "greater": np.greater, "greater_equal": np.greater_equal, "less": np.less,
    "less_equal": np.less_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}  # fmt: skip
BITVEC = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift, "right_shift": np.right_shift,
}  # fmt: skip


def f32(array):
    return np.asarray(array).astype(np.float32)


def output(shape, dtype, buffer=S):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


# tensor_tensor.


@pytest.mark.parametrize("name", sorted(ARITHMETIC))
@pytest.mark.parametrize("dtype", FLOATS)
def test_tensor_tensor(name, dtype):
    def kernel(a, b):
        dst = output(a.shape, a.dtype)
        nisa.tensor_tensor(dst=dst, data1=load(a), data2=load(b), op=getattr(nl, name))
        return save(dst)

    a, b = values((100, 37), dtype, 1), values((100, 37), dtype, 2)
    a[:, 0] = b[:, 0]
    a[:, 1] = 0
    same_bits(simulate(kernel)(a, b), rounded(ARITHMETIC[name](f32(a), f32(b)), dtype))


def test_tensor_tensor_power_runs_on_gpsimd():
    def kernel(a, b, engine=nisa.engine.unknown, buffer=S):
        dst = output(a.shape, nl.float32, buffer)
        nisa.tensor_tensor(dst, load(a), load(b), nl.power, engine=engine)  # rule
        return save(dst)

    a, b = np.abs(values((8, 8), seed=1)), values((8, 8), seed=2)
    same_bits(simulate(kernel)(a, b), np.power(a, b))
    pair("operator-engine", kernel, (a, b, GPSIMD), (a, b, VECTOR))
    pair("gpsimd-psum", kernel, (a, b, GPSIMD, S), (a, b, GPSIMD, P))


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_int32_arithmetic_is_exact_on_gpsimd_and_float32_on_vector(dtype):
    def kernel(a, b, engine=nisa.engine.unknown, buffer=S):
        dst = output(a.shape, a.dtype, buffer)
        nisa.tensor_tensor(dst, load(a), load(b), nl.add, engine=engine)
        return save(dst)

    big = np.full((4, 4), 2**24, NUMPY[dtype])
    one = np.ones((4, 4), NUMPY[dtype])
    assert (simulate(kernel)(big, one) == 2**24 + 1).all()
    assert (simulate(kernel)(big, one, VECTOR) == 2**24).all()
    assert (simulate(kernel)(big, one, nisa.engine.unknown, P) == 2**24).all()


@pytest.mark.parametrize("name", sorted(BITVEC))
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int32"])
def test_bit_operators(name, dtype):
    def kernel(a, b):
        dst = output(a.shape, a.dtype)
        nisa.tensor_tensor(dst, load(a), load(b), getattr(nl, name))
        return save(dst)

    a, b = values((6, 9), dtype, 1), values((6, 9), dtype, 2)
    if "shift" in name:
        b = b % 8
    unsigned = f"uint{8 * a.itemsize}"
    expected = BITVEC[name](a.view(unsigned), b.view(unsigned)).view(a.dtype)
    same_bits(simulate(kernel)(a, b), expected)


def test_tensor_tensor_in_place_on_strided_and_repeated_views():
    def kernel(a, b):
        x, y = load(a), load(b)
        nisa.tensor_tensor(x[:, ::2], x[:, ::2], y.broadcast(1, 5), nl.multiply)
        nisa.tensor_tensor(x.reshape((8, 2, 5)), x.reshape((8, 2, 5)), x, nl.add)
        return save(x)

    a, b = values((8, 10), seed=1), values((8, 1), seed=2)
    expected = a.copy()
    expected[:, ::2] *= b
    np.testing.assert_array_equal(simulate(kernel)(a, b), expected + expected)


def test_tensor_tensor_mixes_dtypes_and_buffers():
    def kernel(a, b):
        psum = output(a.shape, nl.float32, P)
        nisa.tensor_copy(psum, load(a))
        dst = output(a.shape, nl.float16)
        nisa.tensor_tensor(dst, psum, load(b), nl.subtract)
        return save(dst)

    a, b = values((8, 10), "int8", 1), values((8, 10), "bfloat16", 2)
    same_bits(simulate(kernel)(a, b), (f32(a) - f32(b)).astype(np.float16))


def two_inputs(
    dst=((8, 6), "float32", S), first=((8, 6), "float32", S), second=((8, 6), "float32", S),
    op=nl.add, **options,
):  # fmt: skip
    operands = [tile(shape, dtype, buffer) for shape, dtype, buffer in (dst, first, second)]
    nisa.tensor_tensor(*operands, op, **options)  # rule


F, I8, I16 = "float32", "int8", "int16"
TENSOR_TENSOR_RULES = [
    ("both-psum", {"first": ((8, 6), F, P)}, {"first": ((8, 6), F, P), "second": ((8, 6), F, P)}),
    ("partition-count", {"first": ((8, 3, 2), F, S)}, {"first": ((6, 8), F, S)}),
    ("free-size", {"second": ((8, 2, 3), F, S)}, {"second": ((8, 1), F, S)}),
    ("operator", {}, {"op": nl.exp}),
    ("operator", {}, {"op": np.add}),
    ("operator", {}, {"op": []}),
    ("operator-kind", {}, {"op": nl.rsqrt}),
    ("operator-kind", {}, {"op": nl.invert}),
    ("operator-target", {}, {"op": nl.abs_max}),
    ("integer-dtype", {"dst": ((8, 6), I8, S), "first": ((8, 6), I8, S),
                       "second": ((8, 6), I8, S), "op": nl.bitwise_or}, {"op": nl.bitwise_or}),
    ("bitvec-width", {"dst": ((8, 6), I8, S), "first": ((8, 6), I8, S),
                      "second": ((8, 6), "uint8", S), "op": nl.bitwise_or},
     {"dst": ((8, 6), I8, S), "first": ((8, 6), I8, S), "second": ((8, 6), I16, S),
      "op": nl.bitwise_or}),
    ("packed-dtype", {}, {"second": ((8, 6), "float8_e5m2_x4", S)}),
    ("enum", {"engine": VECTOR}, {"engine": SCALAR}),
    ("enum", {"engine": GPSIMD}, {"engine": 3}),
    ("gpsimd-psum", {"engine": GPSIMD}, {"engine": GPSIMD, "dst": ((8, 6), F, P)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", TENSOR_TENSOR_RULES)
def test_tensor_tensor_rules(rule, good, bad):
    pair(rule, lambda change: two_inputs(**change), (good,), (bad,))


def test_magnitude_operators_need_gen4_and_keep_the_sign(on_target):
    on_target("trn3")

    def kernel(a, b):
        outs = []
        for op in (nl.abs_max, nl.abs_min):
            dst = output(a.shape, nl.float32)
            nisa.tensor_tensor(dst, load(a), load(b), op)
            outs.append(save(dst))
        return tuple(outs)

    a = np.array([[-5.0, 1.0, 1.0]], np.float32)
    b = np.array([[3.0, -1.0, 2.0]], np.float32)
    largest, smallest = simulate(kernel)(a, b)
    np.testing.assert_array_equal(largest, [[-5, -1, 2]])
    np.testing.assert_array_equal(smallest, [[3, -1, 1]])


# What every compute engine asks of an operand.


def one_operand(buffer=S, first=0, count=8, height=128, dims=(4,)):
    t = nl.ndarray((height, *dims), dtype=nl.float32, buffer=buffer)
    nisa.memset(dst=t[first : first + count], value=1.0)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-on-chip", {}, {"buffer": nl.shared_hbm}),
        ("start-partition", {"first": 32, "count": 32}, {"first": 16, "count": 32}),
        ("start-partition", {"first": 96, "count": 32}, {"first": 95, "count": 32}),
        ("start-partition", {"first": 64, "count": 33}, {"first": 32, "count": 33}),
        ("start-partition", {"first": 64, "count": 64}, {"first": 63, "count": 64}),
        ("start-partition", {"first": 0, "count": 65}, {"first": 32, "count": 65}),
        ("start-partition", {"first": 32, "count": 1}, {"first": 1, "count": 1}),
    ],
)
def test_compute_operands(rule, good, bad):
    pair(rule, lambda change: one_operand(**change), (good,), (bad,))


def test_a_given_address_moves_the_start_partition():
    def kernel(address):
        t = nl.ndarray((32, 4), dtype=nl.float32, address=address)
        nisa.memset(dst=t, value=1.0)  # rule

    pair("start-partition", kernel, ((32, 0),), ((16, 0),))


def test_movement_between_quadrants_is_allowed():
    def kernel(x):
        t = nl.ndarray((128, 6), dtype=nl.float32)
        nisa.tensor_copy(dst=t[96:128], src=load(x)[32:64])
        return save(t[96:128])

    x = values((128, 6))
    np.testing.assert_array_equal(simulate(kernel)(x), x[32:64])


def test_access_patterns_have_four_free_dimensions():
    def kernel(innermost):
        t = nl.ndarray((8, 3, 3, 3, 3, 3), dtype=nl.float32)
        reversed_dims = t.permute((0, 5, 4, 3, 2, 1))
        nisa.memset(dst=reversed_dims[:, :, :, :, :, 0:innermost], value=1.0)  # rule

    pair("free-dims", kernel, 1, 2)


def test_dimensions_that_merge_count_once():
    def kernel():
        t = nl.ndarray((8, 2, 2, 2, 2, 2, 2), dtype=nl.float32)
        nisa.memset(dst=t, value=1.0)

    simulate(kernel)()


def test_operands_are_tensors():
    def kernel(source):
        nisa.tensor_copy(dst=tile((8, 4)), src=tile((8, 4)) if source is None else source)  # rule

    pair("operand-type", kernel, (None,), (1.0,))


# tensor_scalar.


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


@pytest.mark.parametrize("name", sorted(ARITHMETIC) + ["power"])
def test_tensor_scalar_operators(name):
    def kernel(x):
        dst = output(x.shape, nl.float32)
        nisa.tensor_scalar(dst, load(x), getattr(nl, name), 0.5)
        return save(dst)

    x = np.abs(values((10, 20)))
    x[:, 0] = 0.5
    operator = ARITHMETIC.get(name, np.power)
    same_bits(simulate(kernel)(x), f32(operator(x, np.float32(0.5))))


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
        nisa.tensor_scalar(
            dst, load(x), nl.bitwise_and, 0x0F, op1=nl.left_shift, operand1=2
        )
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
    ("operator-target", {"op0": nl.abs, "operand0": 0}, {"op0": nl.square, "operand0": 0}),
    ("operator-engine", {"engine": SCALAR}, {"engine": SCALAR, "op0": nl.subtract}),
    ("operator-engine", {"engine": SCALAR, "op1": nl.add, "operand1": 1.0},
     {"engine": SCALAR, "op0": nl.add, "op1": nl.multiply, "operand1": 1.0}),
    ("operator-engine", {"engine": GPSIMD, "op0": nl.rsqrt, "operand0": 0}, {"engine": GPSIMD}),
    ("operator-engine", {"engine": GPSIMD, "op0": nl.rsqrt, "operand0": 0},
     {"engine": VECTOR, "op0": nl.rsqrt, "operand0": 0}),
    ("gpsimd-psum", {"op0": nl.rsqrt, "operand0": 0},
     {"op0": nl.rsqrt, "operand0": 0, "data": ((8, 6), F, P)}),
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


def test_bit_operators_with_a_tensor_operand_say_so():
    def kernel(operand):
        scaled(**INT, op0=nl.bitwise_and, operand0=operand if operand else tile((8, 1), I8))

    pair("not-implemented", kernel, (1,), (0,))


# scalar_tensor_tensor.


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reverse", [(False, False), (True, True)])
def test_scalar_tensor_tensor(dtype, reverse):
    def kernel(x, column, y):
        dst = output(x.shape, x.dtype)
        nisa.scalar_tensor_tensor(
            dst, load(x), nl.multiply, load(column), nl.subtract, load(y), *reverse
        )
        return save(dst)

    x, y, column = values((64, 9), dtype, 1), values((64, 9), dtype, 2), values((64, 1), dtype, 3)
    step = f32(x) * f32(column)
    expected = f32(y) - step if reverse[1] else step - f32(y)
    same_bits(simulate(kernel)(x, column, y), rounded(expected, dtype))


def test_scalar_tensor_tensor_may_write_over_its_last_operand():
    def kernel(x, y):
        a, b = load(x), load(y)
        nisa.scalar_tensor_tensor(b, a, nl.multiply, 2.0, nl.add, b)
        return save(b)

    x, y = values((8, 6), seed=1), values((8, 6), seed=2)
    same_bits(simulate(kernel)(x, y), x * 2 + y)


def fused(data=((8, 6), F, S), operand1=((8, 6), F, S), op0=nl.multiply, op1=nl.add, operand0=2.0):
    nisa.scalar_tensor_tensor(  # rule
        tile((8, 6)), tile(*data), op0, operand0, op1, tile(*operand1)
    )


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("both-psum", {"data": ((8, 6), F, P)},
         {"data": ((8, 6), F, P), "operand1": ((8, 6), F, P)}),
        ("operator-kind", {}, {"op0": nl.bitwise_and}),
        ("operator-kind", {}, {"op1": nl.rsqrt}),
        ("free-size", {"operand1": ((8, 3, 2), F, S)}, {"operand1": ((8, 1), F, S)}),
        ("operand-unused", {"op0": nl.abs, "operand0": 0}, {"op0": nl.abs}),
        ("packed-dtype", {}, {"operand1": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_scalar_tensor_tensor_rules(rule, good, bad):
    pair(rule, lambda change: fused(**change), (good,), (bad,))


# tensor_reduce.


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axes", [(1, 2, 3), (2, 3), (3,)])
@pytest.mark.parametrize("negate", [False, True])
def test_tensor_reduce_sums_in_float32(dtype, axes, negate):
    def kernel(x):
        dst = output(x.shape[: axes[0]] + ((1,) if axes[0] == 1 else ()), x.dtype)
        nisa.tensor_reduce(dst, nl.add, load(x), axes, negate=negate)
        return save(dst)

    x = values((20, 3, 4, 5), dtype)
    expected = f32(x).sum(axis=axes, dtype=np.float64) * (-1 if negate else 1)
    got = simulate(kernel)(x)
    np.testing.assert_allclose(
        f32(got).reshape(expected.shape), expected, rtol=2.0**-7 if dtype != F else 1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "name, function",
    [
        ("maximum", np.max), ("minimum", np.min), ("multiply", np.prod),
        ("subtract", lambda x, axis: 2 * x[..., 0] - x.sum(axis)),
        ("logical_and", np.all), ("logical_or", np.any),
        ("logical_xor", lambda x, axis: (x != 0).sum(axis) % 2),
    ],
)  # fmt: skip
def test_tensor_reduce_operators(name, function):
    def kernel(x):
        dst = output((x.shape[0], 1), nl.float32)
        nisa.tensor_reduce(dst, getattr(nl, name), load(x), 1)
        return save(dst)

    x = values((16, 6))
    x[0:4] = 0
    x[4, 1:] = 0
    got = simulate(kernel)(x)[:, 0]
    np.testing.assert_allclose(got, function(x, axis=1), rtol=1e-5, atol=1e-6)


def test_tensor_reduce_of_a_strided_view_into_a_column_of_a_tile():
    def kernel(x):
        dst = tile((16, 3, 2))
        nisa.tensor_reduce(dst[:, :, 1], nl.max, load(x)[:, ::2, 1:4], axis=2)
        return save(dst)

    x = values((16, 6, 5))
    got = simulate(kernel)(x)
    same_bits(np.ascontiguousarray(got[:, :, 1]), x[:, ::2, 1:4].max(axis=2))
    assert (got[:, :, 0] == 0).all()


def test_tensor_reduce_of_bits():
    def kernel(x):
        dst = output((x.shape[0], 1), x.dtype)
        nisa.tensor_reduce(dst, nl.bitwise_xor, load(x), axis=[1])
        return save(dst)

    x = values((7, 9), "int32")
    same_bits(simulate(kernel)(x), np.bitwise_xor.reduce(x, axis=1, keepdims=True))


def reduced(op=nl.add, data=((8, 3, 4), F, S), dst=((8, 3), F, S), axis=(2,), **options):
    nisa.tensor_reduce(tile(*dst), op, tile(*data), axis, **options)  # rule


REDUCE_RULES = [
    ("reduce-axis", {"axis": 2}, {"axis": 1}),
    ("reduce-axis", {"axis": (1, 2), "dst": ((8, 1), F, S)}, {"axis": (0, 1, 2)}),
    ("reduce-axis", {"axis": [2]}, {"axis": (2, 2)}),
    ("reduce-axis", {"axis": [2]}, {"axis": -1}),
    ("reduce-shape", {"dst": ((8, 3, 1), F, S), "keepdims": True}, {"dst": ((8, 4), F, S)}),
    ("partition-count", {}, {"dst": ((6, 4), F, S)}),
    ("operator-reduce", {"op": nl.maximum}, {"op": nl.equal}),
    ("operator-reduce", {"op": nl.minimum}, {"op": nl.power}),
    ("reduce-negate", {"op": nl.bitwise_or, "data": ((8, 3, 4), I8, S), "dst": ((8, 3), I8, S)},
     {"op": nl.bitwise_or, "data": ((8, 3, 4), I8, S), "dst": ((8, 3), I8, S), "negate": True}),
    ("integer-dtype", {"op": nl.bitwise_or, "data": ((8, 3, 4), I8, S), "dst": ((8, 3), I8, S)},
     {"op": nl.bitwise_or}),
    ("packed-dtype", {}, {"data": ((8, 3, 4), "float8_e5m2_x4", S)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", REDUCE_RULES)
def test_tensor_reduce_rules(rule, good, bad):
    pair(rule, lambda change: reduced(**change), (good,), (bad,))


# tensor_scalar_reduce and the accumulator registers.


@pytest.mark.parametrize(
    "op, function",
    [(nl.add, np.sum), (nl.max, np.max), (nl.minimum, np.min), (nl.multiply, np.prod)],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_tensor_scalar_reduce(op, function, dtype):
    def kernel(x, column):
        dst, total = output(x.shape, x.dtype), output((x.shape[0], 1), nl.float32)
        nisa.tensor_scalar_reduce(dst, load(x), nl.multiply, load(column), op, total)
        return save(dst), save(total)

    x, column = values((32, 2, 5), dtype), values((32, 1), seed=3)
    product = f32(x) * column[:, :, None]
    dst, total = simulate(kernel)(x, column)
    same_bits(dst, rounded(product, dtype))
    expected = function(product.reshape(32, -1).astype(np.float64), axis=1)
    np.testing.assert_allclose(total[:, 0], expected, rtol=1e-4, atol=1e-5)


def chained(x, commands, init=None, negate=False, read_last_only=True):
    data = load(x)
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32)
    for index, command in enumerate(commands):
        last = index == len(commands) - 1
        nisa.tensor_scalar_reduce(  # rule
            output(x.shape, nl.float32), data, nl.multiply, 1.0, nl.add,
            reduce_res=total if last else None, reduce_cmd=command,
            reduce_init=init if command == nisa.reduce_cmd.load_reduce else None,
            reduce_res_negate=negate,
        )  # fmt: skip
    return save(total)


CMD = nisa.reduce_cmd


def test_accumulators_continue_between_instructions():
    x = values((16, 4))
    total = x.sum(axis=1, keepdims=True)

    def check(times, commands, offset=0.0, **options):
        got = simulate(lambda x: chained(x, commands, **options))(x)
        sign = -1 if options.get("negate") else 1
        np.testing.assert_allclose(got, sign * (times * total + offset), rtol=1e-4, atol=1e-5)

    check(1, [CMD.reset_reduce])
    check(3, [CMD.reset_reduce, CMD.reduce, CMD.reduce])
    check(1, [CMD.reset_reduce, CMD.reset_reduce])
    check(1, [CMD.load_reduce], offset=5.0, init=5.0)
    check(2, [CMD.reset_reduce, CMD.reduce], negate=True)


def test_accumulator_can_be_loaded_from_a_column():
    def kernel(x):
        return chained(x, [CMD.load_reduce], init=tile((16, 1), value=3.0))

    x = values((16, 4))
    expected = x.sum(axis=1, keepdims=True) + 3
    np.testing.assert_allclose(simulate(kernel)(x), expected, rtol=1e-4, atol=1e-5)


def test_accumulators_start_unknown():
    x = values((16, 4))
    pair(
        "accumulator", lambda x, commands: chained(x, commands),
        (x, (CMD.reset_reduce, CMD.reduce)), (x, (CMD.reduce,)), line=None,
    )  # fmt: skip


def test_accumulators_are_per_lane():
    def kernel(height):
        data = tile((64, 4), value=1.0)
        for first, rows, command in ((0, height, CMD.reset_reduce), (0, 64, CMD.reduce)):
            nisa.tensor_scalar_reduce(  # rule
                output((rows, 4), F), data[first : first + rows], nl.multiply, 1.0, nl.add,
                reduce_cmd=command,
            )  # fmt: skip

    pair("accumulator", kernel, 64, 63)


def reducing(**change):
    arguments = {
        "op0": nl.multiply, "operand0": 1.0, "reduce_op": nl.add, "reduce_res": ((8, 1), F, S),
        "dst": ((8, 6), F, S), "data": ((8, 6), F, S), **change,
    }  # fmt: skip
    for role in ("reduce_res", "dst", "data"):
        arguments[role] = tile(*arguments[role])
    nisa.tensor_scalar_reduce(**arguments)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("operator-reduce", {"reduce_op": nl.min}, {"reduce_op": nl.subtract}),
        ("operator-kind", {}, {"op0": nl.bitwise_and}),
        ("reverse", {"reverse0": False}, {"reverse0": True}),
        ("reduce-cmd", {"reduce_cmd": CMD.reset_reduce}, {"reduce_cmd": CMD.idle}),
        ("reduce-init", {"reduce_cmd": CMD.load_reduce, "reduce_init": 1.0},
         {"reduce_cmd": CMD.load_reduce}),
        ("reduce-init", {}, {"reduce_init": 1.0}),
        ("vector-operand", {}, {"reduce_res": ((8, 2), F, S)}),
        ("partition-count", {}, {"reduce_res": ((4, 1), F, S)}),
        ("free-size", {"dst": ((8, 3, 2), F, S)}, {"dst": ((8, 5), F, S)}),
        ("packed-dtype", {}, {"data": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_tensor_scalar_reduce_rules(rule, good, bad):
    pair(rule, lambda change: reducing(**change), (good,), (bad,))


# reciprocal, bn_stats, bn_aggr.


@pytest.mark.parametrize("dtype", FLOATS)
def test_reciprocal(dtype):
    def kernel(x):
        dst = output((x.shape[0], x.size // x.shape[0]), x.dtype, P)
        nisa.reciprocal(dst, load(x))
        return save(dst)

    x = values((9, 4, 5), dtype)
    same_bits(simulate(kernel)(x), rounded(1 / f32(x), dtype).reshape(9, 20))


@pytest.mark.parametrize("width", [1, 2, 3, 200, 512])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bn_stats(width, dtype):
    def kernel(x):
        dst = output((x.shape[0], 6), nl.float32)
        nisa.bn_stats(dst, load(x))
        return save(dst)

    x = values((12, width), dtype)
    got, wide = simulate(kernel)(x), x.astype(np.float64)
    for first, part in ((0, wide[:, 0::2]), (3, wide[:, 1::2])):
        count = part.shape[1]
        mean = part.mean(axis=1) if count else np.zeros(12)
        spread = part.var(axis=1) * count if count else np.zeros(12)
        expected = np.stack([np.full(12, count), mean, spread], axis=1)
        np.testing.assert_allclose(got[:, first : first + 3], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [5, 512, 768, 1000])
def test_bn_aggr_gives_mean_and_population_variance(width):
    def kernel(x):
        chunks = -(-width // 512)
        stats = output((x.shape[0], chunks, 6), nl.float32)
        data = load(x)
        for chunk in range(chunks):
            low, high = chunk * 512, min(width, (chunk + 1) * 512)
            nisa.bn_stats(stats[:, chunk], data[:, low:high])
        dst = output((x.shape[0], 2), nl.float32)
        nisa.bn_aggr(dst, stats)
        return save(dst)

    x = values((10, width)) + 3
    got = simulate(kernel)(x)
    np.testing.assert_allclose(got[:, 0], x.mean(axis=1, dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(got[:, 1], x.var(axis=1, dtype=np.float64), rtol=1e-5)


def test_bn_rules():
    def stats(width, out):
        nisa.bn_stats(tile((8, out)), tile((8, width)))  # rule

    def aggregate(width, out):
        nisa.bn_aggr(tile((8, out)), tile((8, width), value=1.0))  # rule

    pair("bn-stats-free", stats, (512, 6), (513, 6))
    pair("free-size", stats, (4, 6), (4, 5))
    pair("bn-aggr-width", aggregate, (6, 2), (7, 2))
    pair("free-size", aggregate, (6, 2), (6, 3))


def test_reciprocal_rules():
    def kernel(dst, data):
        nisa.reciprocal(tile(*dst), tile(*data, value=0))  # rule

    good = ((8, 6), F, S)
    pair("free-size", kernel, (good, good), (good, ((8, 5), F, S)))
    pair("packed-dtype", kernel, (good, good), (good, ((8, 6), "float8_e5m2_x4", S)))


def test_the_trace_names_the_engine_that_ran():
    def kernel():
        a, b = tile((8, 4), "int32"), tile((8, 4), F, value=1.0)
        nisa.tensor_tensor(a, a, a, nl.add)
        nisa.tensor_tensor(b, b, b, nl.add)
        nisa.tensor_scalar(b, b, nl.rsqrt, 0)
        nisa.tensor_scalar(b, b, nl.multiply, 2.0, engine=SCALAR)

    _, session = record(kernel)()
    engines = [r.engine for r in session.trace if r.op.startswith("tensor")]
    assert engines == ["gpsimd", "vector", "gpsimd", "scalar"]


def test_errors_of_operators_list_what_is_allowed():
    error = refused("operator", lambda: two_inputs(op=nl.exp))
    assert "nl.exp" in str(error) and "nl.add" in str(error)
