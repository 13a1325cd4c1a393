"""bn_stats and bn_aggr against NumPy, and their rules."""

from .numeric import DTYPES, converted
from .support import (
    FLOATS,
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

P = nl.psum


def output(shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


@pytest.mark.parametrize("width", [1, 2, 3, 200, 512])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bn_stats(width, dtype):
    def kernel(x):
        dst = output((x.shape[0], 6), nl.float32)
        nisa.bn_stats(dst, load(x))
        return save(dst)

    x = values((12, width), dtype)
    got, wide = simulate(kernel)(x), x.astype(np.float64)
    for first, part in ((0, wide[:, 0::2]), (3, wide[:, 1::2])):
        count = part.shape[1]
        mean = part.mean(axis=1) if count else np.zeros(12)
        spread = part.var(axis=1) * count if count else np.zeros(12)
        expected = np.stack([np.full(12, count), mean, spread], axis=1)
        np.testing.assert_allclose(got[:, first : first + 3], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [5, 512, 768, 1000])
def test_bn_aggr_gives_mean_and_population_variance(width):
    def kernel(x):
        chunks = -(-width // 512)
        stats = output((x.shape[0], chunks, 6), nl.float32)
        data = load(x)
        for chunk in range(chunks):
            low, high = chunk * 512, min(width, (chunk + 1) * 512)
            nisa.bn_stats(stats[:, chunk], data[:, low:high])
        dst = output((x.shape[0], 2), nl.float32)
        nisa.bn_aggr(dst, stats)
        return save(dst)

    x = values((10, width)) + 3
    got = simulate(kernel)(x)
    np.testing.assert_allclose(got[:, 0], x.mean(axis=1, dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(got[:, 1], x.var(axis=1, dtype=np.float64), rtol=1e-5)


def test_bn_rules():
    def stats(width, out):
        nisa.bn_stats(tile((8, out)), tile((8, width)))  # rule

    def aggregate(width, out):
        nisa.bn_aggr(tile((8, out)), tile((8, width), value=1.0))  # rule

    def heights(height):
        nisa.bn_stats(tile((height, 6)), tile((8, 4)))  # rule

    pair("bn-stats-free", stats, (512, 6), (513, 6))
    pair("free-size", stats, (4, 6), (4, 5))
    pair("partition-count", heights, 8, 4)
    pair("bn-aggr-width", aggregate, (6, 2), (7, 2))
    pair("free-size", aggregate, (6, 2), (6, 3))


def halves(x):
    """(count, mean, variance * count) of even and of odd elements, exact for small integers."""
    wide = x.astype(np.float64)
    parts = []
    for part in (wide[:, 0::2], wide[:, 1::2]):
        count = np.full(len(x), part.shape[1])
        parts += [count, part.mean(axis=1), part.var(axis=1) * part.shape[1]]
    return np.stack(parts, axis=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_statistics_dtypes(dtype, out):
    """Eight whole numbers: every sum and quotient is exact in float32."""

    def kernel(x):
        stats, moments = output((6, 6), out), output((6, 2), out)
        nisa.bn_stats(stats, load(x))
        exact = output((6, 6))
        nisa.bn_stats(exact, load(x))
        nisa.bn_aggr(moments, exact)
        return save(stats), save(moments)

    x = values((6, 8), "uint8", low=0, high=7).astype(bool if dtype == "bool" else np.uint8)
    x = x.astype(values((1, 1), dtype).dtype)
    stats, moments = simulate(kernel)(x)
    same_bits(stats, converted(halves(x), out))
    wide = x.astype(np.float64)
    expected = np.stack([wide.mean(axis=1), wide.var(axis=1)], axis=1)
    same_bits(moments, converted(expected, out))


def test_statistics_of_strided_and_repeated_views_and_psum():
    def kernel(x):
        t, psum = load(x), output((9, 3, 4), buffer=P)
        nisa.tensor_copy(psum, t)
        stats = output((9, 3, 6))
        nisa.bn_stats(stats[:, 0], t[:, ::3])
        nisa.bn_stats(stats[:, 1], t[:, 5:6].broadcast(1, 4))
        nisa.bn_stats(stats[:, 2], psum[:, 0:2])
        nisa.bn_aggr(t[:, 0:2], stats)
        return save(stats), save(t[:, 0:2])

    x = values((9, 12), "int8", low=-8, high=8).astype(np.float32)
    stats, moments = simulate(kernel)(x)
    rows = [x[:, ::3], np.repeat(x[:, 5:6], 4, axis=1), x[:, 0:8]]
    for index, row in enumerate(rows):
        same_bits(np.ascontiguousarray(stats[:, index]), halves(row).astype(np.float32))
    joined = np.concatenate(rows, axis=1).astype(np.float64)
    np.testing.assert_allclose(moments[:, 0], joined.mean(axis=1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(moments[:, 1], joined.var(axis=1), rtol=1e-6)


def test_statistics_refuse_packed_types():
    def stats(dtype):
        nisa.bn_stats(tile((8, 6)), tile((8, 4), dtype))  # rule

    def aggregate(dtype):
        nisa.bn_aggr(tile((8, 2)), tile((8, 6), dtype))  # rule

    pair("packed-dtype", stats, "int8", "float8_e5m2_x4")
    pair("packed-dtype", aggregate, "bfloat16", "float8_e5m2_x4")
