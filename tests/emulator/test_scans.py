"""tensor_scalar_cumulative and tensor_tensor_scan against a loop over the free axis."""

from .numeric import DTYPES, converted, f32
from .support import (
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
F = "float32"
CMD = nisa.reduce_cmd
CUMULATIVE_DTYPES = (
    "bfloat16", "float16", "float32", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "uint8",
    "uint16", "int8", "int16",
)  # fmt: skip
FUNCTIONS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum,
}  # fmt: skip
IDENTITY = {"add": 0, "subtract": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}


def cumulated(x, name, register):
    """The pseudocode of the stub: reg = op1(element, reg)."""
    rows = f32(x).reshape(len(x), -1)
    out, reg = np.empty_like(rows), np.broadcast_to(np.float32(register), (len(x),))
    for column in range(rows.shape[1]):
        reg = FUNCTIONS[name](rows[:, column], reg)
        out[:, column] = reg
    return out.reshape(x.shape)


# tensor_scalar_cumulative.


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("shape", [(128, 9), (5, 3, 4), (33, 1)])
def test_cumulative_operators(name, shape):
    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=F)
        nisa.tensor_scalar_cumulative(dst, load(x), nl.multiply, getattr(nl, name), 1.25)
        return save(dst)

    x = values(shape)
    expected = cumulated(x * np.float32(1.25), name, IDENTITY[name])
    same_bits(simulate(kernel)(x), expected)


@pytest.mark.parametrize("dtype", CUMULATIVE_DTYPES)
@pytest.mark.parametrize("out", CUMULATIVE_DTYPES)
def test_cumulative_dtypes(dtype, out):
    """The running value stays float32: rounding a result does not change the next."""

    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=out)
        nisa.tensor_scalar_cumulative(dst, load(x), nl.multiply, nl.add, 0.375)
        return save(dst)

    x = values((6, 20), dtype, low=0, high=9)
    same_bits(simulate(kernel)(x), converted(cumulated(f32(x) * np.float32(0.375), "add", 0), out))


@pytest.mark.parametrize("buffer", [S, P])
def test_cumulative_columns_and_load_reduce(buffer):
    def kernel(x, scale, start):
        source, dst = load(x), nl.ndarray(x.shape, dtype=F, buffer=buffer)
        nisa.tensor_scalar_cumulative(
            dst, source, nl.subtract, nl.minimum, load(scale), load(start), CMD.load_reduce
        )
        return save(dst)

    x, scale, start = values((7, 12)), values((7, 1), seed=1), values((7, 1), seed=2)
    expected = cumulated(x - scale, "minimum", start[:, 0])
    same_bits(simulate(kernel)(x, scale, start), expected)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_cumulative_continues_over_tiles(name):
    """Two halves with reduce_cmd.reduce give what one instruction gives."""

    def kernel(x):
        source, dst = load(x), nl.ndarray(x.shape, dtype=F)
        op = getattr(nl, name)
        nisa.tensor_scalar_cumulative(
            dst[:, 0:7], source[:, 0:7], nl.add, op, 0.5, 1.5, CMD.load_reduce
        )
        nisa.tensor_scalar_cumulative(
            dst[:, 7:16], source[:, 7:16], nl.add, op, 0.5, reduce_cmd=CMD.reduce
        )
        return save(dst)

    x = values((9, 16))
    same_bits(simulate(kernel)(x), cumulated(x + np.float32(0.5), name, 1.5))


def test_cumulative_in_place_strided_and_repeated():
    def kernel(x, column):
        t = load(x)
        nisa.tensor_scalar_cumulative(t[:, 1::2], t[:, 1::2], nl.abs, nl.add, None)
        counted = nl.ndarray((8, 6), dtype=F)
        nisa.tensor_scalar_cumulative(
            counted, load(column).broadcast(1, 6), nl.multiply, nl.add, 2.0
        )
        return save(t), save(counted)

    x, column = values((8, 10)), values((8, 1), seed=1)
    expected = x.copy()
    expected[:, 1::2] = cumulated(np.abs(x[:, 1::2]), "add", 0)
    got, counted = simulate(kernel)(x, column)
    same_bits(got, expected)
    same_bits(counted, cumulated(np.repeat(2 * column, 6, axis=1), "add", 0))


