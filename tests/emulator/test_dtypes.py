"""Conversion between float32 and the stored types, against NumPy and ml_dtypes bit for bit."""

import hypothesis
import hypothesis.strategies as st

from nki_emulator import dtypes

from .support import (
    NUMPY,
    load,
    ml_dtypes,
    nl,
    np,
    pair,
    pytest,
    refused,
    same_bits,
    save,
    simulate,
)

SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25,
     65504.0, 65519.99, 65520.0, 3.4028235e38, -3.4028235e38, 6.1e-5, 2.0**-14, 2.0**-15],
    np.float32,
)  # fmt: skip
NAN_PATTERNS = np.array(
    [0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7F80FFFF],
    np.uint32,
).view(np.float32)


def ties(dtype):
    """Every finite value of a 16-bit type, the midpoints above them, and their neighbours."""
    points = np.arange(0, 0x10000, dtype=np.uint32).astype(np.uint16).view(NUMPY[dtype])
    points = points.astype(np.float32)
    points = np.sort(points[np.isfinite(points)])
    middle = (points[:-1].astype(np.float64) + points[1:]) / 2
    middle = middle.astype(np.float32)
    return np.concatenate(
        [points, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]
    ).astype(np.float32)


def stored(array, dtype):
    info = dtypes.PRECISE[dtype]
    target = np.empty(array.shape, info.storage)
    dtypes.store_float32(target, info, array)
    return target


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_store_rounds_to_nearest_even(dtype):
    array = np.concatenate([ties(dtype), SPECIAL])
    with np.errstate(over="ignore"):
        expected = array.astype(NUMPY[dtype])
    finite = ~np.isnan(array)
    same_bits(stored(array, dtype)[finite], expected[finite])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_store_keeps_nan(dtype):
    assert np.isnan(stored(NAN_PATTERNS, dtype).astype(np.float32)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_load_is_exact_for_every_bit_pattern(dtype):
    patterns = np.arange(0x10000, dtype=np.uint32).astype(np.uint16).view(NUMPY[dtype])
    got = dtypes.to_float32(patterns.reshape(256, 256), dtypes.PRECISE[dtype]).ravel()
    expected = patterns.astype(np.float32)
    nan = np.isnan(expected)
    same_bits(got[~nan], expected[~nan])
    assert np.isnan(got[nan]).all()


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2"])
def test_float8_goes_through_ml_dtypes(dtype):
    array = np.linspace(-300, 300, 4001, dtype=np.float32)
    same_bits(stored(array, dtype), array.astype(NUMPY[dtype]))


def test_float8_e8m0fnu_holds_powers_of_two():
    """The nearest one, ties upwards; NaN for what has none: zero, negative and infinite numbers."""
    array = np.array([1, 2.0**-127, 2.0**127, 1.25, 3.0, 1.5, 0, -1, np.inf, np.nan], np.float32)
    got = stored(array, "float8_e8m0fnu")
    same_bits(got, array.astype(NUMPY["float8_e8m0fnu"]))
    np.testing.assert_array_equal(
        got.view(np.uint8), [127, 0, 254, 127, 129, 128, 255, 255, 255, 255]
    )


@hypothesis.given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=50))
def test_store_matches_astype(numbers):
    array = np.array(numbers, np.float32)
    for dtype in ("bfloat16", "float16"):
        with np.errstate(over="ignore"):
            same_bits(stored(array, dtype), array.astype(NUMPY[dtype]))


def test_strided_arrays_convert():
    array = np.arange(64, dtype=np.float32).reshape(8, 8)
    for dtype in ("bfloat16", "float16"):
        target = np.zeros((8, 16), NUMPY[dtype])
        dtypes.store_float32(target[:, ::2], dtypes.PRECISE[dtype], array.T)
        same_bits(target[:, ::2], array.T.astype(NUMPY[dtype]))
        back = dtypes.to_float32(target[:, ::2], dtypes.PRECISE[dtype])
        np.testing.assert_array_equal(back, array.T)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_integers_round_to_even_and_saturate(dtype):
    limits = np.iinfo(NUMPY[dtype])
    array = np.array([0.5, 1.5, 2.5, 3.49, 1e20, -1e20, np.inf, -np.inf, np.nan, 100.5], np.float32)
    expected = [0, 2, 2, 3, limits.max, limits.min, limits.max, limits.min, 0, 100]
    np.testing.assert_array_equal(stored(array, dtype), expected)


def test_tfloat32_has_ten_mantissa_bits():
    step = 2.0**-10
    array = np.array([1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, np.inf, -np.inf], np.float32)
    got = stored(array, "tfloat32")
    np.testing.assert_array_equal(got, [1.0, 1 + 2 * step, 1 + step, np.inf, -np.inf])
    assert np.isnan(stored(np.array([np.nan], np.float32), "tfloat32")).all()


def test_dtypes_are_strings():
    assert nl.float32 == "float32" and nl.bfloat16 == "bfloat16" and nl.DType is str


def test_dtype_name_is_checked():
    def kernel(dtype):
        nl.ndarray((4, 4), dtype=dtype)  # rule

    pair("dtype", kernel, (nl.float32,), ("float64",))
    refused("dtype", kernel, np.float32)


def test_low_precision_is_kept_as_float32_on_request(monkeypatch):
    def kernel(x):
        assert x.dtype == nl.bfloat16
        return save(load(x))

    def narrowed(x):
        return save(load(x, dtype=nl.bfloat16))

    def through(x):
        return save(load(load(x, dtype=nl.bfloat16), dtype=nl.float32))

    x = np.full((4, 4), 1 + 2.0**-12, np.float32)
    assert (simulate(through)(x) == 1).all()
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    same_bits(simulate(through)(x), x)
    assert simulate(narrowed)(x).dtype == ml_dtypes.bfloat16
    same_bits(simulate(kernel)(x.astype(ml_dtypes.bfloat16)), x.astype(ml_dtypes.bfloat16))


def test_writes_reach_a_bfloat16_argument_in_both_precisions(monkeypatch):
    def kernel(x):
        from .support import nisa, tile

        nisa.dma_copy(dst=x[0:1, :], src=tile((1, 4), nl.bfloat16, value=3.0))

    for precise in ("1", "0"):
        monkeypatch.setenv("NKI_PRECISE_FP", precise)
        x = np.zeros((4, 4), ml_dtypes.bfloat16)
        simulate(kernel)(x)
        assert (x[0] == 3).all() and (x[1:] == 0).all()


def test_precision_variable_is_checked(monkeypatch):
    def kernel():
        pass

    simulate(kernel)()
    monkeypatch.setenv("NKI_PRECISE_FP", "yes")
    refused("precise-fp", kernel, line=None)
