"""max8, nc_find_index8 and nc_match_replace8: values, indices, duplicates and limits."""

from .numeric import DTYPES, converted, f32
from .support import (
    NUMPY,
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
F, U32 = "float32", "uint32"
NOWHERE = -1


def found(rows, wanted, order):
    """Column of each wanted value, one slot after the other; an element serves one slot."""
    out = np.full(wanted.shape, NOWHERE)
    for row, (data, vals) in enumerate(zip(rows, wanted)):
        used = set()
        for slot in order:
            for column, value in enumerate(data):
                if value == vals[slot] and column not in used:
                    out[row, slot] = column
                    used.add(column)
                    break
    return out


def ascending(rows, wanted):
    return found(rows, wanted, range(8))


def descending(rows, wanted):
    return found(rows, wanted, range(7, -1, -1))


def few(shape, dtype, seed, high):
    """Small whole numbers, so that there are duplicates in every dtype."""
    return values(shape, "int8", seed, low=0, high=high).astype(NUMPY[dtype])


def indices(columns, dtype):
    """-1 as all ones."""
    return columns.astype(np.int64).astype(NUMPY[dtype])


# max8.


def largest(x, dtype=None, buffer=S):
    dst = nl.ndarray((x.shape[0], 8), dtype=dtype or x.dtype, buffer=buffer)
    nisa.max8(dst, load(x))
    return save(dst)


@pytest.mark.parametrize("shape", [(128, 8), (33, 100), (5, 4, 4), (3, 16384)])
def test_max8(shape):
    x = values(shape)
    expected = np.sort(x.reshape(len(x), -1), axis=1)[:, :-9:-1]
    same_bits(simulate(largest)(x), np.ascontiguousarray(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_max8_dtypes(dtype):
    x = values((6, 20), dtype)
    expected = np.sort(f32(x), axis=1)[:, :-9:-1]
    same_bits(simulate(largest)(x), converted(expected, dtype))
    same_bits(simulate(lambda x: largest(x, nl.float32, P))(x), np.ascontiguousarray(expected))


def test_max8_keeps_duplicates_and_infinities():
    x = np.array([[1, 7, 7, -np.inf, 7, np.inf, 0, 3, 3, -1]], np.float32)
    np.testing.assert_array_equal(simulate(largest)(x), [[np.inf, 7, 7, 7, 3, 3, 1, 0]])


def test_max8_of_strided_and_repeated_views():
    def kernel(x):
        t, dst = load(x), tile((8, 2, 8))
        nisa.max8(dst[:, 1], t[:, 1::3])
        nisa.max8(dst[:, 0], t[:, 5:6].broadcast(1, 9))
        return save(dst)

    x = values((8, 30))
    got = simulate(kernel)(x)
    np.testing.assert_array_equal(got[:, 1], np.sort(x[:, 1::3], axis=1)[:, :-9:-1])
    np.testing.assert_array_equal(got[:, 0], np.repeat(x[:, 5:6], 8, axis=1))


def most(dst=((8, 8), F, S), src=((8, 12), F, S), nan=False):
    made, source = tile(*dst), tile(*src)
    if nan:
        nisa.memset(source[:, 3:4], float("nan"))
    nisa.max8(made, source)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("search-width", {"src": ((8, 8), F, S)}, {"src": ((8, 7), F, S)}),
        ("search-width", {"src": ((8, 16384), "bfloat16", S)},
         {"src": ((8, 16385), "bfloat16", S)}),
        ("tile-rank", {"src": ((8, 4, 3), F, S)}, {"src": ((8, 2, 3, 2), F, S)}),
        ("eight-values", {"dst": ((8, 8), "bfloat16", P)}, {"dst": ((8, 9), F, S)}),
        ("eight-values", {}, {"dst": ((8, 4, 2), F, S)}),
        ("partition-count", {}, {"dst": ((4, 8), F, S)}),
        ("nan-order", {}, {"nan": True}),
        ("packed-dtype", {}, {"src": ((8, 12), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_max8_rules(rule, good, bad):
    pair(rule, lambda change: most(**change), (good,), (bad,))


# nc_find_index8.


def where(data, vals, dtype=nl.uint32, buffer=S):
    dst = nl.ndarray((data.shape[0], 8), dtype=dtype, buffer=buffer)
    nisa.nc_find_index8(dst, load(data), load(vals))
    return save(dst)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("shape", [(128, 8), (33, 100), (5, 4, 4)])
def test_find_index_of_the_largest(dtype, shape):
    def kernel(x):
        return where(x, largest(x), dtype)

    x = values(shape)
    rows = x.reshape(len(x), -1)
    expected = np.argsort(-rows, axis=1, kind="stable")[:, :8]
    same_bits(simulate(kernel)(x), expected.astype(NUMPY[dtype]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_find_index_dtypes(dtype):
    data, vals = few((9, 24), dtype, 1, 12), few((9, 8), dtype, 2, 15)
    expected = ascending(f32(data), f32(vals))
    assert (expected >= 0).any() and ((expected == NOWHERE).any() or dtype == "bool")
    same_bits(simulate(where)(data, vals), indices(expected, U32))


def test_find_index_mixes_dtypes():
    data, vals = values((4, 16), "int16", 1, low=0, high=9), values((4, 8), "uint8", 2, high=12)
    same_bits(simulate(where)(data, vals), indices(ascending(data, vals), U32))


def test_duplicate_values_advance_and_missing_ones_give_all_ones():
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    np.testing.assert_array_equal(simulate(where)(data, vals), [[2, 4, 5, 6, 7, 8, 9, 10]])
    vals = np.array([[2, 2, 9, 1, 2, -1, 4, 8]], np.float32)
    lost = 2**32 - 1
    np.testing.assert_array_equal(
        simulate(where)(data, vals), [[1, lost, lost, 0, lost, lost, 3, 4]]
    )
    lost = 2**16 - 1
    got = simulate(lambda d, v: where(d, v, nl.uint16, P))(data, vals)
    np.testing.assert_array_equal(got, [[1, lost, lost, 0, lost, lost, 3, 4]])


def test_zeros_of_both_signs_are_equal_and_nan_in_the_data_is_not_found():
    data = np.array([[np.nan, -0.0, 1, np.inf, 2, 3, 4, 0.0]], np.float32)
    vals = np.array([[0.0, -0.0, np.inf, 1, 2, 3, 4, 5]], np.float32)
    lost = 2**32 - 1
    np.testing.assert_array_equal(simulate(where)(data, vals), [[1, 7, 3, 2, 4, 5, 6, lost]])


def test_find_index_of_views():
    def kernel(data, vals):
        dst = tile((6, 8, 2), nl.uint32)
        nisa.nc_find_index8(dst[:, :, 1], load(data)[:, :, ::2], load(vals).reshape((6, 2, 4)))
        return save(dst)

    data, vals = values((6, 3, 8), "int8", 1, low=0, high=5), values((6, 8), "int8", 2, 0, 6)
    expected = ascending(data[:, :, ::2].reshape(6, -1), vals)
    got = simulate(kernel)(data, vals)
    same_bits(np.ascontiguousarray(got[:, :, 1]), indices(expected, U32))


def finding(dst=((8, 8), U32, S), data=((8, 12), F, S), vals=((8, 8), F, S), nan=None):
    made, source, wanted = tile(*dst), tile(*data), tile(*vals)
    if nan is not None:
        nisa.memset((source if nan == "data" else wanted)[:, 3:4], float("nan"))
    nisa.nc_find_index8(made, source, wanted)  # rule


def test_find_index_of_all_widths_up_to_the_limit():
    simulate(lambda: finding(data=((8, 16384), "bfloat16", S), dst=((8, 8), "uint16", S)))()


SEARCH_RULES = [
    ("search-width", {"data": ((8, 8), F, S)}, {"data": ((8, 7), F, S)}),
    ("search-width", {}, {"data": ((8, 16385), "bfloat16", S)}),
    ("tile-rank", {"data": ((8, 4, 3), F, S)}, {"data": ((8, 2, 3, 2), F, S)}),
    ("tile-rank", {"vals": ((8, 4, 2), F, S)}, {"vals": ((8, 2, 2, 2), F, S)}),
    ("eight-values", {"vals": ((8, 2, 4), F, P)}, {"vals": ((8, 9), F, S)}),
    ("partition-count", {}, {"vals": ((4, 8), F, S)}),
    ("nan-order", {"nan": "data"}, {"nan": "vals"}),
    ("packed-dtype", {}, {"data": ((8, 12), "float8_e5m2_x4", S)}),
    ("packed-dtype", {}, {"vals": ((8, 8), "float8_e5m2_x4", S)}),
]  # fmt: skip
INDEX_RULES = [
    ("operand-dtype", {"dst": ((8, 8), "uint16", S)}, {"dst": ((8, 8), "int32", S)}),
    ("eight-values", {}, {"dst": ((8, 12), U32, S)}),
    ("partition-count", {}, {"dst": ((4, 8), U32, S)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", SEARCH_RULES + INDEX_RULES)
def test_find_index_rules(rule, good, bad):
    pair(rule, lambda change: finding(**change), (good,), (bad,))


# nc_match_replace8.


def replaced(data, vals, imm=-1e9, index=nl.uint32, out=None):
    dst = nl.ndarray(data.shape, dtype=out or data.dtype)
    where = None if index is None else nl.ndarray((data.shape[0], 8), dtype=index)
    nisa.nc_match_replace8(dst, load(data), load(vals), imm, where)
    return save(dst) if index is None else (save(dst), save(where))


def replacement(data, vals, imm):
    """float32 result and columns, from the stub's description."""
    rows = f32(data).reshape(len(data), -1).copy()
    columns = descending(rows, f32(vals).reshape(len(data), 8))
    for row, slots in enumerate(columns):
        rows[row, slots[slots >= 0]] = imm
    return rows.reshape(data.shape), columns


def test_duplicates_fill_the_last_slots_first():
    """The example of the stub: the opposite order of nc_find_index8."""
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    result, where = simulate(replaced)(data, vals, 0.0)
    np.testing.assert_array_equal(where, [[2, 10, 9, 8, 7, 6, 5, 4]])
    np.testing.assert_array_equal(result, [[1, 2, 0, 4] + 7 * [0]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", ["uint16", "uint32"])
def test_match_replace_dtypes(dtype, index):
    data, vals = few((9, 24), dtype, 1, 12), few((9, 8), dtype, 2, 15)
    expected, columns = replacement(data, vals, np.float32(2.5))
    result, where = simulate(replaced)(data, vals, 2.5, index)
    same_bits(result, converted(expected, dtype))
    same_bits(where, indices(columns, index))
    wide = simulate(lambda d, v: replaced(d, v, 2.5, None, nl.float32))(data, vals)
    same_bits(wide, expected)


def test_replacing_with_a_searched_value_does_not_match_it_again():
    data = np.array([[5, 4, 3, 2, 1, 0, 6, 7, 9]], np.float32)
    vals = np.array([[4, 4, 5, 0, 0, 9, 9, 9]], np.float32)
    expected, columns = replacement(data, vals, np.float32(4))
    result, where = simulate(replaced)(data, vals, 4.0)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(where, indices(columns, U32))


def test_top_16_by_two_rounds_in_place():
    def kernel(x):
        t, best = load(x), nl.ndarray((x.shape[0], 16), dtype=F)
        for half in range(2):
            part = best[:, 8 * half : 8 * half + 8]
            nisa.max8(part, t)
            nisa.nc_match_replace8(t, t, part, float("-inf"))
        return save(best), save(t)

    x = values((32, 3, 20))
    best, rest = simulate(kernel)(x)
    rows = x.reshape(32, -1)
    np.testing.assert_array_equal(best, np.sort(rows, axis=1)[:, :-17:-1])
    kept = np.where(rows < best[:, 15:16], rows, -np.inf)
    np.testing.assert_array_equal(rest.reshape(32, -1), kept)


def replacing(
    dst=((8, 12), F, S), data=((8, 12), F, S), vals=((8, 8), F, S), imm=1.0, dst_idx=None,
    nan=None,
):  # fmt: skip
    made, source, wanted = tile(*dst), tile(*data), tile(*vals)
    where = None if dst_idx is None else tile(*dst_idx)
    if nan is not None:
        nisa.memset((source if nan == "data" else wanted)[:, 3:4], float("nan"))
    nisa.nc_match_replace8(made, source, wanted, imm, where)  # rule


REPLACE_RULES = [
    ("operand-dtype", {"dst_idx": ((8, 8), "uint16", S)}, {"dst_idx": ((8, 8), "int16", S)}),
    ("eight-values", {"dst_idx": ((8, 8), U32, P)}, {"dst_idx": ((8, 2, 4), U32, S)}),
    ("free-size", {"dst": ((8, 3, 4), "bfloat16", P)}, {"dst": ((8, 8), F, S)}),
    ("operand-type", {"imm": 1}, {"imm": None}),
    ("packed-dtype", {}, {"dst": ((8, 12), "float8_e5m2_x4", S)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", SEARCH_RULES + REPLACE_RULES)
def test_match_replace_rules(rule, good, bad):
    def kernel(change):
        if "data" in change:
            change = {"dst": (change["data"][0], F, S), **change}
        replacing(**change)

    pair(rule, kernel, (good,), (bad,))
