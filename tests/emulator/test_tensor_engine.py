"""nc_matmul: numbers against NumPy.

Most operands are small integers, which every dtype holds exactly and whose products and sums are
exact in float32 whatever the order: results are compared bit for bit.
"""

import itertools

from .support import (
    NUMPY,
    load,
    ml_dtypes,
    nisa,
    nl,
    np,
    pytest,
    same_bits,
    save,
    simulate,
    values,
)  # fmt: skip

DOUBLE = nisa.matmul_perf_mode.double_row
NARROW = ("bfloat16", "float16", "float8_e4m3", "float8_e5m2")
WIDE = ("float32", "tfloat32")


def integers(shape, dtype="float32", seed=0):
    """Integers from -4 to 4 in the storage of an NKI dtype."""
    generator = np.random.default_rng((seed, *shape))
    return generator.integers(-4, 5, shape).astype(np.float32).astype(NUMPY.get(dtype, np.float32))


def matmul(w, x, columns=None, dtypes=(None, None), **options):
    stationary, moving = load(w, dtypes[0]), load(x, dtypes[1])
    shape = (stationary.size // w.shape[0], moving.size // x.shape[0])
    acc = nl.ndarray(columns or shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=stationary, moving=moving, **options)
    return save(acc)


def exact(w, x):
    flat = [a.astype(np.float64).reshape(len(a), -1) for a in (w, x)]
    return flat[0].T @ flat[1]


@pytest.mark.parametrize(
    "first, second", [*itertools.product(NARROW, NARROW), *itertools.product(WIDE, WIDE)]
)
def test_every_pair_of_dtypes(first, second):
    w, x = integers((100, 33), first, 1), integers((100, 200), second, 2)
    got = simulate(matmul)(w, x, None, (first, second))
    np.testing.assert_array_equal(got, exact(w, x))
    assert got.dtype == np.float32


@pytest.mark.parametrize(
    "first, second", list(itertools.product((*NARROW, "float8_e4m3fn"), repeat=2))
)
def test_every_pair_of_dtypes_with_ocp_float8(on_target, first, second):
    if {first, second} == {"float8_e4m3", "float8_e4m3fn"}:
        return  # refused: test_tensor_engine_rules.py
    on_target("trn3")
    w, x = integers((64, 8), first, 1), integers((64, 9), second, 2)
    np.testing.assert_array_equal(simulate(matmul)(w, x), exact(w, x))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("sizes", [(128, 128, 512), (1, 1, 1), (5, 7, 3)])
def test_full_and_partial_tiles(dtype, sizes):
    depth, columns, width = sizes
    w, x = values((depth, columns), dtype, 1), values((depth, width), dtype, 2)
    got, expected = simulate(matmul)(w, x), exact(w, x)
    # Each of the sum's roundings is at most half an ulp of a partial sum.
    bound = depth * 2.0**-24 * exact(np.abs(w), np.abs(x))
    assert (np.abs(got - expected) <= bound).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "columns, width", [(1, 1), (1, 512), (128, 1), (4, 64), (33, 49), (128, 511)]
)
def test_a_value_does_not_depend_on_the_shape_of_the_product(dtype, columns, width):
    """A kernel that shares out its work otherwise gives the same bits, as on the chip."""
    w, x = values((128, 128), dtype, 1), values((128, 512), dtype, 2)
    part = simulate(matmul)(w[:, :columns], x[:, :width])
    same_bits(part, simulate(matmul)(w, x)[:columns, :width])


def test_float8_products_are_exact():
    """Every finite float8 times every other: the product needs at most 8 bits."""
    codes = np.arange(256, dtype=np.uint8)
    left = codes[np.isfinite(codes.view(ml_dtypes.float8_e5m2).astype(np.float32))]
    right = codes[np.isfinite(codes.view(ml_dtypes.float8_e4m3).astype(np.float32))]
    for part in (left[:120], left[120:]):
        w = part.view(ml_dtypes.float8_e5m2)[None]
        x = right.view(ml_dtypes.float8_e4m3)[None]
        np.testing.assert_array_equal(simulate(matmul)(w, x), exact(w, x))


def test_float32_operands_are_not_narrowed():
    w = np.full((1, 1), 1 + 2.0**-23, np.float32)
    x = np.full((1, 1), 1 + 2.0**-12, np.float32)
    expected = np.float32(np.float64(w[0, 0]) * np.float64(x[0, 0]))
    assert simulate(matmul)(w, x)[0, 0] == expected


