"""What a matmul does to PSUM: overwrite, accumulate, or refuse what is undefined."""

from .support import load, nisa, nl, np, pair, pytest, save, simulate, tile, values

X = values((64, 96), seed=1)
W = values((64, 32), seed=2)
PRODUCT = W.T @ X


def operands(x, w):
    return load(w), load(x)


def psum(shape=(32, 96), dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "flags, times",
    [
        ((None,), 1), ((None, None), 2), ((None, None, None), 3), ((False, True), 2),
        ((False, True, False), 1), ((False, None), 2), ((None, True), 2), ((False, False), 1),
    ],
)  # fmt: skip
def test_flags(flags, times):
    def kernel(x, w):
        stationary, moving = operands(x, w)
        acc = psum()
        for accumulate in flags:
            nisa.nc_matmul(acc, stationary, moving, accumulate=accumulate)
        return save(acc)

    close(simulate(kernel)(X, W), times * PRODUCT)


def test_a_new_tile_starts_a_new_group():
    def kernel(x, w):
        stationary, moving = operands(x, w)
        for _ in range(2):
            acc = psum()
            nisa.nc_matmul(acc, stationary, moving)
        return save(acc)

    close(simulate(kernel)(X, W), PRODUCT)


def test_accumulate_none_decides_for_each_element():
    """Overlapping regions: what was written accumulates, the rest is overwritten."""

    def kernel(x, w):
        stationary, moving = operands(x, w)
        acc = psum()
        nisa.nc_matmul(acc[:, 0:64], stationary, moving[:, 0:64])
        nisa.nc_matmul(acc[:, 32:96], stationary, moving[:, 32:96])
        return save(acc)

    expected = PRODUCT.copy()
    expected[:, 32:64] *= 2
    close(simulate(kernel)(X, W), expected)


def test_groups_in_one_tile_are_independent():
    def kernel(x, w):
        stationary, moving = operands(x, w)
        acc = psum((32, 2, 96))
        for slot in range(2):
            for step in range(slot + 1):
                nisa.nc_matmul(acc[:, slot], stationary, moving, accumulate=step > 0)
        return save(acc)

    got = simulate(kernel)(X, W)
    close(got[:, 0], PRODUCT)
    close(got[:, 1], 2 * PRODUCT)


def test_accumulating_on_nothing_is_refused():
    def kernel(x, w, accumulate):
        stationary, moving = operands(x, w)
        nisa.nc_matmul(psum(), stationary, moving, accumulate=accumulate)  # rule

    pair("psum-accumulate-unwritten", kernel, (X, W, None), (X, W, True))


def test_accumulating_on_a_partly_written_region_is_refused():
    def kernel(x, w, last):
        stationary, moving = operands(x, w)
        acc = psum()
        nisa.nc_matmul(acc[:, 0:last], stationary, moving[:, 0:last])
        nisa.nc_matmul(acc, stationary, moving, accumulate=True)  # rule

    pair("psum-accumulate-unwritten", kernel, (X, W, 96), (X, W, 95))


def after_memset(x, w, accumulate, value=0.0):
    stationary, moving = operands(x, w)
    acc = psum()
    nisa.memset(dst=acc, value=value)
    nisa.nc_matmul(acc, stationary, moving, accumulate=accumulate)  # rule
    return save(acc)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_accumulating_on_what_another_engine_wrote_is_refused(on_target, target):
    on_target(target)
    pair("psum-accumulate-on-other", after_memset, (X, W, False), (X, W, True))


def test_gen4_accumulates_on_what_another_engine_wrote(on_target):
    on_target("trn3")
    close(simulate(after_memset)(X, W, True, 2.0), PRODUCT + 2)


def test_accumulate_none_on_zeros_is_the_same_in_both_readings():
    close(simulate(after_memset)(X, W, None, 0.0), PRODUCT)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_accumulate_none_on_other_values_is_ambiguous(on_target, target):
    on_target(target)
    pair("psum-accumulate-ambiguous", after_memset, (X, W, None, 0.0), (X, W, None, 1.0))


def after_a_copy(x, w, accumulate, part=96):
    stationary, moving = operands(x, w)
    acc = psum()
    nisa.nc_matmul(acc, stationary, moving)
    nisa.tensor_copy(dst=acc[:, 0:part], src=tile((32, part), value=0.0))
    nisa.nc_matmul(acc, stationary, moving, accumulate=accumulate)  # rule
    return save(acc)


def test_a_group_that_another_engine_touched_must_restart():
    pair("psum-accumulate-on-other", after_a_copy, (X, W, False), (X, W, None))
    pair("psum-accumulate-on-other", after_a_copy, (X, W, False, 1), (X, W, None, 1))


def test_other_engines_update_psum_in_place_and_reads_see_it():
    def kernel(x, w):
        stationary, moving = operands(x, w)
        acc = psum()
        nisa.nc_matmul(acc, stationary, moving)
        nisa.tensor_scalar(dst=acc, data=acc, op0=nl.multiply, operand0=2.0)
        return save(acc)

    close(simulate(kernel)(X, W), 2 * PRODUCT)


def test_bfloat16_psum_rounds_after_every_product(on_target):
    on_target("trn3")

    def kernel(x, w):
        stationary, moving = operands(x, w)
        acc = psum(dtype=nl.bfloat16)
        nisa.nc_matmul(acc, stationary, moving)
        nisa.nc_matmul(acc, stationary, moving)
        return save(acc)

    from .support import ml_dtypes

    once = PRODUCT.astype(ml_dtypes.bfloat16).astype(np.float32)
    got = simulate(kernel)(X, W).astype(np.float32)
    np.testing.assert_allclose(got, once + PRODUCT, rtol=2**-8, atol=1e-2)
    assert got.dtype == np.float32 and (got != 2 * PRODUCT).any()
