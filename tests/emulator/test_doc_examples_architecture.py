"""guides/architecture: what the engines and memories of three generations do and do not do."""

import pytest

from nki_emulator import memory_report

from .numeric import converted
from .support import (
    load,
    ml_dtypes,
    nisa,
    nki,
    nl,
    np,
    pair,
    refused,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

LEGACY = np.dtype(ml_dtypes.float8_e4m3)


# trainium_inferentia2_arch.rst.


@pytest.mark.parametrize("name, kibibytes", [("trn1", 192), ("trn2", 224), ("trn3", 256)])
def test_memory_sizes(on_target, name, kibibytes):
    """Each guide: bytes of an SBUF partition; eight banks of 512 float32 in PSUM everywhere."""

    def kernel():
        size = nl.tile_size
        assert size.sbuf_fmax_bytes <= kibibytes * 1024
        assert size.sbuf_size_bytes <= kibibytes * 1024 * 128
        assert size.psum_num_banks * size.psum_bank_fmax_bytes == 16 * 1024
        assert size.psum_bank_fmax == 512 and size.pmax == 128

    on_target(name)
    simulate(kernel)()

    def fill(nbytes):
        nl.ndarray((128, nbytes), dtype=nl.uint8)  # rule

    pair("sbuf-full", fill, kibibytes * 1024, kibibytes * 1024 + 1)


def test_the_bytes_of_a_tile():
    """about/data-representation-overview.rst: 128 x 32 x 512 float32 take 8 388 608 bytes."""

    def kernel():
        nl.ndarray((128, 32, 512), dtype=nl.float32, buffer=nl.sbuf)

    assert memory_report(kernel)().sbuf[0].peak * 128 == 8388608


def test_a_transpose_is_a_product_with_the_identity():
    """Section "Alternative Use Case": also what nc_transpose does on the tensor engine."""

    @nki.jit
    def kernel(x):
        eye = nl.shared_identity_matrix(32, dtype=nl.float32)
        product = nl.ndarray((24, 32), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, load(x), eye)
        transposed = nl.ndarray((24, 32), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(transposed, load(x), engine=nisa.engine.tensor)
        return save(product), save(transposed)

    x = values((32, 24))
    for got in kernel(x):
        same_bits(got, np.ascontiguousarray(x.T))


def test_a_row_broadcast_and_a_sum_over_partitions():
    """Section "Alternative Use Case": ones as stationary operand."""

    @nki.jit
    def kernel(row, x):
        ones = tile((1, 64), value=1.0)
        copies = nl.ndarray((64, row.shape[1]), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(copies, ones, load(row), is_stationary_onezero=True)
        total = nl.ndarray((1, x.shape[1]), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, tile((x.shape[0], 1), value=1.0), load(x))
        return save(copies), save(total)

    row, x = values((1, 20)), values((128, 20), "int8").astype(np.float32)
    copies, total = kernel(row, x)
    same_bits(copies, np.repeat(row, 64, axis=0))
    same_bits(total, x.sum(axis=0, keepdims=True))


def test_operands_can_be_swapped():
    """Section "Tensor Engine", Layout: exchanging stationary and moving transposes the result."""

    @nki.jit
    def kernel(x, y):
        first = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.psum)
        second = nl.ndarray((12, 8), dtype=nl.float32, buffer=nl.psum)
        a, b = load(x), load(y)
        nisa.nc_matmul(first, a, b)
        nisa.nc_matmul(second, b, a)
        return save(first), save(second)

    x = values((16, 8), "int8").astype(np.float32)
    y = values((16, 12), "int8", seed=1).astype(np.float32)
    first, second = kernel(x, y)
    same_bits(first, x.T @ y)
    same_bits(second, np.ascontiguousarray(first.T))


def test_where_the_tensor_engine_reads_and_writes():
    """Section "Tensor Engine", Layout: it reads SBUF and writes PSUM."""

    def kernel(stationary, dst):
        a = tile((16, 8), nl.float32, buffer=stationary)
        out = nl.ndarray((8, 8), dtype=nl.float32, buffer=dst)
        nisa.nc_matmul(out, a, tile((16, 8)))  # rule

    pair("buffer-sbuf", kernel, (nl.sbuf, nl.psum), (nl.psum, nl.psum))
    pair("matmul-dst-buffer", kernel, (nl.sbuf, nl.psum), (nl.sbuf, nl.sbuf))


def test_the_pipelined_multiply_add():
    """Section "Pipelined Multiply-Add": func(in * scale + bias), scale a vector or a constant."""

    @nki.jit
    def kernel(x, scale, bias):
        t, s, b = load(x), load(scale), load(bias)
        vector = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.activation(dst=vector, op=nl.relu, data=t, scale=s, bias=b)
        constant = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.activation(dst=constant, op=nl.relu, data=t, scale=0.5, bias=b)
        return save(vector), save(constant)

    x, scale, bias = values((8, 6)), values((8, 1), seed=1), values((8, 1), seed=2)
    vector, constant = kernel(x, scale, bias)
    same_bits(vector, np.maximum(x * scale + bias, 0))
    same_bits(constant, np.maximum(x * np.float32(0.5) + bias, 0))


def test_the_pipelined_reduction():
    """Section "Pipelined Reduction": the sum after the function, over all free axes."""

    @nki.jit
    def kernel(x):
        t, total = nl.ndarray(x.shape, dtype=nl.float32), nl.ndarray((8, 1), dtype=nl.float32)
        nisa.activation_reduce(
            dst=t, op=nl.square, data=load(x), reduce_op=nl.add, reduce_res=total
        )
        return save(t), save(total)

    x = values((8, 3, 5), "int8").astype(np.float32)
    squares, total = kernel(x)
    same_bits(squares, x * x)
    same_bits(total, (x * x).sum(axis=(1, 2)).reshape(8, 1))


def test_bias_is_a_vector_on_the_first_generation(on_target):
    """Section "Pipelined Multiply-Add": there the bias is a tile with one element a partition."""

    def kernel(constant):
        bias = 1.0 if constant else tile((4, 1), value=1.0)
        nisa.activation(dst=tile((4, 4)), op=nl.copy, data=tile((4, 4)), bias=bias)  # rule

    simulate(kernel)(True)
    on_target("trn1")
    pair("activation-bias", kernel, False, True)


def test_where_an_access_starts():
    """Section "Accessing SBUF/PSUM tensors using compute engines": by the number of partitions."""

    def kernel(start, count):
        t = tile((128, 4))
        nisa.tensor_copy(dst=tile((count, 4)), src=t[start : start + count])  # rule

    for count, good, bad in (
        (32, (0, 32, 64, 96), (1, 16, 48, 65)), (64, (0, 64), (32, 16)), (33, (0, 64), (32, 95)),
        (65, (0,), (32, 63)), (128, (0,), ()),
    ):  # fmt: skip
        for start in good:
            simulate(kernel)(start, count)
        for start in bad:
            pair("start-partition", kernel, (good[-1], count), (start, count))


def test_partitions_are_not_stepped_over():
    """Section "Accessing SBUF/PSUM tensors using compute engines": no striding in the partition."""

    def kernel(step):
        tile((16, 4))[0:16:step]  # rule

    pair("partition-step", kernel, 1, 2)


def test_four_free_dimensions_and_their_steps():
    """Section "Accessing SBUF/PSUM tensors using compute engines": four with steps, not five."""

    def kernel(dims):
        shape = (4, *[2 * size for size in (2, 3, 2, 2, 2)[:dims]])
        t = tile(shape, value=1.0)
        view = t[(slice(None), *[slice(0, None, 2)] * dims)]
        nisa.tensor_copy(dst=nl.ndarray((4, view.size // 4), dtype=nl.float32), src=view)  # rule

    pair("free-dims", kernel, 4, 5)


@pytest.mark.parametrize("size", [32, 64])
def test_movement_between_quadrants(size):
    """Section "Cross-Partition Connectivity": source and destination may start elsewhere."""

    @nki.jit
    def kernel(x):
        t, moved = load(x), tile(x.shape)
        for start in range(0, 128, size):
            other = (start + size) % 128
            nisa.tensor_copy(dst=moved[other : other + size], src=t[start : start + size])
        return save(moved)

    x = values((128, 6))
    same_bits(kernel(x), np.roll(x, size, axis=0))


def test_an_accumulation_group():
    """Section "Near-memory accumulation in PSUM": one overwrites, the next ones add."""

    @nki.jit
    def kernel(x, y, zeros):
        out = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.psum)
        if zeros:
            nisa.memset(out, 0.0)
        for i in range(2):
            part = nl.ds(i * 128, 128)
            nisa.nc_matmul(dst=out, stationary=load(x[part]), moving=load(y[part]))
        return save(out)

    x = values((256, 16), "int8").astype(np.float32)
    y = values((256, 8), "int8", seed=1).astype(np.float32)
    for zeros in (False, True):  # the guide zeroes the buffer, the tutorial does not
        same_bits(kernel(x, y, zeros), x.T @ y)


def test_eight_groups_at_once():
    """Section "Near-memory accumulation in PSUM": eight banks, so eight groups and not nine."""

    def kernel(groups):
        a = tile((128, 128), nl.bfloat16)
        sums = [
            nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)  # rule
            for _ in range(groups)
        ]
        for part in sums:
            nisa.nc_matmul(part[:, 0:128], a, a)

    pair("psum-full", kernel, 8, 9)


# trainium2_arch.rst.


def test_double_float8():
    """Section "Double FP8 Matmul Performance": a contraction of 256, formats mixed."""

    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, load(x), load(y), perf_mode=nisa.matmul_perf_mode.double_row)
        return save(out)

    x = values((256, 16), "int8", low=-7, high=7).astype(LEGACY)
    y = values((256, 24), "int8", seed=1, low=-3, high=3).astype(ml_dtypes.float8_e5m2)
    expected = x.astype(np.float32).T @ y.astype(np.float32)
    halves = [np.stack([part[:128], part[128:]], axis=1) for part in (x, y)]
    same_bits(kernel(*halves), expected)


def test_what_double_float8_goes_without():
    """Section "Double FP8 Matmul Performance": the second dimension is two; no transpose mode."""

    def kernel(second, transpose):
        a = tile((128, second, 16), nl.float8_e4m3)
        dtype = nl.float8_e4m3 if transpose else nl.float32
        out = nl.ndarray((16, 16), dtype=dtype, buffer=nl.psum)
        nisa.nc_matmul(
            out, a, a, is_transpose=transpose, perf_mode=nisa.matmul_perf_mode.double_row
        )  # rule

    pair("matmul-double-row", kernel, (2, False), (4, False), line="nisa.nc_matmul")
    pair("matmul-transpose", kernel, (2, False), (2, True), line="nisa.nc_matmul")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_transposes_of_nan_and_infinity(dtype):
    """Section "Built-in Transpose Support": bit accurate, 16-bit data as 16-bit results in PSUM."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((6, 8), dtype=x.dtype, buffer=nl.psum)
        nisa.nc_transpose(out, load(x), engine=nisa.engine.tensor)
        again = nl.ndarray((6, 8), dtype=x.dtype, buffer=nl.psum)
        eye = nl.shared_identity_matrix(8, dtype=x.dtype)
        nisa.nc_matmul(again, load(x), eye, is_transpose=True)
        return save(out), save(again)

    x = values((8, 6), dtype)
    x[0, 0], x[3, 2], x[5, 1] = np.nan, np.inf, -np.inf
    for got in kernel(x):
        same_bits(got, np.ascontiguousarray(x.T))


def test_transposes_of_nan_without_transpose_mode():
    """Section "Built-in Transpose Support": a plain product spreads NaN over the result."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((6, 8), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, load(x), nl.shared_identity_matrix(8, dtype=x.dtype))
        return save(out)

    x = values((8, 6))
    x[2, 3] = np.nan
    got = kernel(x)
    assert np.isnan(got[3]).all() and np.isfinite(np.delete(got, 3, axis=0)).all()


def test_a_transpose_of_8_bit_data_gives_16_bit_elements():
    """Section "Built-in Transpose Support", note; dst has data's dtype."""

    def kernel(dtype):
        out = nl.ndarray((8, 8), dtype=dtype, buffer=nl.psum)
        nisa.nc_transpose(out, tile((8, 8), dtype), engine=nisa.engine.tensor)  # rule

    pair("transpose-8-bit", kernel, nl.bfloat16, nl.float8_e4m3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int32"])
def test_dma_transposes(dtype):
    """Section "DMA Transpose": from HBM and within SBUF, 2-byte and 4-byte dtypes, bit accurate."""

    @nki.jit
    def kernel(x):
        first = nl.ndarray((24, 512 // 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=first, src=x)
        second = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=second, src=first)
        return save(first), save(second)

    x = values((64, 24), dtype)
    first, second = kernel(x)
    same_bits(first, np.ascontiguousarray(x.T))
    same_bits(second, x)


def test_dma_transposes_of_bytes():
    """Section "DMA Transpose": 2-byte and 4-byte data types."""

    def kernel(dtype):
        nisa.dma_transpose(dst=nl.ndarray((4, 8), dtype=dtype), src=tile((8, 4), dtype))  # rule

    pair("dma-transpose-dtype", kernel, nl.int16, nl.int8)


def test_an_exact_copy_on_the_scalar_engine(on_target):
    """Section "Scalar Engine": from NeuronCore-v3 on copies are bit accurate; v2 has none there."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.tensor_copy(dst=t, src=load(x), engine=nisa.engine.scalar)
        return save(t)

    x = np.array([[2**24 + 1, -(2**31) + 1]], np.int32)
    same_bits(kernel(x), x)
    on_target("trn1")
    refused("target", kernel, x, line="engine=nisa.engine.scalar")


# trainium3_arch.rst.


def test_bfloat16_sums_in_psum(on_target):
    """Section "BF16 Matmul Results in PSUM": each addition in float32, then rounded to bfloat16."""

    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((8, 16), dtype=nl.bfloat16, buffer=nl.psum)
        for i in range(x.shape[0]):
            nisa.nc_matmul(out, load(x[i]), load(y[i]))
        return save(out)

    x = values((3, 32, 8), "int8", low=-9, high=9).astype(np.float32)
    y = values((3, 32, 16), "int8", seed=1, low=-9, high=9).astype(np.float32)
    refused("matmul-dst-dtype", kernel, x, y, line="nisa.nc_matmul")
    on_target("trn3")
    expected = np.zeros((8, 16), np.float32)
    for i in range(3):
        expected = rounded(expected + x[i].T @ y[i], "bfloat16").astype(np.float32)
    same_bits(kernel(x, y), rounded(expected, "bfloat16"))


def test_an_exponential_with_its_sum(on_target):
    """Section "Fast Exponential Evaluation": the softmax pattern of its pseudo code."""

    @nki.jit
    def kernel(x):
        t = load(x)
        largest, total = (nl.ndarray((8, 1), dtype=nl.float32) for _ in range(2))
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=t, axis=1)
        nisa.exponential(
            dst=t, src=t, max_value=largest, reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )  # fmt: skip
        return save(t), save(total)

    on_target("trn3")
    x = values((8, 12))
    got, total = kernel(x)
    expected = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, expected, rtol=2**-20)
    np.testing.assert_allclose(total[:, 0], got.astype(np.float64).sum(axis=1), rtol=2**-20)
    assert (got.max(axis=1) == 1).all()


def test_columns_gathered_by_a_matmul(on_target):
    """Section "SBUF/PSUM indirect access": some columns of the free axis in one instruction."""

    @nki.jit
    def kernel(x, y, columns):
        out = nl.ndarray((4, 3), dtype=nl.float32, buffer=nl.psum)
        index = load(columns)
        nisa.nc_matmul(out, load(x), load(y).indirect(index, num_elem=3))
        scattered = tile((32, 12), nl.bfloat16)
        nisa.tensor_copy(dst=scattered.indirect(index, num_elem=3), src=load(y[:, 0:3]))
        return save(out), save(scattered)

    on_target("trn3")
    x = rounded(values((32, 4), "int8"), "bfloat16")
    y = rounded(values((32, 12), "int8", seed=1), "bfloat16")
    # Offset i is in partition i of the index; the vector engine reads groups of 16 partitions.
    columns = np.zeros((32, 1), np.uint32)
    columns[0:3, 0] = columns[16:19, 0] = (0, 4, 11)
    product, scattered = kernel(x, y, columns)
    same_bits(product, x.astype(np.float32).T @ y.astype(np.float32)[:, [0, 4, 11]])
    expected = np.zeros_like(y)
    expected[:, [0, 4, 11]] = y[:, 0:3]
    same_bits(scattered, expected)


def test_instructions_of_the_fourth_generation(on_target):
    """Section "Vector Engine", "Scalar Engine": instructions that the guide introduces."""

    def kernel(which):
        t = tile((32, 8), value=0.0)
        if which == "exponential":
            nisa.exponential(dst=t, src=t)  # rule
        elif which == "rand2":
            nisa.rand2(dst=t, min=0.0, max=1.0)  # rule
        elif which == "activate2":
            nisa.activate2(t, nl.relu, t, 0.0, 0.0, nl.bypass, nl.bypass)  # rule
        else:
            packed = nl.ndarray((32, 2), dtype=nl.float8_e5m2_x4)
            scale = nl.ndarray((4, 2), dtype=nl.float8_e8m0fnu)
            nisa.quantize_mx(packed, tile((32, 8), nl.bfloat16), scale)  # rule

    for which in ("exponential", "rand2", "activate2", "quantize_mx"):
        on_target("trn2")
        refused("target", kernel, which)
        on_target("trn3")
        simulate(kernel)(which)


def test_engines_cast_to_and_from_float32():
    """trainium_inferentia2_arch.rst, "Vector Engine", Data Types: any dtype in and out."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=nl.int8)
        nisa.tensor_scalar(dst=t, data=load(x), op0=nl.multiply, operand0=1.5)
        return save(t)

    x = values((4, 20), "bfloat16", seed=3) * np.float32(40).astype(ml_dtypes.bfloat16)
    same_bits(kernel(x), converted(x.astype(np.float32) * np.float32(1.5), "int8"))