def test_tfloat32_operands_have_ten_mantissa_bits():
    """Also when a float32 tile is only seen as tfloat32."""

    def kernel(w, x):
        acc = nl.ndarray((1, 3), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, load(w).view(nl.tfloat32), load(x).view(nl.tfloat32))
        return save(acc)

    step = 2.0**-10
    x = np.array([[1 + step, 1 + step / 2, 1 + 0.75 * step]], np.float32)
    one = np.ones((1, 1), np.float32)
    expected = [[1 + step, 1.0, 1 + step]]
    np.testing.assert_array_equal(simulate(kernel)(one, x), expected)
    np.testing.assert_array_equal(
        simulate(matmul)(one, x, None, ("tfloat32", "tfloat32")), expected
    )
    np.testing.assert_array_equal(simulate(matmul)(one, x, None, ("tfloat32", "float32")), x)


def test_products_use_rounded_operands_and_float32_sums():
    w = np.full((128, 1), 1 + 2.0**-6, NUMPY["bfloat16"])
    x = np.full((128, 1), 1 + 2.0**-7, NUMPY["bfloat16"])
    expected = 128 * (1 + 2.0**-6) * (1 + 2.0**-7)
    assert simulate(matmul)(w, x)[0, 0] == np.float32(expected)


def test_infinity_and_nan_spread_as_in_ieee_arithmetic():
    w = np.ones((4, 3), np.float32)
    x = np.ones((4, 2), np.float32)
    w[1, 0], w[2, 1], x[0, 1] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        expected = np.array([[np.inf, np.nan], [np.nan, np.nan], [4, -np.inf]], np.float32)
    np.testing.assert_array_equal(simulate(matmul)(w, x), expected)


def test_free_dimensions_are_flattened():
    w, x = integers((32, 2, 5), seed=1), integers((32, 3, 2, 2), seed=2)
    got = simulate(matmul)(w, x, (10, 3, 4))
    np.testing.assert_array_equal(got.reshape(10, 12), exact(w, x))


