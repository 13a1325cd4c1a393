"""Element-wise instructions of the Vector Engine, and what every engine asks of an operand."""

from nki_emulator import record

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


@pytest.mark.parametrize("name", sorted(ARITHMETIC))
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_int32_operators_are_exact(name, dtype):
    """Results wrap to 32 bits; comparisons give 1 or 0."""

    def kernel(a, b):
        dst = output(a.shape, a.dtype)
        nisa.tensor_tensor(dst, load(a), load(b), getattr(nl, name))
        return save(dst)

    limits = np.iinfo(NUMPY[dtype])
    a, b = (values((9, 8), dtype, s, limits.min, limits.max) for s in (1, 2))
    a[:, 0] = b[:, 0]
    a[:, 1] = 0
    if name.startswith("logical"):
        expected = ARITHMETIC[name](a != 0, b != 0)
    else:
        expected = ARITHMETIC[name](a.astype(object), b.astype(object))
    wrapped = np.array([int(v) % 2**32 for v in expected.ravel()], np.uint32)
    same_bits(simulate(kernel)(a, b), wrapped.view(NUMPY[dtype]).reshape(a.shape))


def test_int32_power_is_exact():
    def kernel(a, b):
        dst = output(a.shape, a.dtype)
        nisa.tensor_tensor(dst, load(a), load(b), nl.power)  # rule
        return save(dst)

    a = np.array([[3, -3, 7, 0, 1, 2]], np.int32)
    b = np.array([[19, 19, 11, 0, 9, 31]], np.int32)
    expected = [[3**19, -(3**19), 7**11, 1, 1, -(2**31)]]
    np.testing.assert_array_equal(simulate(kernel)(a, b), expected)
    pair("power-exponent", kernel, (a, b * 0), (a, b * 0 - 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_tensor_tensor_dtypes(dtype, out):
    """float32 arithmetic, unless every operand is a 32-bit integer."""

    def kernel(a, b):
        dst = output(a.shape, out)
        nisa.tensor_tensor(dst, load(a), load(b), nl.subtract, engine=VECTOR)
        return save(dst)

    a, b = values((7, 6), dtype, 1), values((7, 6), dtype, 2)
    same_bits(simulate(kernel)(a, b), converted(f32(a) - f32(b), out))


@pytest.mark.parametrize("name", sorted(BITVEC))
@pytest.mark.parametrize("dtype", INTEGERS)
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
    # Through a closure: some of the changes are lists, which a kernel does not take.
    pair(rule, lambda broken: two_inputs(**(bad if broken else good)), False, True)


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_scalar_tensor_tensor_dtypes(dtype, out):
    def kernel(x, column, y):
        dst = output(x.shape, out, P)
        nisa.scalar_tensor_tensor(dst, load(x), nl.add, load(column), nl.multiply, load(y))
        return save(dst)

    x, column, y = (values((6, n), dtype, n + s) for n, s in ((4, 0), (1, 0), (4, 1)))
    same_bits(simulate(kernel)(x, column, y), converted((f32(x) + f32(column)) * f32(y), out))


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
        ("operator-engine", {"op0": nl.abs, "operand0": 0}, {"op0": nl.rsqrt, "operand0": 0}),
        ("free-size", {"operand1": ((8, 3, 2), F, S)}, {"operand1": ((8, 1), F, S)}),
        ("operand-unused", {"op0": nl.abs, "operand0": 0}, {"op0": nl.abs}),
        ("packed-dtype", {}, {"operand1": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_scalar_tensor_tensor_rules(rule, good, bad):
    pair(rule, lambda change: fused(**change), (good,), (bad,))


# reciprocal.


@pytest.mark.parametrize("dtype", DTYPES)
def test_reciprocal(dtype):
    def kernel(x):
        dst = output((x.shape[0], x.size // x.shape[0]), x.dtype, P)
        nisa.reciprocal(dst, load(x))
        return save(dst)

    x = values((9, 4, 5), dtype)
    with np.errstate(divide="ignore"):
        expected = converted(1 / f32(x), dtype)
    same_bits(simulate(kernel)(x), expected.reshape(9, 20))


def test_reciprocal_in_place_and_of_views():
    def kernel(x, column):
        t = load(x)
        nisa.reciprocal(t[:, ::2], t[:, ::2])
        nisa.reciprocal(t[:, 1::2], load(column).broadcast(1, 3))
        return save(t)

    x, column = values((9, 6)), values((9, 1), seed=1)
    expected = np.repeat(1 / column, 6, axis=1)
    expected[:, ::2] = 1 / x[:, ::2]
    same_bits(simulate(kernel)(x, column), expected)


def test_reciprocal_rules():
    def kernel(dst, data):
        nisa.reciprocal(tile(*dst), tile(*data))  # rule

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
