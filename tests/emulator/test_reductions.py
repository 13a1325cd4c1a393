"""tensor_reduce and tensor_scalar_reduce against NumPy, and their rules."""

from .numeric import DTYPES, INTEGERS, converted, f32
from .support import (
    FLOATS,
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
F, I8 = "float32", "int8"
CMD = nisa.reduce_cmd


def output(shape, dtype, buffer=S):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_tensor_reduce_dtypes(dtype, out):
    def kernel(x):
        dst = output((x.shape[0], 2), out, P)
        nisa.tensor_reduce(dst[:, 0:1], nl.add, load(x), axis=1)
        nisa.tensor_reduce(dst[:, 1:2], nl.minimum, load(x), axis=1, negate=True)
        return save(dst)

    x = values((7, 5), dtype)
    wide = f32(x)
    expected = np.stack([wide.sum(axis=1), -wide.min(axis=1)], axis=1)
    same_bits(simulate(kernel)(x), converted(expected, out))


def test_tensor_reduce_of_a_repeated_view_into_its_own_input():
    def kernel(x):
        t = load(x)
        nisa.tensor_reduce(t[:, 2:3], nl.add, t[:, 2:3].broadcast(1, 4), 1)
        return save(t)

    x = values((9, 3))
    expected = x.copy()
    expected[:, 2] = x[:, 2] * 4
    same_bits(simulate(kernel)(x), expected)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_tensor_reduce_of_bits(name, dtype):
    def kernel(x):
        dst = output((x.shape[0], 1), x.dtype)
        nisa.tensor_reduce(dst, getattr(nl, name), load(x), axis=[1])
        return save(dst)

    x = values((7, 9), dtype)
    same_bits(simulate(kernel)(x), getattr(np, name).reduce(x, axis=1, keepdims=True))


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
    ("integer-dtype", {"op": nl.bitwise_or, "data": ((8, 3, 4), I8, S), "dst": ((8, 3), I8, S)},
     {"op": nl.bitwise_or, "data": ((8, 3, 4), "bool", S), "dst": ((8, 3), "bool", S)}),
    ("bitvec-width", {"op": nl.bitwise_or, "data": ((8, 3, 4), I8, S), "dst": ((8, 3), "uint8", S)},
     {"op": nl.bitwise_or, "data": ((8, 3, 4), I8, S), "dst": ((8, 3), "int16", S)}),
    ("packed-dtype", {}, {"data": ((8, 3, 4), "float8_e5m2_x4", S)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", REDUCE_RULES)
def test_tensor_reduce_rules(rule, good, bad):
    # Through a closure: some of the changes are lists, which a kernel does not take.
    pair(rule, lambda broken: reduced(**(bad if broken else good)), False, True)


# tensor_scalar_reduce; its accumulator registers are in test_accumulators.py.


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_tensor_scalar_reduce_dtypes(dtype, out):
    """dst and reduce_res are both rounded from float32, the one not through the other."""

    def kernel(x):
        dst, largest = output(x.shape, out, P), output((x.shape[0], 1), out)
        nisa.tensor_scalar_reduce(dst, load(x), nl.multiply, 0.3, nl.max, largest)
        return save(dst), save(largest)

    x = values((7, 2, 3), dtype)
    product = f32(x) * np.float32(0.3)
    dst, largest = simulate(kernel)(x)
    same_bits(dst, converted(product, out))
    same_bits(largest, converted(product.reshape(7, -1).max(1, keepdims=True), out))


def test_tensor_scalar_reduce_in_place_and_of_views():
    def kernel(x):
        t = load(x)
        nisa.tensor_scalar_reduce(t[:, ::2], t[:, ::2], nl.add, 1.0, nl.min, t[:, 5:6])
        return save(t)

    x = values((9, 6))
    expected = x.copy()
    expected[:, ::2] += 1
    expected[:, 5] = expected[:, ::2].min(axis=1)
    same_bits(simulate(kernel)(x), expected)


def test_a_reduce_res_within_dst_keeps_the_result():
    def kernel(x):
        dst = output(x.shape, F)
        nisa.tensor_scalar_reduce(dst, load(x), nl.multiply, 2.0, nl.max, dst[:, 0:1])
        return save(dst)

    x = values((9, 6))
    expected = 2 * x
    expected[:, 0] = expected.max(axis=1)
    same_bits(simulate(kernel)(x), expected)


@pytest.mark.parametrize(
    "name, function, target",
    [
        ("abs", np.abs, "trn2"), ("reciprocal", np.reciprocal, "trn2"),
        ("square", np.square, "trn3"), ("relu", lambda x: np.maximum(x, 0), "trn3"),
    ],
)  # fmt: skip
def test_tensor_scalar_reduce_unary(on_target, name, function, target):
    on_target(target)

    def kernel(x):
        dst, largest = output(x.shape, F), output((x.shape[0], 1), F)
        nisa.tensor_scalar_reduce(dst, load(x), getattr(nl, name), None, nl.max, largest)
        return save(dst), save(largest)

    x = values((7, 6))
    dst, largest = simulate(kernel)(x)
    same_bits(dst, f32(function(x)))
    same_bits(largest, f32(function(x)).max(1, keepdims=True))


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
        ("operator-engine", {"op0": nl.abs, "operand0": 0}, {"op0": nl.rsqrt, "operand0": 0}),
        ("operator-target", {}, {"op0": nl.square, "operand0": 0}),
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
