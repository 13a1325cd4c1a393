"""nki.language over free axes: sums and their like, mean and variance, softmax, rms_norm."""

from nki_emulator import record

from .numeric import DTYPES, converted, f32
from .support import (
    FLOATS,
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    refused,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
# axis of a tile of the shape (9, 4, 6), how many dimensions it takes, and the shape left.
AXES = [
    (2, 1, (9, 4)),
    (-1, 1, (9, 4)),
    ([2], 1, (9, 4)),
    ((1, 2), 2, (9, 1)),
    ([-1, 1], 2, (9, 1)),
]


def folded(function, x, dims):
    """The last ``dims`` dimensions reduced in float32, as the Vector Engine does."""
    flat = f32(x).reshape(x.shape[: x.ndim - dims] + (-1,))
    return function.reduce(flat, axis=-1)


def halves(shape, dtype, seed=0):
    """Values whose sums and products of six are exact, whatever the order."""
    if dtype == "bool":
        return values(shape, dtype, seed)
    return values(shape, "int8", seed, -2, 2).astype(values((1,), dtype).dtype)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(name, dtype):
    def kernel(x):
        result = getattr(nl, name)(load(x), axis=1)
        assert result.buffer == nl.sbuf and result.shape == (9, 1)
        return save(result)

    low = 0 if dtype[0] in "ub" else -2
    x = (
        halves((9, 6), dtype)
        if low
        else np.abs(values((9, 6), "int8", 1, 0, 2)).astype(values((1,), dtype).dtype)
    )
    expected = converted(folded(REDUCTIONS[name], x, 1), dtype).reshape(9, 1)
    same_bits(simulate(kernel)(x), expected)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("axis, dims, shape", AXES)
def test_axes(name, axis, dims, shape):
    def kernel(x):
        function = getattr(nl, name)
        return save(function(load(x), axis)), save(function(load(x), axis, keepdims=True))

    x = values((9, 4, 6))
    expected = folded(REDUCTIONS[name], x, dims)
    dropped, kept = simulate(kernel)(x)
    same_bits(dropped, expected.reshape(shape))
    same_bits(kept, expected.reshape((9, 4, 1) if dims == 1 else (9, 1, 1)))


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("buffer", [S, P])
def test_views(name, buffer):
    def kernel(x):
        moved = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        nisa.tensor_copy(dst=moved, src=load(x))
        view = moved[:5, :, ::3].permute((0, 2, 1))
        return save(getattr(nl, name)(view, 2, dtype=nl.bfloat16))

    x = values((9, 4, 6))
    expected = folded(REDUCTIONS[name], x[:5, :, ::3].transpose(0, 2, 1), 1)
    same_bits(simulate(kernel)(x), converted(expected, "bfloat16"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_all(dtype):
    def kernel(x):
        return save(nl.all(load(x), axis=1)), save(nl.all(load(x), (1,), dtype=nl.uint8))

    x = values((16, 3), "uint8", 5, 0, 1).astype(values((1,), dtype).dtype)
    expected = (x != 0).all(1, keepdims=True)
    assert expected.any() and not expected.all()
    same, narrow = simulate(kernel)(x)
    same_bits(same, converted(expected, dtype))
    same_bits(narrow, expected.astype(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("axis, dims, shape", AXES)
def test_mean(dtype, axis, dims, shape):
    def kernel(x):
        return save(nl.mean(load(x), axis)), save(nl.mean(load(x), axis, nl.float32, True))

    x = values((9, 4, 6), dtype, 3)
    count = np.float32(1 / (6 if dims == 1 else 24))
    expected = folded(np.add, x, dims) * count
    same, wide = simulate(kernel)(x)
    same_bits(same, converted(expected, dtype).reshape(shape))
    same_bits(wide, expected.reshape((9, 4, 1) if dims == 1 else (9, 1, 1)))


def test_a_mean_of_narrow_floats_has_float32_sums():
    def kernel(x):
        return save(nl.mean(load(x), 1))

    x = np.ones((2, 1024), values((1,), "bfloat16").dtype)
    assert (f32(simulate(kernel)(x)) == 1).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis, dims, shape", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_variance(dtype, axis, dims, shape, keepdims):
    """Of the population; the dimensions stay whether keepdims says so or not."""

    def kernel(x):
        return save(nl.var(load(x), axis, nl.float32, keepdims))

    x = values((9, 4, 6), dtype, 4)
    last = (2,) if dims == 1 else (1, 2)
    expected = f32(x).astype(np.float64).var(last, keepdims=True)
    got = simulate(kernel)(x)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype):
    def kernel(x):
        result = nl.softmax(load(x))
        assert result.dtype == dtype
        return save(result), save(nl.softmax(load(x), axis=1, dtype=nl.float32))

    x = 3 * values((9, 50), dtype, 5)
    wide = f32(x).astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    narrow, result = simulate(kernel)(x)
    np.testing.assert_allclose(result, powers / powers.sum(1, keepdims=True), rtol=3e-6)
    same_bits(narrow, converted(result, dtype))


def test_softmax_of_large_values_does_not_overflow():
    def kernel(x):
        return save(nl.softmax(load(x)))

    np.testing.assert_array_equal(
        simulate(kernel)(np.array([[1e30, 0, 1e30, -1e30]], np.float32)), [[0.5, 0, 0.5, 0]]
    )


@pytest.mark.parametrize("axis", [2, (1, 2)])
def test_softmax_of_the_last_axes(axis):
    def kernel(x):
        return save(nl.softmax(load(x)[:, :, ::2], axis=axis))

    x = values((9, 4, 6), seed=6)
    powers = np.exp(x[:, :, ::2].astype(np.float64))
    np.testing.assert_allclose(
        simulate(kernel)(x), powers / powers.sum(axis, keepdims=True), rtol=3e-6
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape, axis, n",
    [((9, 12), 1, 12), ((9, 12), -1, 24), ((9, 4, 6), (1, 2), 24), ((9, 4, 6), 2, 6)],
)
def test_rms_norm(dtype, shape, axis, n):
    def kernel(x, w):
        return save(nl.rms_norm(load(x), load(w), axis, n, 1e-3, dtype=nl.float32)), save(
            nl.rms_norm(load(x), load(w), axis, n)
        )

    x, w = values(shape, dtype, 7), values(shape, dtype, 8)
    wide = f32(x).astype(np.float64)

    def expected(epsilon):
        mean = np.square(wide).sum(axis, keepdims=True) / n
        return wide / np.sqrt(mean + epsilon) * f32(w)

    given, default = simulate(kernel)(x, w)
    np.testing.assert_allclose(given, expected(1e-3), rtol=2e-6)
    place = {"float32": 2e-6, "bfloat16": 2.0**-7, "float16": 2.0**-10}[dtype]
    assert default.dtype == x.dtype
    np.testing.assert_allclose(f32(default), expected(1e-6), rtol=place, atol=1e-7)


def test_rms_norm_computes_in_the_given_dtype():
    def kernel(x, w, compute):
        return save(nl.rms_norm(load(x), load(w), 1, 16, compute_dtype=compute))

    x, w = values((8, 16), seed=1), np.ones((8, 16), np.float32)
    bfloat16 = simulate(kernel)(x, w, nl.bfloat16)
    np.testing.assert_array_equal(bfloat16, converted(bfloat16, "bfloat16").astype(np.float32))
    assert (simulate(kernel)(x, w, None) != bfloat16).any()


# Rules.


@pytest.mark.parametrize("name", [*sorted(REDUCTIONS), "mean", "var", "all", "softmax"])
def test_axis_rules(name):
    def kernel(axis):
        getattr(nl, name)(tile((8, 4, 6)), axis)  # rule

    pair("reduce-axis", kernel, ((1, 2),), (1,))
    for axis in (0, (0, 1, 2), (0, 2), 3, -4, (), None, "2", (2, 2)):
        refused("reduce-axis", kernel, axis)


@pytest.mark.parametrize("name", [*sorted(REDUCTIONS), "mean", "var", "all", "softmax"])
def test_the_argument_is_a_tile(name):
    def kernel(x, argument):
        getattr(nl, name)({"tile": load(x), "hbm": x, "number": 1.0}[argument], 1)  # rule

    x = values((4, 4))
    pair("buffer-on-chip", kernel, (x, "tile"), (x, "hbm"))
    pair("operand-type", kernel, (x, "tile"), (x, "number"))


def test_rms_norm_rules():
    def kernel(change):
        given = {"shape": (8, 6), "n": 6, "axis": 1} | change
        nl.rms_norm(tile((8, 6)), tile(given["shape"]), given["axis"], given["n"])  # rule

    pair("implicit-broadcast", kernel, ({},), ({"shape": (8, 1)},))
    pair("rms-norm-count", kernel, ({"n": 3},), ({"n": 0},))
    refused("rms-norm-count", kernel, {"n": 6.0})
    refused("rms-norm-count", kernel, {"n": True})
    pair("reduce-axis", kernel, ({},), ({"axis": 0},))


def test_intermediate_tiles_are_given_back():
    def kernel():
        x = tile((128, 64))
        for _ in range(4):
            nl.softmax(x)

    _, session = record(kernel)()
    assert session.sbuf.peak <= 64 * 4 * 3 + 2 * 64
    assert session.counts["activation"] == 4
