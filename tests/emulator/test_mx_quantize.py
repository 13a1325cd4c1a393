"""quantize_mx against the reference in mx_reference.py, alone and before nc_matmul_mx."""

import itertools

import hypothesis
import hypothesis.strategies as st

from . import mx_reference as mx
from .support import (
    NUMPY,
    load,
    nisa,
    nl,
    np,
    pytest,
    save,
    simulate,
)  # fmt: skip

E5M2, E4M3 = nl.float8_e5m2_x4, nl.float8_e4m3fn_x4
FP8 = (E5M2, E4M3)


@pytest.fixture(autouse=True)
def trn3(on_target):
    on_target("trn3")


def quantized(x, name, scale_dtype=nl.uint8):
    """Kernel: packed data and the whole scale tile, which is filled with 99 first."""
    src = load(x)
    width = src.size // x.shape[0] // 4
    dst = nl.ndarray((x.shape[0], width), dtype=name, buffer=nl.sbuf)
    scale = nl.ndarray((x.shape[0], width), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.memset(scale, 99)
    nisa.quantize_mx(dst, src, scale.view(scale_dtype))
    return save(dst.view(nl.uint32)), save(scale)


def normal(shape, dtype, seed=0, spread=8):
    """Normal numbers over a range of magnitudes."""
    generator = np.random.default_rng((seed, *shape))
    magnitudes = np.exp2(generator.integers(-spread, spread + 1, shape))
    return (generator.standard_normal(shape) * magnitudes).astype(NUMPY[dtype])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize("scale_dtype", [nl.uint8, nl.float8_e8m0fnu])
@pytest.mark.parametrize("shape", [(32, 4), (64, 20), (96, 8), (128, 36)])
def test_quantize(dtype, name, scale_dtype, shape):
    x = normal(shape, dtype)
    packed, scales = simulate(quantized)(x, name, scale_dtype)
    expected, bytes_ = mx.quantize(x, name)
    np.testing.assert_array_equal(packed, expected)
    # The partitions without scales keep what they held.
    np.testing.assert_array_equal(scales, mx.spread(bytes_, fill=99))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", FP8)
def test_quantize_every_magnitude_and_rounding(dtype, name):
    """Every positive finite 16-bit float is the largest of a group, beside fractions of it."""
    bits = np.arange(0x8000, dtype=np.uint16).view(NUMPY[dtype])
    largest = bits[np.isfinite(bits.astype(np.float32))]
    largest = largest[: len(largest) // 4 * 4].reshape(4, -1)[:, ::16]
    fractions = np.append([1.0], -np.random.default_rng(0).random(31)).reshape(8, 1, 4)
    x = largest.astype(np.float64)[:, None, :, None] * fractions
    x = x.astype(NUMPY[dtype]).reshape(32, -1)
    packed, scales = simulate(quantized)(x, name)
    expected, bytes_ = mx.quantize(x, name)
    np.testing.assert_array_equal(packed, expected)
    np.testing.assert_array_equal(scales[0:4], bytes_)


@pytest.mark.parametrize("name", FP8)
def test_groups_of_zeros_and_signs_of_zero(name):
    x = np.zeros((32, 8), NUMPY["bfloat16"])
    x[0:8, 4:8] = -0.0
    x[8, 0] = 1.0
    packed, scales = simulate(quantized)(x, name)
    assert packed[0, 0] == 0 and packed[0, 1] == 0x80808080
    smallest, one = 0, 127 - (mx.FORMATS[name][3] - 1)
    np.testing.assert_array_equal(
        scales[0:4], [[smallest, smallest], [one, smallest], [smallest, smallest], [smallest] * 2]
    )


@pytest.mark.parametrize("name", FP8)
def test_tiny_groups_take_the_smallest_scale(name):
    """2**-127 is the smallest scale; bfloat16 goes down to 2**-133."""
    x = np.zeros((32, 4), np.float32)
    x[0, 0], x[8, 0], x[16, 1], x[24, 2] = 2.0**-133, 2.0**-119, -(2.0**-127), 1.5 * 2.0**-130
    x = x.astype(NUMPY["bfloat16"])
    packed, scales = simulate(quantized)(x, name)
    values = mx.dequantize(packed, scales[0:4], name)
    expected, bytes_ = mx.quantize(x, name)
    np.testing.assert_array_equal(packed, expected)
    np.testing.assert_array_equal(scales[0:4], bytes_)
    assert bytes_[0, 0] == 0 and values[0, 0, 0] == 2.0**-133


@hypothesis.given(st.data(), st.sampled_from(FP8), st.sampled_from(["bfloat16", "float16"]))
@hypothesis.settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_quantize_any_numbers(data, name, dtype):
    bits = data.draw(st.lists(st.integers(0, 0xFFFF), min_size=32, max_size=32))
    x = np.zeros((32, 4), np.uint16)
    x[0:8] = np.array(bits, np.uint16).reshape(8, 4)
    x = x.view(NUMPY[dtype])
    x[~np.isfinite(x.astype(np.float32))] = 1.0
    packed, scales = simulate(quantized)(x, name)
    expected, bytes_ = mx.quantize(x, name)
    np.testing.assert_array_equal(packed, expected)
    np.testing.assert_array_equal(scales[0:4], bytes_)
    # Rounding never saturates: the scaled values stay below 2**(Emax + 1).
    error = np.abs(mx.dequantize(packed, bytes_, name).reshape(32, 4) - x.astype(np.float64))
    mantissa, largest = mx.FORMATS[name][1], mx.FORMATS[name][3]
    limit = np.exp2(bytes_.astype(np.float64) - 127 + largest - 1 - mantissa)
    assert (error <= np.repeat(limit, 8, axis=0)).all()


def test_quantize_strided_repeated_and_deep_sources():
    def kernel(x):
        src = load(x)
        outs = []
        for view in (src[:, ::2], src[:, 0:1].broadcast(1, 8), src.reshape((64, 2, 2, 4)),
                     src.reshape((64, 4, 4)).permute((0, 2, 1))):  # fmt: skip
            width = view.size // 256
            dst = nl.ndarray((64, 2, width), dtype=E4M3, buffer=nl.sbuf)
            scale = nl.ndarray((64, width), dtype=nl.uint8, buffer=nl.sbuf)
            nisa.quantize_mx(dst[:, 1], view, scale)
            outs += [save(dst[:, 1].view(nl.uint32)), save(scale[0:4]), save(scale[32:36])]
        return tuple(outs)

    x = normal((64, 16), "bfloat16")
    sources = [x[:, ::2], np.repeat(x[:, 0:1], 8, axis=1), x,
               x.reshape(64, 4, 4).transpose(0, 2, 1).reshape(64, 16)]  # fmt: skip
    got = iter(simulate(kernel)(x))
    for source in sources:
        packed, scales = mx.quantize(source, E4M3)
        for part in (packed, scales[0:4], scales[4:8]):
            np.testing.assert_array_equal(next(got), part)


def test_four_tensors_share_a_scale_tile_and_a_quadrant():
    """Scales at offsets 0, 4, 8 and 12 of each quadrant, and data from partition 32 on."""

    def kernel(x):
        scale = nl.ndarray((128, 2), dtype=nl.float8_e8m0fnu, buffer=nl.sbuf)
        nisa.memset(scale.view(nl.uint8), 99)
        dst = nl.ndarray((128, 4, 2), dtype=E5M2, buffer=nl.sbuf)
        src = load(x)
        for slot in range(4):
            nisa.quantize_mx(dst[:, slot], src[:, slot], scale[4 * slot :])
        small = nl.ndarray((128, 2), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.memset(small, 99)
        part = nl.ndarray((128, 2), dtype=E5M2, buffer=nl.sbuf)
        for quadrant in (1, 3):
            rows = slice(32 * quadrant, 32 * quadrant + 32)
            places = slice(32 * quadrant + 8, 32 * quadrant + 12)
            nisa.quantize_mx(part[rows], src[rows, quadrant], small[places])
        return save(dst.view(nl.uint32)), save(scale.view(nl.uint8)), save(small)

    x = normal((128, 4, 8), "float16")
    packed, scales, small = simulate(kernel)(x)
    expected = np.full((128, 2), 99, np.uint8)
    expected_small = expected.copy()
    for slot in range(4):
        data, bytes_ = mx.quantize(x[:, slot], E5M2)
        np.testing.assert_array_equal(packed[:, slot], data)
        for group in range(16):
            expected[mx.scale_partition(group) + 4 * slot] = bytes_[group]
        if slot in (1, 3):
            expected_small[32 * slot + 8 : 32 * slot + 12] = bytes_[4 * slot : 4 * slot + 4]
    np.testing.assert_array_equal(scales, expected)
    np.testing.assert_array_equal(small, expected_small)


@pytest.mark.parametrize("names", list(itertools.product(FP8, FP8)))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_quantize_then_multiply(names, dtype):
    """[M, 512] @ [512, N]: elements 128 apart share a packed element; the error is bounded."""

    def kernel(a, b):
        operands = []
        for matrix, name in ((a, names[0]), (b, names[1])):
            data = load(matrix.reshape((4, 128, matrix.shape[1])).permute((1, 2, 0)))
            dst = nl.ndarray((128, matrix.shape[1]), dtype=name, buffer=nl.sbuf)
            scale = nl.ndarray(dst.shape, dtype=nl.float8_e8m0fnu, buffer=nl.sbuf)
            nisa.quantize_mx(dst, data, scale)
            operands.append((dst, scale))
        (w, w_scale), (x, x_scale) = operands
        acc = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(acc, w, x, w_scale, x_scale)
        return save(acc)

    a, b = normal((512, 16), dtype, 1, spread=1), normal((512, 24), dtype, 2, spread=1)
    got = simulate(kernel)(a, b)
    wide = [m.astype(np.float64) for m in (a, b)]
    errors = []
    for matrix, name in zip(wide, names):
        mantissa = mx.FORMATS[name][1]
        groups = np.abs(matrix).reshape(4, 16, 8, -1).max(axis=(0, 2))
        least = np.exp2(np.floor(np.log2(groups)) - 2 * (2 ** (6 - mantissa)) + 3)
        # Half a step of the element's binade, or of the subnormals' (far below the largest).
        step = np.abs(matrix) * 2.0 ** -(mantissa + 1)
        errors.append(step + np.tile(np.repeat(least, 8, axis=0), (4, 1)))
    left, right = (np.abs(m) for m in wide)
    bound = errors[0].T @ right + left.T @ errors[1] + errors[0].T @ errors[1]
    error = np.abs(got - wide[0].T @ wide[1])
    assert (error <= bound + 1e-6 * (left.T @ right)).all()
    # Quantisation is visible, and not by much more than its step.
    assert 0 < error.max() < 0.1 * (left.T @ right).max()
