"""tensor_copy_predicated, select_reduce and range_select."""

from nki_emulator import NkiWarning

from .numeric import DTYPES, FLOATS, INTEGERS, converted, f32
from .support import (
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
F, U8 = "float32", "uint8"
CMD = nisa.reduce_cmd
FP32_MIN = np.finfo(np.float32).min


# tensor_copy_predicated.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("predicate", ["uint8", "uint16", "uint32"])
@pytest.mark.parametrize("reverse", [False, True])
def test_tensor_copy_predicated(dtype, predicate, reverse):
    def kernel(x, y, mask):
        dst = load(x)
        nisa.tensor_copy_predicated(dst, load(y), load(mask), reverse_pred=reverse)
        return save(dst)

    x, y = values((9, 4), dtype, 1), values((9, 4), dtype, 2)
    mask = (values((9, 4), seed=3) > 0).astype(NUMPY[predicate]) * 7
    chosen = (mask == 0) if reverse else (mask != 0)
    same_bits(simulate(kernel)(x, y, mask), np.where(chosen, y, x))


def test_predicated_copy_moves_bits():
    def kernel(x, y, mask):
        dst = load(x)
        nisa.tensor_copy_predicated(dst, load(y), load(mask))
        return save(dst)

    x, mask = np.zeros((2, 2), np.int32), np.array([[1, 1], [0, 1]], np.uint8)
    y = np.array([[2**24 + 1, -(2**31)], [1, 2**31 - 1]], np.int32)
    np.testing.assert_array_equal(simulate(kernel)(x, y, mask), y * mask)


@pytest.mark.parametrize("dtype", DTYPES)
def test_predicated_copy_of_a_number_and_of_other_shapes(dtype):
    def kernel(x, mask, value):
        dst = load(x)
        nisa.tensor_copy_predicated(dst.reshape((9, 2, 2)), value, load(mask))
        return save(dst)

    x, mask = values((9, 4), dtype), (values((9, 4), seed=3) > 0).astype(np.uint8)
    value = 1 if dtype == "bool" else 5 if "int" in dtype else 1.1
    expected = np.where(mask != 0, np.float32(value).astype(NUMPY[dtype]), x)
    same_bits(simulate(kernel)(x, mask, value), expected)


def test_predicated_copy_of_a_large_integer_is_exact():
    def kernel():
        dst = tile((2, 2), nl.int32)
        nisa.tensor_copy_predicated(dst, 2**24 + 1, tile((2, 2), U8, value=1))
        return save(dst)

    assert (simulate(kernel)() == 2**24 + 1).all()


@pytest.mark.parametrize("buffer", [S, P])
def test_predicated_copy_leaves_unwritten_elements_unwritten(buffer):
    def kernel(mask):
        dst = nl.ndarray((9, 4), dtype=nl.float32, buffer=buffer)
        nisa.tensor_copy_predicated(dst, 1.0, load(mask))
        nisa.tensor_copy(tile((9, 4)), dst)  # rule

    full = np.ones((9, 4), np.uint8)
    holed = full.copy()
    holed[5, 2] = 0
    error = pair("uninitialized-read", kernel, (full,), (holed,))
    assert "src is read at [5, 2]" in str(error)


def test_two_predicated_copies_complete_a_tile():
    def kernel(mask):
        dst, predicate = nl.ndarray((9, 6), dtype=nl.bfloat16), load(mask)
        nisa.tensor_copy_predicated(dst[:, 1::2], 1.0, predicate)
        nisa.tensor_copy_predicated(dst[:, 1::2], 2.0, predicate, reverse_pred=True)
        nisa.memset(dst[:, 0::2], 3.0)
        return save(dst)

    mask = (values((9, 3), seed=3) > 0).astype(np.uint8)
    got = simulate(kernel)(mask).astype(np.float32)
    np.testing.assert_array_equal(got[:, 1::2], np.where(mask, 1, 2))
    assert (got[:, 0::2] == 3).all()


def test_a_matmul_does_not_accumulate_onto_a_predicated_copy():
    def kernel(spoil):
        acc, ones = nl.ndarray((8, 4), dtype=F, buffer=P), tile((8, 8), value=1.0)
        nisa.nc_matmul(acc, ones, ones[:, 0:4], accumulate=False)
        if spoil:
            mask = tile((8, 4), U8)
            nisa.memset(mask[:, 1:2], 1)
            nisa.tensor_copy_predicated(acc, 2.0, mask)
        nisa.nc_matmul(acc, ones, ones[:, 0:4], accumulate=True)  # rule

    pair("psum-accumulate-on-other", kernel, False, True)


def predicated(dst=((8, 6), F, S), src=((8, 6), F, S), predicate=((8, 6), U8, S)):
    source = tile(*src) if isinstance(src, tuple) else src
    nisa.tensor_copy_predicated(tile(*dst), source, tile(*predicate))  # rule


I8 = ((8, 6), "int8", S)


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("predicate-dtype", {}, {"predicate": ((8, 6), "int8", S)}),
        ("same-dtype", {}, {"src": ((8, 6), "bfloat16", S)}),
        ("same-dtype", {"dst": I8, "src": 127}, {"dst": I8, "src": 128}),
        ("same-dtype", {"dst": I8, "src": -128}, {"dst": I8, "src": 1.0}),
        ("operand-type", {"src": 1}, {"src": None}),
        ("free-size", {"predicate": ((8, 2, 3), U8, S)}, {"predicate": ((8, 1), U8, S)}),
        ("free-size", {"src": ((8, 2, 3), F, S)}, {"src": ((8, 1), F, S)}),
        ("partition-count", {}, {"src": ((4, 6), F, S)}),
        ("both-psum", {"src": ((8, 6), F, P)},
         {"src": ((8, 6), F, P), "predicate": ((8, 6), U8, P)}),
        ("packed-dtype", {},
         {"dst": ((8, 6), "float8_e5m2_x4", S), "src": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_tensor_copy_predicated_rules(rule, good, bad):
    pair(rule, lambda change: predicated(**change), (good,), (bad,))


# select_reduce.


@pytest.mark.parametrize("dtype", sorted({*DTYPES} - {"int32", "uint32"}))
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("column", [False, True])
def test_select_reduce(dtype, reverse, column):
    def kernel(x, mask, other):
        dst, largest = nl.ndarray(x.shape, dtype=dtype), nl.ndarray((9, 1), dtype=nl.float32)
        nisa.select_reduce(
            dst, load(mask), load(x), load(other) if column else -2.5, largest,
            CMD.reset_reduce, reverse_pred=reverse,
        )  # fmt: skip
        return save(dst), save(largest)

    x, other = values((9, 4), dtype), values((9, 1), seed=4)
    mask = (values((9, 4), seed=3) > 0).astype(np.int8)
    chosen = (mask == 0) if reverse else (mask != 0)
    expected = np.where(chosen, f32(x), other if column else np.float32(-2.5))
    dst, largest = simulate(kernel)(x, mask, other)
    same_bits(dst, converted(expected, dtype))
    same_bits(largest, expected.max(1, keepdims=True))


@pytest.mark.parametrize("predicate", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("out", DTYPES)
def test_select_reduce_converts_through_float32(predicate, out):
    def kernel(x, mask, other):
        dst = nl.ndarray((9, 2, 2), dtype=out, buffer=P)
        nisa.select_reduce(dst, load(mask), load(x), load(other))
        return save(dst)

    x, other = values((9, 4)) * 50, values((9, 1), "bfloat16", seed=4)
    mask = (values((9, 4), seed=3) > 0).astype(NUMPY[predicate]) * 3
    expected = np.where(mask != 0, x, f32(other)).reshape(9, 2, 2)
    same_bits(simulate(kernel)(x, mask, other), converted(expected, out))


def test_select_reduce_in_place_and_of_views():
    def kernel(x, mask):
        t, largest = load(x), nl.ndarray((9, 1), dtype=nl.bfloat16)
        nisa.select_reduce(
            t[:, ::2], load(mask).broadcast(1, 3), t[:, 1::2], 0.0, largest, CMD.reset_reduce
        )
        return save(t), save(largest)

    x, mask = values((9, 6)), (values((9, 1), seed=3) > 0).astype(np.uint8)
    expected = x.copy()
    expected[:, ::2] = np.where(mask, x[:, 1::2], 0)
    got, largest = simulate(kernel)(x, mask)
    same_bits(got, expected)
    same_bits(largest, rounded(expected[:, ::2].max(1, keepdims=True), "bfloat16"))


def test_select_reduce_continues_a_maximum():
    def kernel(x, mask):
        data, chosen, largest = load(x), load(mask), nl.ndarray((9, 1), dtype=F)
        for half, command in ((0, CMD.reset_reduce), (4, CMD.reduce)):
            part = slice(half, half + 4)
            nisa.select_reduce(
                tile((9, 4)), chosen[:, part], data[:, part], -9.0, largest if half else None,
                command,
            )  # fmt: skip
        return save(largest)

    x, mask = values((9, 8)), (values((9, 8), seed=3) > 0).astype(np.uint8)
    expected = np.where(mask, x, np.float32(-9)).max(1, keepdims=True)
    same_bits(simulate(kernel)(x, mask), expected)


def selected(
    dst=((8, 6), F, S), predicate=((8, 6), U8, S), on_true=((8, 6), F, S), on_false=1.0,
    reduce_res=None, **options,
):  # fmt: skip
    made = None if reduce_res is None else tile(*reduce_res)
    operands = tile(*dst), tile(*predicate), tile(*on_true)
    on_false = tile(*on_false) if isinstance(on_false, tuple) else on_false
    nisa.select_reduce(*operands, on_false, made, **options)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("predicate-dtype", {"predicate": ((8, 6), "int16", S)},
         {"predicate": ((8, 6), "uint32", S)}),
        ("select-dtype", {"on_true": ((8, 6), "int16", S)}, {"on_true": ((8, 6), "int32", S)}),
        ("select-dtype", {}, {"on_true": ((8, 6), "uint32", S)}),
        ("select-dtype", {}, {"on_true": ((8, 6), "tfloat32", S)}),
        ("both-psum", {"on_true": ((8, 6), F, P)},
         {"on_true": ((8, 6), F, P), "predicate": ((8, 6), U8, P)}),
        ("reduce-cmd", {"reduce_cmd": CMD.idle}, {"reduce_cmd": CMD.reset}),
        ("reduce-cmd", {}, {"reduce_cmd": CMD.load_reduce}),
        ("operator-reduce", {"reduce_op": nl.max}, {"reduce_op": nl.add}),
        ("reduce-dtype", {"reduce_cmd": CMD.reset_reduce, "reduce_res": ((8, 1), F, S)},
         {"reduce_cmd": CMD.reset_reduce, "reduce_res": ((8, 1), "int32", S)}),
        ("vector-operand", {"reduce_cmd": CMD.reset_reduce, "reduce_res": ((8, 1), F, P)},
         {"reduce_cmd": CMD.reset_reduce, "reduce_res": ((8, 2), F, S)}),
        ("free-size", {"on_true": ((8, 2, 3), F, S)}, {"on_true": ((8, 1), F, S)}),
        ("operand-type", {"on_false": 2}, {"on_false": None}),
        ("vector-operand", {"on_false": ((8, 1), "bfloat16", S)}, {"on_false": ((8, 6), F, S)}),
        ("packed-dtype", {}, {"on_true": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_select_reduce_rules(rule, good, bad):
    pair(rule, lambda change: selected(**change), (good,), (bad,))


# range_select.

COMPARISONS = {
    "equal": np.equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal,
}  # fmt: skip


def ranged(x, low, high, ops=(nl.greater_equal, nl.less), out=nl.float32, start=0, **options):
    dst, largest = nl.ndarray(x.shape, dtype=out), nl.ndarray((x.shape[0], 1), dtype=nl.float32)
    nisa.range_select(
        dst, load(x), *ops, load(low), load(high), reduce_res=largest, range_start=start, **options
    )
    return save(dst), save(largest)


def within(x, low, high, first=np.greater_equal, second=np.less, start=0):
    """The NumPy equivalent of the stub."""
    rows = f32(x).reshape(len(x), -1)
    index = np.float32(start) + np.arange(rows.shape[1], dtype=np.float32)
    mask = first(index, low) & second(index, high)
    return np.where(mask, rows, FP32_MIN).reshape(x.shape)


def bounds(height, width):
    low = np.random.default_rng(1).integers(-2, width, (height, 1)).astype(np.float32)
    return low, low + np.random.default_rng(2).integers(0, width, (height, 1)).astype(np.float32)


@pytest.mark.parametrize("first", sorted(COMPARISONS))
@pytest.mark.parametrize("second", sorted(COMPARISONS))
def test_range_select_comparisons(first, second):
    x, (low, high) = values((40, 12)), bounds(40, 12)
    expected = within(x, low, high, COMPARISONS[first], COMPARISONS[second])
    ops = getattr(nl, first), getattr(nl, second)
    dst, largest = simulate(lambda *a: ranged(*a, ops=ops))(x, low, high)
    same_bits(dst, expected)
    same_bits(largest, expected.max(1, keepdims=True))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("out", sorted({*FLOATS, *INTEGERS} - {"float8_e4m3fn"}))
def test_range_select_fills_with_minus_infinity_in_narrow_dtypes(dtype, out):
    """The maximum is float32's smallest value, so that -inf minus it is not NaN."""
    x, (low, high) = values((40, 3, 4), dtype), bounds(40, 12)
    high[0] = low[0] - 1
    expected = within(x, low, high)
    dst, largest = simulate(lambda *a: ranged(*a, out=out))(x, low, high)
    same_bits(dst, converted(expected, out))
    same_bits(largest, expected.reshape(40, -1).max(1, keepdims=True))
    assert largest[0] == FP32_MIN
    if out in ("bfloat16", "float16", "float8_e4m3", "float8_e5m2"):
        assert (f32(dst[0]) == -np.inf).all()
        with np.errstate(all="ignore"):
            assert (np.exp(f32(dst[0]) - largest[0]) == 0).all()


def test_range_select_of_a_partial_tile_with_fractional_bounds_and_a_start():
    x = values((33, 9))
    low, high = np.full((33, 1), 100.5, np.float32), np.full((33, 1), 105, np.float32)
    expected = within(x, low, high, start=98)
    dst, _ = simulate(lambda *a: ranged(*a, start=98))(x, low, high)
    same_bits(dst, expected)
    assert (expected != FP32_MIN).sum() == 33 * 4
    dst, _ = simulate(lambda *a: ranged(*a, start=-3, on_false_value=-3.4028235e38))(x, low, high)
    assert (dst == FP32_MIN).all()


def test_range_select_in_place_from_psum_and_of_views():
    def kernel(x, low, high):
        psum, t = nl.ndarray(x.shape, dtype=F, buffer=P), load(x)
        nisa.tensor_copy(psum, t)
        nisa.range_select(
            t[:, ::2], psum[:, 1::2], nl.greater, nl.less_equal, load(low), load(high)
        )
        nisa.range_select(t, t, nl.less, nl.less, load(high), load(high))
        return save(t)

    x, (low, high) = values((20, 12)), bounds(20, 6)
    expected = x.copy()
    expected[:, ::2] = within(x[:, 1::2], low, high, np.greater, np.less_equal)
    expected = within(expected, high, high, np.less, np.less)
    same_bits(simulate(kernel)(x, low, high), expected)


def test_range_select_continues_a_maximum_over_tiles():
    def kernel(x, low, high):
        data, first, last = load(x), load(low), load(high)
        largest = nl.ndarray((20, 1), dtype=F)
        for part, command in enumerate((CMD.reset_reduce, CMD.reduce, CMD.reduce)):
            nisa.range_select(
                tile((20, 4)), data[:, 4 * part : 4 * part + 4], nl.greater_equal, nl.less, first,
                last, command, largest if part == 2 else None, range_start=4 * part,
            )  # fmt: skip
        return save(largest)

    x, (low, high) = values((20, 12)), bounds(20, 12)
    expected = within(x, low, high).max(1, keepdims=True)
    same_bits(simulate(kernel)(x, low, high), expected)


def test_a_row_out_of_range_with_a_narrow_maximum_warns():
    def kernel(limit, dst, result):
        bound, x = tile((8, 1), value=limit), tile((8, 6))
        nisa.range_select(
            tile((8, 6), dst), x, nl.greater_equal, nl.greater_equal, bound, bound,
            reduce_res=tile((8, 1), result),
        )  # fmt: skip

    BF16 = "bfloat16"
    with pytest.warns(NkiWarning, match=r"\[range-select-maximum\]"):
        simulate(kernel)(6.0, BF16, BF16)


@pytest.mark.parametrize("limit, dst, result", [(5.0, "bfloat16", "bfloat16"), (6.0, F, F),
                                                (6.0, "bfloat16", F)])  # fmt: skip
def test_other_maxima_do_not_warn(recwarn, limit, dst, result):
    def kernel():
        bound, x = tile((8, 1), value=limit), tile((8, 6))
        nisa.range_select(
            tile((8, 6), dst), x, nl.greater_equal, nl.greater_equal, bound, bound,
            reduce_res=tile((8, 1), result),
        )  # fmt: skip

    simulate(kernel)()
    assert not [w for w in recwarn if issubclass(w.category, NkiWarning)]


def ranging(
    dst=((8, 6), F, S), data=((8, 6), F, S), op0=nl.greater, op1=nl.less, bound0=((8, 1), F, S),
    bound1=((8, 1), F, S), reduce_res=None, **options,
):  # fmt: skip
    bound0, bound1, result = (
        tile(*v) if isinstance(v, tuple) else v for v in (bound0, bound1, reduce_res)
    )
    made, source = tile(*dst), tile(*data)
    nisa.range_select(  # rule
        made, source, op0, op1, bound0, bound1, reduce_res=result, **options
    )


WIDE = ((8, 4), F, S)


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("operator-kind", {"op0": nl.equal}, {"op0": nl.not_equal}),
        ("operator-kind", {}, {"op1": nl.add}),
        ("operand-dtype", {"bound0": ((8, 1), F, P)}, {"bound0": ((8, 1), "bfloat16", S)}),
        ("operand-dtype", {}, {"bound1": ((8, 1), "int32", S)}),
        ("vector-operand", {}, {"bound1": ((8, 2), F, S)}),
        ("partition-count", {}, {"bound0": ((4, 1), F, S)}),
        ("operand-type", {}, {"bound0": 1.0}),
        ("select-dtype", {"data": ((8, 6), "float8_e5m2", S)}, {"data": ((8, 6), "int16", S)}),
        ("range-select-dst", {"dst": ((8, 6), "float8_e4m3", S)},
         {"dst": ((8, 6), "float8_e4m3fn", S)}),
        ("range-select-fill", {"on_false_value": float(FP32_MIN)}, {"on_false_value": -1e30}),
        ("range-select-fill", {"on_false_value": FP32_MIN}, {"on_false_value": float("-inf")}),
        ("range-select-index", {"data": WIDE, "dst": WIDE, "range_start": 2**24 - 3},
         {"data": WIDE, "dst": WIDE, "range_start": 2**24 - 2}),
        ("range-select-index", {"range_start": -(2**24)}, {"range_start": -(2**24) - 1}),
        ("operand-type", {"range_start": np.int32(3)}, {"range_start": 3.0}),
        ("reduce-cmd", {"reduce_cmd": CMD.idle}, {"reduce_cmd": CMD.load_reduce}),
        ("operator-reduce", {"reduce_op": nl.max}, {"reduce_op": nl.minimum}),
        ("vector-operand", {"reduce_res": ((8, 1), F, P)}, {"reduce_res": ((8, 6), F, S)}),
        ("free-size", {"dst": ((8, 2, 3), F, P)}, {"dst": ((8, 1), F, S)}),
        ("packed-dtype", {}, {"dst": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_range_select_rules(rule, good, bad):
    pair(rule, lambda change: ranging(**change), (good,), (bad,))


def test_range_select_needs_gen3(on_target):
    simulate(ranging)()
    on_target("trn1")
    refused("target", ranging)
