"""deep-dives/mxfp-matmul.rst and trainium3_arch.rst on MX formats, on NeuronCore-v4."""

import pytest

from . import mx_reference as mx
from .support import load, nisa, nki, nl, np, pair, rounded, same_bits, save, values

pytestmark = pytest.mark.usefixtures("fourth_generation")

E4, E5, E2 = "float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"


@pytest.fixture
def fourth_generation(on_target):
    on_target("trn3")


def data_and_scales(partitions, width, name, seed=0):
    """Quantized data [P, F] of packed elements, its scales [P/8, F] and its values [P, F, 4]."""
    x = rounded(values((partitions, 4 * width), seed=seed), "bfloat16")
    if name == E2:
        codes = np.random.default_rng(seed).integers(0, 16, (partitions, width, 4))
        packed = mx.pack(codes, E2)
        scales = np.random.default_rng(seed).integers(120, 134, (partitions // 8, width))
        scales = scales.astype(np.uint8)
    else:
        packed, scales = mx.quantize(x, name)
    return packed, scales, mx.dequantize(packed, scales, name)


def contracted(left, right):
    """Over the partitions and the four elements of each packed one, in float64."""
    return np.einsum("pme,pne->mn", left, right)


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max())


def loaded_scales(scales, partitions):
    """Scales [P/8, F] in HBM as a tile: four partitions in each quadrant of the data."""
    if partitions <= 32:
        return load(scales)
    t = nl.ndarray((partitions, scales.shape[1]), dtype=nl.uint8)
    nisa.memset(t, 0)
    for quadrant in range(partitions // 32):
        nisa.dma_copy(dst=t[32 * quadrant :][0:4], src=scales[4 * quadrant : 4 * quadrant + 4])
    return t


@pytest.mark.parametrize("partitions", [32, 64, 128])
@pytest.mark.parametrize("left, right", [(E5, E5), (E4, E5), (E2, E2), (E2, E4)])
def test_a_matmul_of_offline_data(partitions, left, right):
    """Section "Basic Matmul-MX": bytes from the host, seen as packed types; formats may mix."""
    bytes_of = {E4: 4, E5: 4, E2: 2}

    @nki.jit
    def kernel(x, x_scale, y, y_scale):
        a, b = load(x).view(left), load(y).view(right)
        assert a.shape == (partitions, 16) and b.shape == (partitions, 24)
        out = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(
            out, a, b, loaded_scales(x_scale, partitions), loaded_scales(y_scale, partitions)
        )
        return save(out)

    x, x_scale, x_values = data_and_scales(partitions, 16, left)
    y, y_scale, y_values = data_and_scales(partitions, 24, right, seed=1)
    as_bytes = [np.ascontiguousarray(part).view(np.uint8) for part in (x, y)]
    assert as_bytes[0].shape == (partitions, 16 * bytes_of[left])
    got = kernel(as_bytes[0], x_scale, as_bytes[1], y_scale)
    close(got, contracted(x_values, y_values))


def test_the_dtype_of_the_result():
    """Section "Basic Matmul-MX": the PSUM tile's dtype, bfloat16 or float32."""

    @nki.jit
    def kernel(x, x_scale, dtype):
        a, scale = load(x).view(E5), load(x_scale)
        out = nl.ndarray((16, 16), dtype=dtype, buffer=nl.psum)
        nisa.nc_matmul_mx(out, a, a, scale, scale)
        return save(out)

    x, x_scale, _ = data_and_scales(32, 16, E5)
    exact, half = kernel(x, x_scale, nl.float32), kernel(x, x_scale, nl.bfloat16)
    same_bits(half, rounded(exact, "bfloat16"))


@pytest.mark.parametrize("name", [E4, E5])
@pytest.mark.parametrize("partitions", [32, 96, 128])
def test_quantization(name, partitions):
    """Sections "Data Tensor" and "Scale Tensor": layouts, and the rules for allocating tiles."""
    width = 8

    @nki.jit
    def kernel(x):
        quarter = x.shape[1] // 4
        data = nl.ndarray((x.shape[0], quarter), dtype=name)
        rows = x.shape[0] // 8 if x.shape[0] <= 32 else x.shape[0]
        scale = nl.ndarray((rows, quarter), dtype=nl.uint8)
        nisa.memset(scale, 0)
        nisa.quantize_mx(dst=data, src=load(x), dst_scale=scale)
        return save(data.view(nl.uint32)), save(scale)

    x = rounded(values((partitions, 4 * width)), "bfloat16")
    data, scale = kernel(x)
    expected, scales = mx.quantize(x, name)
    same_bits(data, expected)
    same_bits(scale, scales if partitions <= 32 else mx.spread(scales))


def test_a_group_is_8_partitions_by_4_elements():
    """trainium3_arch.rst, "Quad-MXFP8/MXFP4 Matmul Performance": one scale for 32 elements."""

    @nki.jit
    def kernel(x):
        data = nl.ndarray((32, 2), dtype=E5)
        scale = nl.ndarray((4, 2), dtype=nl.float8_e8m0fnu)
        nisa.quantize_mx(dst=data, src=load(x), dst_scale=scale)
        return save(scale)

    x = np.ones((32, 8), np.float32)
    x[9, 5] = 64.0
    scale = kernel(rounded(x, "bfloat16")).astype(np.float32)
    # The largest exponent less that of the format, with one bit in reserve: 2^(0 - 14).
    expected = np.full((4, 2), 2.0**-14, np.float32)
    expected[1, 1] = 2.0 ** (6 - 14)
    same_bits(scale, expected)


@pytest.mark.parametrize("by", ["tensor_copy", "dma"])
def test_rows_interleaved_quantized_and_multiplied(by):
    """Section "SBUF Layout Using Strided Access": four rows P apart become four elements."""
    P, M, N = 32, 8, 12

    def interleaved(x, width):
        t = nl.ndarray((P, width, 4), dtype=x.dtype)
        if by == "dma":
            nisa.dma_copy(dst=t, src=x.reshape((4, P, width)).permute((1, 2, 0)))
        else:
            rows = nl.ndarray((P, 4, width), dtype=x.dtype)
            for quarter in range(4):
                nisa.dma_copy(dst=rows[:, quarter, :], src=x[quarter * P : (quarter + 1) * P])
            nisa.tensor_copy(dst=t, src=rows.permute((0, 2, 1)))
        return t.flatten_dims(1, 2)

    def quantized(t):
        data = nl.ndarray((P, t.shape[1] // 4), dtype=E5)
        scale = nl.ndarray((P // 8, t.shape[1] // 4), dtype=nl.float8_e8m0fnu)
        nisa.quantize_mx(dst=data, src=t, dst_scale=scale)
        return data, scale

    @nki.jit
    def kernel(x, y):
        a, a_scale = quantized(interleaved(x, M))
        b, b_scale = quantized(interleaved(y, N))
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(out, a, b, a_scale, b_scale)
        return save(out)

    # Powers of two over a small range lose nothing in the format.
    x = rounded(2.0 ** values((4 * P, M), "int8", low=-3, high=3), "bfloat16")
    y = rounded(2.0 ** values((4 * P, N), "int8", seed=1, low=-3, high=3), "bfloat16")
    close(kernel(x, y), x.astype(np.float64).T @ y.astype(np.float64))


def test_scales_of_several_tensors_in_one_tile():
    """Section "Packing Scale Values": offsets 0, 4, 8 and 12 in each quadrant."""
    P, F = 64, 8

    @nki.jit
    def kernel(tensors):
        scales = nl.ndarray((P, F // 4), dtype=nl.uint8)
        nisa.memset(scales, 0)
        products = []
        for number in range(4):
            data = nl.ndarray((P, F // 4), dtype=E4)
            mine = scales[4 * number :]
            nisa.quantize_mx(dst=data, src=load(tensors[number]), dst_scale=mine)
            out = nl.ndarray((F // 4, F // 4), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul_mx(out, data, data, mine, mine)
            products.append(save(out))
        return (save(scales), *products)

    tensors = rounded(values((4, P, F)), "bfloat16")
    scales, *products = kernel(tensors)
    expected = np.zeros((P, F // 4), np.uint8)
    for number in range(4):
        packed, own = mx.quantize(tensors[number], E4)
        for group, row in enumerate(own):
            expected[mx.scale_partition(group) + 4 * number] = row
        exact = mx.dequantize(packed, own, E4)
        close(products[number], contracted(exact, exact))
    same_bits(scales, expected)


def test_other_offsets_of_scales():
    """Section "Packing Scale Values": an offset of 0, 4, 8, or 12 within a quadrant."""

    def kernel(offset):
        data = nl.ndarray((32, 2), dtype=E4)
        scales = nl.ndarray((32, 2), dtype=nl.uint8)
        source = nl.ndarray((32, 8), dtype=nl.bfloat16)
        nisa.memset(source, 1.0)
        nisa.quantize_mx(dst=data, src=source, dst_scale=scales[offset:][0:4])  # rule

    for bad in (2, 16):
        pair("mx-scale-partition", kernel, 12, bad)


def test_sources_of_quantization():
    """Section "Quantize-MX + Matmul-MX": in SBUF, 16-bit floats; FP4 is no result of it."""

    def kernel(source_dtype, name, buffer):
        source = nl.ndarray((32, 8), dtype=source_dtype, buffer=buffer)
        nisa.memset(source, 1.0)
        data = nl.ndarray((32, 2), dtype=name)
        scale = nl.ndarray((4, 2), dtype=nl.uint8)
        nisa.quantize_mx(dst=data, src=source, dst_scale=scale)  # rule

    good = (nl.bfloat16, E4, nl.sbuf)
    pair("mx-source-dtype", kernel, good, (nl.float32, E4, nl.sbuf))
    pair("mx-dtype", kernel, good, (nl.bfloat16, E2, nl.sbuf))
    pair("buffer-sbuf", kernel, good, (nl.bfloat16, E4, nl.psum))


def test_tile_sizes():
    """Section "Data Tensor": stationary [128, 128] and moving [128, 512] in packed elements."""

    def kernel(rows, columns):
        def operand(width):
            data = nl.ndarray((128, width), dtype=E4)
            scale = nl.ndarray((128, width), dtype=nl.uint8)
            nisa.memset(data, 0)
            nisa.memset(scale, 127)
            return data, scale

        (a, a_scale), (b, b_scale) = operand(rows), operand(columns)
        out = nl.ndarray((min(rows, 128), columns), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(out, a, b, a_scale, b_scale)  # rule

    pair("matmul-stationary-free", kernel, (128, 512), (130, 512))
    pair("mx-stationary-even", kernel, (128, 512), (127, 512))