def test_strided_and_repeated_operands():
    def kernel(w, x):
        stationary, moving = load(w), load(x)
        acc = nl.ndarray((8, 10), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, stationary[:, 0:1].broadcast(1, 8), moving[:, ::2])
        other = nl.ndarray((6, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(other, stationary[:, ::2][:, 0:6], moving[:, 3:4].broadcast(1, 4))
        third = nl.ndarray((3, 2, 5), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(third.permute((0, 2, 1)), stationary[:, 0:3],
                       moving.reshape((40, 5, 4))[:, :, 0:2])  # fmt: skip
        window = nl.ndarray((2, 3, 4), dtype=nl.float32, buffer=nl.psum)
        rows = moving.ap([[20, 40], [2, 3], [1, 4]])  # overlapping windows, as in a convolution
        nisa.nc_matmul(window, stationary[:, 0:2], rows)
        return save(acc), save(other), save(third), save(window)

    w, x = integers((40, 16), seed=1), integers((40, 20), seed=2)
    first, second, third, window = simulate(kernel)(w, x)
    np.testing.assert_array_equal(first, np.tile(w[:, 0] @ x[:, ::2], (8, 1)))
    np.testing.assert_array_equal(
        second, np.repeat((w[:, ::2][:, :6].T @ x[:, 3])[:, None], 4, axis=1)
    )
    expected = np.einsum("km,kab->mab", w[:, :3], x.reshape(40, 5, 4)[:, :, :2])
    np.testing.assert_array_equal(third, expected.transpose(0, 2, 1))
    expected = [[w[:, m] @ x[:, 2 * i : 2 * i + 4] for i in range(3)] for m in range(2)]
    np.testing.assert_array_equal(window, expected)


def test_one_tile_as_both_operands():
    def kernel(x):
        data = load(x)
        acc = nl.ndarray((12, 12), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, data, data)
        return save(acc)

    x = integers((30, 12))
    np.testing.assert_array_equal(simulate(kernel)(x), exact(x, x))


# double_row: the contraction runs over the partitions and the first free dimension.

FP8_PAIRS = [("float8_e4m3", "float8_e4m3"), ("float8_e4m3", "float8_e5m2"),
             ("float8_e5m2", "float8_e4m3"), ("float8_e5m2", "float8_e5m2")]  # fmt: skip


@pytest.mark.parametrize("first, second", FP8_PAIRS)
@pytest.mark.parametrize("shape", [(128, 128, 512), (16, 4, 8), (1, 1, 1)])
def test_double_row(shape, first, second):
    depth, columns, width = shape
    x, y = integers((columns, 2 * depth), first, 1), integers((2 * depth, width), second, 2)
    # Trainium2 guide, "Double FP8 Matmul Performance": the halves of the contraction dimension
    # are the two slices of the first free dimension.
    w = np.stack([x[:, :depth].T, x[:, depth:].T], axis=1)
    z = np.stack([y[:depth], y[depth:]], axis=1)

    def kernel(w, z):
        acc = nl.ndarray((columns, width), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, load(w), load(z), perf_mode=DOUBLE)
        return save(acc)

    expected = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_array_equal(simulate(kernel)(w, z), expected)


def test_double_row_with_more_dimensions_strides_row_tiles_and_accumulation():
    def kernel(w, x):
        stationary, moving = load(w), load(x)
        acc = nl.ndarray((6, 3, 4), dtype=nl.float32, buffer=nl.psum)
        for row in (0, 64):
            rows = slice(row, row + 64)
            nisa.nc_matmul(
                acc, stationary[rows].reshape((64, 2, 2, 3)), moving[rows, :, ::2, :],
                perf_mode=DOUBLE, tile_position=(row, 0), tile_size=(64, 128),
            )  # fmt: skip
        return save(acc)

    w, x = integers((128, 2, 6), "float8_e5m2", 1), integers((128, 2, 6, 4), "float8_e4m3", 2)
    wide = [a.astype(np.float64) for a in (w, x[:, :, ::2])]
    np.testing.assert_array_equal(simulate(kernel)(w, x), np.einsum("kim,kiab->mab", *wide))


@pytest.mark.parametrize("second", ["float8_e4m3fn", "float8_e5m2"])
def test_double_row_takes_ocp_float8_on_gen4(on_target, second):
    on_target("trn3")
    w, x = integers((8, 2, 3), "float8_e4m3fn", 1), integers((8, 2, 5), second, 2)
    got = simulate(matmul)(w, x, (3, 5), perf_mode=DOUBLE)
    wide = [a.astype(np.float64) for a in (w, x)]
    np.testing.assert_array_equal(got, np.einsum("kim,kin->mn", *wide))


# Row tiles.


@pytest.mark.parametrize("rows", [32, 64])
def test_row_tiles_of_one_operand(rows):
    def kernel(w, x):
        stationary, moving = load(w), load(x)
        outs = []
        for row in range(0, 128, rows):
            acc = nl.ndarray((8, 10), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(
                acc, stationary[row : row + rows], moving[row : row + rows],
                tile_position=(row, 0), tile_size=(rows, 128),
            )  # fmt: skip
            outs.append(save(acc))
        return tuple(outs)

    w, x = integers((128, 8), seed=1), integers((128, 10), seed=2)
    for row, got in zip(range(0, 128, rows), simulate(kernel)(w, x)):
        np.testing.assert_array_equal(got, exact(w[row : row + rows], x[row : row + rows]))


def test_row_tiles_accumulate_into_one_result():
    def kernel(w, x):
        acc = nl.ndarray((8, 10), dtype=nl.float32, buffer=nl.psum)
        stationary, moving = load(w), load(x)
        for row in range(0, 128, 32):
            nisa.nc_matmul(
                acc, stationary[row : row + 20], moving[row : row + 20],
                tile_position=(row, 0), tile_size=(32, 128),
            )  # fmt: skip
        return save(acc)

    w, x = integers((128, 8), seed=1), integers((128, 10), seed=2)
    used = np.arange(128) % 32 < 20
    np.testing.assert_array_equal(simulate(kernel)(w, x), exact(w[used], x[used]))


# gen4: bfloat16 results, and a dst as large as the whole PSUM.


@pytest.mark.parametrize("dst, width", [("float32", 4096), ("bfloat16", 8192)])
def test_gen4_fills_the_whole_psum_with_one_matmul(on_target, dst, width):
    on_target("trn3")

    def kernel(w, x):
        acc = nl.ndarray((4, width), dtype=dst, buffer=nl.psum)
        nisa.nc_matmul(acc, load(w), load(x))
        return save(acc)

    w, x = integers((8, 4), "bfloat16", 1), integers((8, width), "bfloat16", 2)
    got = simulate(kernel)(w, x)
    same_bits(got, exact(w, x).astype(NUMPY[dst]))


def test_gen4_rounds_bfloat16_results_to_even_after_a_float32_sum(on_target):
    on_target("trn3")

    def kernel(w, x):
        acc = nl.ndarray((1, 4), dtype=nl.bfloat16, buffer=nl.psum)
        nisa.nc_matmul(acc, load(w), load(x))
        return save(acc)

    # 256 + ... : bfloat16 has steps of 2 there; 257 and 259 are ties.
    w = np.ones((2, 1), NUMPY["bfloat16"])
    x = np.array([[256, 256, 256, 256], [1, 3, 1.0078125, 0.9921875]], NUMPY["bfloat16"])
    np.testing.assert_array_equal(simulate(kernel)(w, x).astype(np.float32), [[256, 260, 258, 256]])