def cumulative(
    dst=((8, 6), F, S), src=((8, 6), F, S), op0=nl.multiply, op1=nl.add, imm0=1.0, imm1=None,
    **options,
):  # fmt: skip
    imm0, imm1 = (tile(*v, value=1) if isinstance(v, tuple) else v for v in (imm0, imm1))
    made, source = tile(*dst), tile(*src, value=1)
    nisa.tensor_scalar_cumulative(made, source, op0, op1, imm0, imm1, **options)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("operand-dtype", {"src": ((8, 6), "int16", S)}, {"src": ((8, 6), "int32", S)}),
        ("operand-dtype", {"dst": ((8, 6), "uint16", S)}, {"dst": ((8, 6), "uint32", S)}),
        ("operand-dtype", {}, {"dst": ((8, 6), "float8_e5m2_x4", S)}),
        ("operand-dtype", {"imm0": ((8, 1), F, S)}, {"imm0": ((8, 1), "bfloat16", S)}),
        ("operand-dtype", {"imm1": ((8, 1), F, P), "reduce_cmd": CMD.load_reduce},
         {"imm1": ((8, 1), "bfloat16", S), "reduce_cmd": CMD.load_reduce}),
        ("vector-operand", {"imm0": ((8, 1), F, P)}, {"imm0": ((8, 6), F, S)}),
        ("operator-reduce", {"op1": nl.subtract}, {"op1": nl.logical_and}),
        ("operator-kind", {"op0": nl.power}, {"op0": nl.bitwise_and}),
        ("operator-engine", {"op0": nl.abs, "imm0": 0}, {"op0": nl.rsqrt, "imm0": 0}),
        ("operand-unused", {"op0": nl.abs, "imm0": None}, {"op0": nl.abs, "imm0": 1.0}),
        ("operand-type", {"imm0": 2}, {"imm0": None}),
        ("reduce-cmd", {"reduce_cmd": CMD.reset_reduce}, {"reduce_cmd": CMD.idle}),
        ("reduce-cmd", {}, {"reduce_cmd": CMD.reset}),
        ("reduce-init", {"imm1": 0, "reduce_cmd": CMD.load_reduce},
         {"reduce_cmd": CMD.load_reduce}),
        ("reduce-init", {}, {"imm1": 0.0}),
        ("free-size", {"dst": ((8, 2, 3), F, S)}, {"dst": ((8, 1), F, S)}),
    ],
)  # fmt: skip
def test_cumulative_rules(rule, good, bad):
    pair(rule, lambda change: cumulative(**change), (good,), (bad,))


# tensor_tensor_scan.


def scanned(a, b, start, first, second, reverse0=False, reverse1=False):
    left, right = (f32(x).reshape(len(x), -1) for x in (a, b))
    out, state = np.empty_like(left), np.broadcast_to(np.float32(start), (len(a),))
    for i in range(left.shape[1]):
        step = first(state, left[:, i]) if reverse0 else first(left[:, i], state)
        state = f32(second(right[:, i], step) if reverse1 else second(step, right[:, i]))
        out[:, i] = state
    return out.reshape(a.shape)


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("shape", [(128, 11), (5, 3, 4), (33, 1)])
def test_scan_orders(reverse0, reverse1, shape):
    def kernel(a, b):
        dst = nl.ndarray(a.shape, dtype=F)
        nisa.tensor_tensor_scan(
            dst, load(a), load(b), 0.75, nl.subtract, nl.subtract, reverse0, reverse1
        )
        return save(dst)

    a, b = values(shape, seed=1), values(shape, seed=2)
    expected = scanned(a, b, 0.75, np.subtract, np.subtract, reverse0, reverse1)
    same_bits(simulate(kernel)(a, b), expected)


SCAN_OPERATORS = (
    "add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal", "greater",
    "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor",
)  # fmt: skip


@pytest.mark.parametrize("name", SCAN_OPERATORS)
def test_scan_operators(name):
    def kernel(a, b):
        first, second = nl.ndarray(a.shape, dtype=F), nl.ndarray(a.shape, dtype=F)
        nisa.tensor_tensor_scan(first, load(a), load(b), 1.0, getattr(nl, name), nl.add)
        nisa.tensor_tensor_scan(second, load(a), load(b), 1.0, nl.multiply, getattr(nl, name))
        return save(first), save(second)

    a, b = values((16, 9), seed=1), values((16, 9), seed=2)
    a[:, 3] = 1
    operator = getattr(np, name)
    first, second = simulate(kernel)(a, b)
    same_bits(first, scanned(a, b, 1.0, lambda x, y: f32(operator(x, y)), np.add))
    same_bits(second, scanned(a, b, 1.0, np.multiply, operator))


