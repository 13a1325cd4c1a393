"""nc_matmul_mx against the reference in mx_reference.py."""

import itertools

from . import mx_reference as mx
from .support import load, ml_dtypes, nisa, nl, np, pytest, same_bits, save, simulate

E5M2, E4M3, E2M1 = nl.float8_e5m2_x4, nl.float8_e4m3fn_x4, nl.float4_e2m1fn_x4
PACKED = (E5M2, E4M3, E2M1)


@pytest.fixture(autouse=True)
def trn3(on_target):
    on_target("trn3")


def multiplied(w, x, w_scale, x_scale, names, dst=nl.float32, scale_dtype=nl.uint8, **options):
    """Kernel: packed operands and spread scale tiles, as unsigned arrays."""
    acc = nl.ndarray((w.shape[1], x.shape[1]), dtype=dst, buffer=nl.psum)
    nisa.nc_matmul_mx(
        acc, load(w).view(names[0]), load(x).view(names[1]), load(w_scale).view(scale_dtype),
        load(x_scale).view(scale_dtype), **options,
    )  # fmt: skip
    return save(acc)


def coded(shape, name, seed=0, low=-2, high=2):
    """Random finite packed elements, and scale bytes around 127."""
    generator = np.random.default_rng((seed, *shape))
    bits = mx.FORMATS[name][4]
    finite = [code for code in range(1 << bits) if np.isfinite(mx.value(code, name))]
    packed = mx.pack(generator.choice(finite, (*shape, 4)), name)
    scales = generator.integers(127 + low, 128 + high, (shape[0] // 8, shape[1])).astype(np.uint8)
    return packed, scales


def product(w, x, w_scales, x_scales, names):
    left, right = mx.dequantize(w, w_scales, names[0]), mx.dequantize(x, x_scales, names[1])
    return np.einsum("kmq,knq->mn", left, right), np.einsum("kmq,knq->mn", abs(left), abs(right))


@pytest.mark.parametrize("names", list(itertools.product(PACKED, PACKED)))
@pytest.mark.parametrize("shape", [(32, 2, 1), (64, 6, 5), (96, 4, 20), (128, 128, 40)])
def test_product(names, shape):
    depth, columns, width = shape
    w, w_scales = coded((depth, columns), names[0], 1)
    x, x_scales = coded((depth, width), names[1], 2)
    got = simulate(multiplied)(w, x, mx.spread(w_scales), mx.spread(x_scales), names)
    expected, magnitude = product(w, x, w_scales, x_scales, names)
    # One rounding to float32 of a sum whose terms are exact.
    assert (np.abs(got - expected) <= 2.0**-24 * np.abs(expected) + 2.0**-50 * magnitude).all()


@pytest.mark.parametrize("name", PACKED)
def test_every_code_in_every_place(name):
    """A single element times one gives its value, at each of the four places."""
    bits = mx.FORMATS[name][4]
    one = mx.code_of(1.0, name)
    x = np.zeros((32, 1 << bits, 4), np.int64)
    x[3, :, 0] = np.arange(1 << bits)
    expected = np.array([mx.value(code, name) for code in range(1 << bits)], np.float32)
    scale = np.full((32, 1 << bits), 127, np.uint8)
    for place in range(4):
        ones = np.zeros((32, 2, 4), np.int64)
        ones[3, :, place] = one
        got = simulate(multiplied)(
            mx.pack(ones, name), mx.pack(np.roll(x, place, axis=2), name), scale[:, 0:2], scale,
            (name, name),
        )  # fmt: skip
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(got[0, finite], expected[finite])
        # 0 * infinity is NaN in the other places' sums only if that element is infinite or NaN.
        np.testing.assert_array_equal(np.isnan(got[0]), np.isnan(expected))


def test_every_scale_goes_to_its_group():
    """Each group of 8 partitions contributes a different power of two."""
    w = np.zeros((128, 2), np.uint32)
    w[:, 0] = mx.pack(np.array([mx.code_of(1.0, E4M3), 0, 0, 0]), E4M3)
    for group in range(16):
        x = np.zeros((128, 1), np.uint32)
        x[8 * group + 5] = w[0, 0]
        scales = (100 + 2 * np.arange(16, dtype=np.uint8))[:, None]
        got = simulate(multiplied)(
            w, x, mx.spread(np.full((16, 2), 127, np.uint8)), mx.spread(scales), (E4M3, E4M3)
        )
        assert got[0, 0] == 2.0 ** (100 + 2 * group - 127)


@pytest.mark.parametrize("scale_dtype", [nl.uint8, nl.float8_e8m0fnu])
def test_scale_255_is_nan_and_others_are_not_read(scale_dtype):
    w, w_scales = coded((64, 2), E5M2, 1)
    x, x_scales = coded((64, 4), E5M2, 2)
    x_scales[1, 2] = 255
    got = simulate(multiplied)(
        w, x, mx.spread(w_scales, fill=255), mx.spread(x_scales, fill=255), (E5M2, E5M2),
        scale_dtype=scale_dtype,
    )  # fmt: skip
    np.testing.assert_array_equal(np.isnan(got), [[False, False, True, False]] * 2)


def test_extreme_scales_cancel_and_overflow():
    """2**-127 times 2**127 is 1; a sum beyond float32 is infinite."""
    one = mx.pack(np.array([mx.code_of(1.5, E5M2)] * 4), E5M2)
    w, x = np.full((32, 2), one), np.full((32, 3), one)
    low, high = np.zeros((32, 2), np.uint8), np.full((32, 3), 254, np.uint8)
    got = simulate(multiplied)(w, x, low, high, (E5M2, E5M2))
    np.testing.assert_array_equal(got, np.full((2, 3), 2.25 * 128, np.float32))
    got = simulate(multiplied)(w, x, high[:, 0:2], high, (E5M2, E5M2))
    assert (got == np.inf).all()
    got = simulate(multiplied)(w, x, low, np.zeros((32, 3), np.uint8), (E5M2, E5M2))
    assert (got == 0).all()


def test_nan_and_infinite_elements_spread():
    nan, inf = 0x7F, 0x7C
    w = np.full((32, 2), mx.pack(np.array([mx.code_of(1.0, E5M2)] * 4), E5M2))
    x = np.zeros((32, 3, 4), np.int64)
    x[0, 0, 0], x[9, 1, 3] = nan, inf
    scale = np.full((32, 3), 127, np.uint8)
    got = simulate(multiplied)(w, mx.pack(x, E5M2), scale[:, 0:2], scale, (E5M2, E5M2))
    np.testing.assert_array_equal(got, [[np.nan, np.inf, 0]] * 2)


def test_bfloat16_results_round_once_from_float32():
    w, w_scales = coded((64, 4), E4M3, 1)
    x, x_scales = coded((64, 9), E2M1, 2)
    arguments = (w, x, mx.spread(w_scales), mx.spread(x_scales), (E4M3, E2M1))
    got = simulate(multiplied)(*arguments, dst=nl.bfloat16)
    same_bits(got, simulate(multiplied)(*arguments).astype(ml_dtypes.bfloat16))


def test_accumulation_row_tiles_and_packed_scales():
    """Four quadrants one after the other give the sum of the whole; scales share one tile."""

    def kernel(w, x, scales, names, flags):
        stationary, moving = load(w).view(names[0]), load(x).view(names[1])
        shared = load(scales)
        acc = nl.ndarray((6, 6), dtype=nl.float32, buffer=nl.psum)
        for quadrant, accumulate in enumerate(flags):
            row = 32 * quadrant
            rows = slice(row, row + 32)
            nisa.nc_matmul_mx(
                acc, stationary[rows], moving[rows], shared[row : row + 4],
                shared[row + 12 : row + 16], tile_position=(row, 0), tile_size=(32, 128),
                accumulate=accumulate,
            )  # fmt: skip
        return save(acc)

    names = (E4M3, E5M2)
    w, w_scales = coded((128, 6), names[0], 1)
    x, x_scales = coded((128, 6), names[1], 2)
    tile = np.maximum(mx.spread(w_scales), mx.spread(x_scales, offset=12))
    parts = [
        product(w[32 * q :][:32], x[32 * q :][:32], w_scales[4 * q :][:4], x_scales[4 * q :][:4],
                names)[0].astype(np.float32)
        for q in range(4)
    ]  # fmt: skip
    for flags in ((None,) * 4, (False, True, True, True)):
        got = simulate(kernel)(w, x, tile, names, flags)
        np.testing.assert_allclose(
            got, parts[0] + parts[1] + parts[2] + parts[3], rtol=2.0**-20, atol=2.0**-20
        )
    got = simulate(kernel)(w, x, tile, names, (None, True, False, None))
    np.testing.assert_allclose(got, parts[2] + parts[3], rtol=2.0**-22)


def test_strided_deep_and_repeated_operands():
    def kernel(w, x, w_scale, x_scale):
        stationary, moving = load(w).view(E4M3), load(x).view(E2M1)
        w_scales, x_scales = load(w_scale), load(x_scale)
        acc = nl.ndarray((4, 3, 2), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(
            acc, stationary.reshape((64, 2, 4))[:, :, ::2], moving[:, 0:3].expand_dim(2)
            .broadcast(2, 2), w_scales.reshape((64, 2, 4))[:, :, ::2],
            x_scales[:, 0:3].expand_dim(2).broadcast(2, 2),
        )  # fmt: skip
        return save(acc)

    w, w_scales = coded((64, 8), E4M3, 1)
    x, x_scales = coded((64, 5), E2M1, 2)
    got = simulate(kernel)(w, x, mx.spread(w_scales), mx.spread(x_scales))
    expected, _ = product(w[:, ::2], x[:, 0:3], w_scales[:, ::2], x_scales[:, 0:3], (E4M3, E2M1))
    np.testing.assert_allclose(got, np.repeat(expected[:, :, None], 2, axis=2), rtol=2.0**-22)
