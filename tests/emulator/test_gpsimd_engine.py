"""GpSimd Engine: iota, affine_select and the reduction over partitions."""

from .numeric import DTYPES, FLOATS, INTEGERS, converted, f32
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
F = "float32"
LARGEST = 2**31 - 1


# iota.


def cast(integers, dtype):
    """int32 values in the dtype of dst: rounded if it is a float, saturated if an integer."""
    if "int" in dtype:
        limits = np.iinfo(NUMPY[dtype])
        return np.clip(integers, limits.min, limits.max).astype(NUMPY[dtype])
    return converted(f32(integers), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_iota(dtype):
    def kernel():
        dst = nl.ndarray((16, 24), dtype=dtype)
        nisa.iota(dst, [[100, 2], [-3, 4], [1, 3]], offset=20, channel_multiplier=5)
        return save(dst)

    expected = np.empty((16, 24), np.int64)
    for p in range(16):
        numbers = [20 + 5 * p + 100 * a - 3 * b + c
                   for a in range(2) for b in range(4) for c in range(3)]  # fmt: skip
        expected[p] = numbers
    same_bits(simulate(kernel)(), cast(expected, dtype))


def test_iota_of_four_dimensions_into_a_strided_view():
    def kernel():
        whole = tile((8, 2, 24), nl.int32, value=-7)
        view = whole[:, 0:2, 0:24:2]
        nisa.iota(view, [[1000, 2], [100, 2], [10, 2], [1, 3]])
        return save(whole)

    w, z, y, x = np.ogrid[0:2, 0:2, 0:2, 0:3]
    expected = np.full((8, 2, 24), -7, np.int32)
    expected[:, :, ::2] = (1000 * w + 100 * z + 10 * y + x).reshape(1, 2, 12)
    same_bits(simulate(kernel)(), expected)


def test_iota_counts_partitions_from_the_first_of_dst():
    def kernel():
        whole = tile((96, 3), nl.int32)
        nisa.iota(whole[64:96, :], [[1, 3]], offset=5, channel_multiplier=10)
        return save(whole)

    expected = np.zeros((96, 3), np.int32)
    expected[64:] = 5 + 10 * np.arange(32)[:, None] + np.arange(3)
    same_bits(simulate(kernel)(), expected)


def test_iota_wraps_in_int32_and_saturates_in_narrow_types():
    def kernel():
        wide, narrow = nl.ndarray((1, 2), dtype=nl.int32), nl.ndarray((1, 2), dtype=nl.uint8)
        far = nl.ndarray((4, 3), dtype=nl.int32)
        nisa.iota(wide, [[1, 2]], offset=LARGEST)
        nisa.iota(narrow, [[300, 2]], offset=-5)
        nisa.iota(far, [[2**30, 3]], offset=-(2**31), channel_multiplier=LARGEST)
        return save(wide), save(narrow), save(far)

    wide, narrow, far = simulate(kernel)()
    np.testing.assert_array_equal(wide, [[LARGEST, -(2**31)]])
    np.testing.assert_array_equal(narrow, [[0, 255]])
    exact = [[-(2**31) + LARGEST * p + 2**30 * i for i in range(3)] for p in range(4)]
    np.testing.assert_array_equal(far, (np.array(exact) + 2**31) % 2**32 - 2**31)


# affine_select.

COMPARISONS = {
    "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "less": np.less, "less_equal": np.less_equal,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_affine_select_compares(name):
    def kernel(x):
        dst = nl.ndarray((16, 3, 8), dtype=F)
        nisa.affine_select(
            dst, [[0, 3], [-1, 8]], 1, load(x), -9.0, cmp_op=getattr(nl, name), offset=2
        )
        return save(dst)

    x = values((16, 24))
    p, _, j = np.ogrid[0:16, 0:3, 0:8]
    chosen = COMPARISONS[name](np.broadcast_to(2 + p - j, (16, 3, 8)), 0)
    same_bits(simulate(kernel)(x), np.where(chosen, x.reshape(16, 3, 8), np.float32(-9)))


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_affine_select_converts(source, dtype):
    def kernel(x):
        dst = nl.ndarray((8, 8), dtype=dtype)
        nisa.affine_select(dst, [[-1, 8]], 1, load(x), 1.0, cmp_op=nl.greater_equal)
        return save(dst)

    x = values((8, 8), source)
    kept = x if source == dtype else converted(f32(x), dtype)
    same_bits(simulate(kernel)(x), np.where(np.tri(8) > 0, kept, np.ones(1, NUMPY[dtype])))


def test_affine_select_keeps_every_bit_of_its_own_dtype():
    def kernel(x):
        t = load(x)
        nisa.affine_select(t, [[-1, 4]], 1, t, 0.0, cmp_op=nl.greater_equal)
        return save(t)

    # float32 would round this number to 2**24.
    odd = np.full((4, 4), 2**24 + 1, np.int32)
    same_bits(simulate(kernel)(odd), np.tril(odd))
    payload = np.full((4, 4), 0x7F812345, np.uint32).view(np.float32)
    expected = np.tril(np.full((4, 4), 0x7F812345, np.uint32)).view(np.float32)
    same_bits(simulate(kernel)(payload), expected)


def test_affine_select_on_views_in_place():
    def kernel(x):
        t = load(x)
        view = t[32:64, 1:16:2]
        nisa.affine_select(view, [[-1, 8]], 1, view, -1.0, cmp_op=nl.greater_equal)
        row = load(x)[0:32, 0:1].broadcast(1, 8)
        dst = nl.ndarray((32, 8), dtype=F)
        nisa.affine_select(dst, [[-1, 8]], 1, row, -1.0, cmp_op=nl.less, offset=-3)
        return save(t), save(dst)

    x = values((64, 16))
    lower = np.tri(32, 8) > 0
    expected = x.copy()
    expected[32:, 1::2] = np.where(lower, x[32:, 1::2], -1)
    changed, filled = simulate(kernel)(x)
    same_bits(changed, expected)
    p, j = np.ogrid[0:32, 0:8]
    same_bits(filled, np.where(p - j - 3 < 0, x[:32, :1], np.float32(-1)))


def test_the_offset_may_come_from_a_register():
    def kernel(x, start):
        register = nisa.register_alloc()
        nisa.register_load(register, load(start))
        selected, counted = nl.ndarray((8, 8), dtype=F), nl.ndarray((8, 8), dtype=nl.int32)
        nisa.affine_select(selected, [[-1, 8]], 1, load(x), 0.0, nl.greater_equal, offset=register)
        nisa.iota(counted, [[1, 8]], offset=register)
        return save(selected), save(counted)

    x = values((8, 8))
    selected, counted = simulate(kernel)(x, np.array([[-2]], np.int32))
    same_bits(selected, np.tril(x, -2))
    same_bits(counted, np.tile(np.arange(-2, 6, dtype=np.int32), (8, 1)))


def generated(dst=((8, 6), F, S), pattern=((1, 6),), multiplier=1, **options):
    nisa.iota(tile(*dst), pattern, channel_multiplier=multiplier, **options)  # rule


def selected(
    dst=((8, 6), F, S), on_true=((8, 6), F, S), on_false=0.0, pattern=((1, 6),), multiplier=1,
    **options,
):  # fmt: skip
    target, source = tile(*dst), tile(*on_true)
    nisa.affine_select(target, pattern, multiplier, source, on_false, **options)  # rule


@pytest.mark.parametrize("function", [generated, selected])
@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("affine-pattern", {}, {"pattern": ((1, 5),)}),
        ("affine-pattern", {"pattern": ((1, 1),) * 3 + ((1, 6),)},
         {"pattern": ((1, 1),) * 4 + ((1, 6),)}),
        ("affine-pattern", {}, {"pattern": ((1, 0),)}),
        ("affine-pattern", {}, {"pattern": ()}),
        ("affine-pattern", {}, {"pattern": (1, 6)}),
        ("affine-pattern", {"pattern": ((np.int32(2), 6),)}, {"pattern": ((2.0, 6),)}),
        ("affine-pattern", {}, {"pattern": ((True, 6),)}),
        ("int32-range", {"pattern": ((LARGEST, 6),)}, {"pattern": ((LARGEST + 1, 6),)}),
        ("int32-range", {"offset": -(2**31)}, {"offset": -(2**31) - 1}),
        ("int32-range", {"multiplier": LARGEST}, {"multiplier": 2**31}),
        ("buffer-sbuf", {}, {"dst": ((8, 6), F, P)}),
        ("operand-type", {"offset": np.int32(3)}, {"offset": 3.0}),
        ("operand-type", {"multiplier": 2}, {"multiplier": 2.0}),
        ("packed-dtype", {}, {"dst": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_pattern_rules(function, rule, good, bad):
    pair(rule, lambda change: function(**change), (good,), (bad,))


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-sbuf", {}, {"on_true": ((8, 6), F, P)}),
        ("operator-kind", {"cmp_op": nl.less}, {"cmp_op": nl.add}),
        ("operator-kind", {"cmp_op": nl.less}, {"cmp_op": nl.bitwise_and}),
        ("operand-type", {"on_false": 1}, {"on_false": None}),
        ("free-size", {"on_true": ((8, 2, 3), F, S)}, {"on_true": ((8, 1), F, S)}),
        ("partition-count", {}, {"on_true": ((9, 6), F, S)}),
        ("packed-dtype", {}, {"on_true": ((8, 6), "float8_e5m2_x4", S)}),
    ],
)
def test_affine_select_rules(rule, good, bad):
    pair(rule, lambda change: selected(**change), (good,), (bad,))


# tensor_partition_reduce.

REDUCTIONS = {
    "add": lambda x: np.add.reduce(x, axis=0),
    "average": lambda x: np.add.reduce(x, axis=0) / np.float32(len(x)),
    "maximum": lambda x: np.max(x, axis=0),
}


def folded(x, op, dtype, shape=None):
    dst = nl.ndarray(shape or (1, *x.shape[1:]), dtype=dtype)
    nisa.tensor_partition_reduce(dst, op, load(x))
    return save(dst)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_partition_reduce(name, dtype):
    # Whole numbers, so that a sum does not depend on its order.
    x = values((16, 6), "int8", low=0, high=3).astype(NUMPY[dtype])
    got = simulate(folded)(x, getattr(nl, name), dtype)
    same_bits(got, converted(REDUCTIONS[name](f32(x)), dtype)[None])


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_partition_reduce_converts(dtype):
    x = values((16, 6), "int8", low=-3, high=9).astype(np.float32)
    got = simulate(folded)(x, nl.add, dtype)
    same_bits(got, converted(x.sum(axis=0), dtype)[None])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["bitwise_or", "bitwise_and"])
def test_partition_reduce_of_bits(dtype, name):
    limits = np.iinfo(NUMPY[dtype])
    x = values((5, 4, 3), dtype, low=limits.min, high=limits.max)
    expected = getattr(np, name).reduce(x, axis=0)[None]
    same_bits(simulate(folded)(x, getattr(nl, name), dtype), expected)


def test_partition_reduce_of_views():
    def kernel(x):
        t = load(x)
        dst = tile((64, 4))
        nisa.tensor_partition_reduce(dst[32:33, :], nl.max, t[64:96, 0:8:2])
        lone = nl.ndarray((1, 2, 2), dtype=F)
        nisa.tensor_partition_reduce(lone, nl.average, t[0:1, 0:1].broadcast(1, 4))
        return save(dst), save(lone)

    x = values((96, 8))
    row, lone = simulate(kernel)(x)
    expected = np.zeros((64, 4), np.float32)
    expected[32] = x[64:96, ::2].max(axis=0)
    same_bits(row, expected)
    same_bits(lone, np.full((1, 2, 2), x[0, 0]))


def reduced(dst=((1, 6), F, S), data=((8, 6), F, S), op=nl.add):
    target, source = tile(*dst), tile(*data)
    nisa.tensor_partition_reduce(target, op, source)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("partition-reduce-shape", {"dst": ((1, 2, 3), F, S)}, {"dst": ((1, 5), F, S)}),
        ("partition-reduce-shape", {}, {"dst": ((8, 6), F, S)}),
        ("operator-reduce", {"op": nl.average}, {"op": nl.minimum}),
        ("operator-reduce", {"op": nl.max}, {"op": nl.multiply}),
        ("operator", {}, {"op": np.add}),
        ("buffer-sbuf", {}, {"data": ((8, 6), F, P)}),
        ("buffer-sbuf", {}, {"dst": ((1, 6), F, P)}),
        ("packed-dtype", {}, {"data": ((8, 6), "float8_e5m2_x4", S)}),
        ("packed-dtype", {}, {"dst": ((1, 6), "float8_e5m2_x4", S)}),
        ("integer-dtype", {}, {"op": nl.bitwise_or}),
        ("bitvec-width",
         {"op": nl.bitwise_or, "data": ((8, 6), "int16", S), "dst": ((1, 6), "uint16", S)},
         {"op": nl.bitwise_or, "data": ((8, 6), "int16", S), "dst": ((1, 6), "int32", S)}),
    ],
)  # fmt: skip
def test_partition_reduce_rules(rule, good, bad):
    pair(rule, lambda change: reduced(**change), (good,), (bad,))