def test_scan_power_and_magnitude(on_target):
    on_target("trn3")

    def kernel(a, b):
        powers, largest = nl.ndarray(a.shape, dtype=F), nl.ndarray(a.shape, dtype=F)
        nisa.tensor_tensor_scan(powers, load(a), load(b), 0.5, nl.power, nl.multiply)
        nisa.tensor_tensor_scan(largest, load(b), load(a), 0.0, nl.abs_max, nl.multiply)
        return save(powers), save(largest)

    a, b = np.abs(values((4, 6), seed=1)), values((4, 6), seed=2)
    a = np.clip(a, 0.5, 1.5)
    powers, largest = simulate(kernel)(a, np.abs(b))
    np.testing.assert_allclose(powers, scanned(a, np.abs(b), 0.5, np.power, np.multiply), rtol=1e-6)
    keep = scanned(np.abs(b), a, 0.0, np.maximum, np.multiply)
    same_bits(largest, keep)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scan_dtypes(dtype):
    """Inputs and initial convert to float32, the running value is not rounded to dst."""

    def kernel(a, b, start):
        dst = nl.ndarray(a.shape, dtype=dtype)
        nisa.tensor_tensor_scan(dst, load(a), load(b), load(start), nl.multiply, nl.add)
        return save(dst)

    a, b = (values((6, 8), dtype, seed, low=0, high=2) for seed in (1, 2))
    start = values((6, 1), dtype, 3)
    expected = scanned(a, b, f32(start)[:, 0], np.multiply, np.add)
    same_bits(simulate(kernel)(a, b, start), converted(expected, dtype))


def test_scan_continues_from_a_column_of_its_own_result():
    def kernel(a, b):
        first, second, dst = load(a), load(b), nl.ndarray(a.shape, dtype=F)
        half = a.shape[1] // 2
        for low, start in ((0, 0.0), (half, dst[:, half - 1 : half])):
            part = slice(low, low + half)
            nisa.tensor_tensor_scan(
                dst[:, part], first[:, part], second[:, part], start, nl.multiply, nl.add
            )
        return save(dst)

    a, b = values((12, 14), seed=1), values((12, 14), seed=2)
    same_bits(simulate(kernel)(a, b), scanned(a, b, 0.0, np.multiply, np.add))


def test_scan_in_place_strided_repeated_and_from_psum():
    def kernel(a, decay):
        psum = nl.ndarray(a.shape, dtype=F, buffer=P)
        nisa.tensor_copy(psum, load(a))
        t = load(a)
        nisa.tensor_tensor_scan(
            t[:, ::2], load(decay).broadcast(1, 5), psum[:, ::2], 0.0, nl.multiply, nl.add
        )
        return save(t)

    a, decay = values((8, 10)), values((8, 1), seed=1)
    expected = a.copy()
    repeated = np.repeat(decay, 5, axis=1)
    expected[:, ::2] = scanned(repeated, a[:, ::2], 0.0, np.multiply, np.add)
    same_bits(simulate(kernel)(a, decay), expected)


def scan(
    dst=((8, 6), F, S), data0=((8, 6), F, S), data1=((8, 6), F, S), initial=0.0, op0=nl.multiply,
    op1=nl.add,
):  # fmt: skip
    operands = tile(*dst), tile(*data0), tile(*data1)
    start = tile(*initial) if isinstance(initial, tuple) else initial
    nisa.tensor_tensor_scan(*operands, start, op0, op1)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("both-psum", {"data0": ((8, 6), F, P)},
         {"data0": ((8, 6), F, P), "data1": ((8, 6), F, P)}),
        ("vector-operand", {"initial": ((8, 1), "bfloat16", S)}, {"initial": ((8, 6), F, S)}),
        ("partition-count", {"initial": ((8, 1), F, P)}, {"initial": ((4, 1), F, S)}),
        ("operand-type", {"initial": 1}, {"initial": None}),
        ("operator-kind", {}, {"op0": nl.bitwise_and}),
        ("operator-kind", {}, {"op1": nl.abs}),
        ("operator", {}, {"op1": nl.exp}),
        ("free-size", {"data1": ((8, 2, 3), F, S)}, {"data1": ((8, 1), F, S)}),
        ("partition-count", {}, {"data0": ((6, 8), F, S)}),
        ("packed-dtype", {}, {"data1": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_scan_rules(rule, good, bad):
    pair(rule, lambda change: scan(**change), (good,), (bad,))
