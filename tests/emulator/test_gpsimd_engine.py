"""GpSimd Engine: iota and affine_select."""

from .support import (
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
F = "float32"


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16", "uint16"])
def test_iota(dtype):
    def kernel(x):
        dst = nl.ndarray((16, 24), dtype=dtype)
        nisa.iota(dst, [[100, 2], [-3, 4], [1, 3]], offset=20, channel_multiplier=5)
        return save(dst)

    p, a, b, c = np.ogrid[0:16, 0:2, 0:4, 0:3]
    expected = (20 + 5 * p + 100 * a - 3 * b + c).reshape(16, 24)
    got = simulate(kernel)(0)
    if dtype == "bfloat16":
        same_bits(got, rounded(expected, dtype))
    else:
        np.testing.assert_array_equal(got, expected)


def test_iota_wraps_in_int32_and_saturates_in_narrow_types():
    def kernel():
        wide, narrow = nl.ndarray((1, 2), dtype=nl.int32), nl.ndarray((1, 2), dtype=nl.uint8)
        nisa.iota(wide, [[1, 2]], offset=2**31 - 1)
        nisa.iota(narrow, [[300, 2]], offset=-5)
        return save(wide), save(narrow)

    wide, narrow = simulate(kernel)()
    np.testing.assert_array_equal(wide, [[2**31 - 1, -(2**31)]])
    np.testing.assert_array_equal(narrow, [[0, 255]])


COMPARISONS = {
    "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "less": np.less, "less_equal": np.less_equal,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(COMPARISONS))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_affine_select(name, dtype):
    def kernel(x):
        dst = nl.ndarray((16, 3, 8), dtype=dtype)
        nisa.affine_select(
            dst, [[0, 3], [-1, 8]], 1, load(x), -9.0, cmp_op=getattr(nl, name), offset=2
        )
        return save(dst)

    x = values((16, 24), dtype)
    p, _, j = np.ogrid[0:16, 0:3, 0:8]
    chosen = COMPARISONS[name](np.broadcast_to(2 + p - j, (16, 3, 8)), 0)
    expected = np.where(chosen, x.reshape(16, 3, 8), np.array(-9).astype(x.dtype))
    same_bits(simulate(kernel)(x), expected.astype(x.dtype))


def test_affine_select_converts_and_works_in_place():
    def kernel(x):
        t = load(x)
        nisa.affine_select(t, [[-1, 8]], 1, t, 0.0, cmp_op=nl.greater_equal)
        dst = nl.ndarray((8, 8), dtype=nl.int32)
        nisa.affine_select(dst, [[-1, 8]], 1, t, 7.0, cmp_op=nl.greater_equal)
        return save(t), save(dst)

    x = values((8, 8))
    lower, integers = simulate(kernel)(x)
    same_bits(lower, np.tril(x))
    np.testing.assert_array_equal(integers, np.where(np.tri(8) > 0, np.rint(x), 7))


def generated(dst=((8, 6), F, S), pattern=((1, 6),), **options):
    nisa.iota(tile(*dst), pattern, **options)  # rule


def selected(
    dst=((8, 6), F, S), on_true=((8, 6), F, S), on_false=0.0, pattern=((1, 6),), **options
):
    nisa.affine_select(tile(*dst), pattern, 1, tile(*on_true), on_false, **options)  # rule


@pytest.mark.parametrize("function", [generated, selected])
@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("affine-pattern", {}, {"pattern": ((1, 5),)}),
        ("affine-pattern", {"pattern": ((1, 1),) * 3 + ((1, 6),)},
         {"pattern": ((1, 1),) * 4 + ((1, 6),)}),
        ("affine-pattern", {}, {"pattern": ((1, 0),)}),
        ("affine-pattern", {}, {"pattern": (1, 6)}),
        ("buffer-sbuf", {}, {"dst": ((8, 6), F, P)}),
        ("operand-type", {"offset": np.int32(3)}, {"offset": 3.0}),
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
    ],
)
def test_affine_select_rules(rule, good, bad):
    pair(rule, lambda change: selected(**change), (good,), (bad,))
