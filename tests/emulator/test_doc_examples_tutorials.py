"""The tutorials, about/tiling-overview.rst and the examples folder: kernels of several tiles.

Sizes are small multiples of the tile sizes; every result is compared with NumPy.
"""

import math

from nki_emulator import memory_report

from .support import (
    load,
    nisa,
    nki,
    nl,
    np,
    pair,
    pytest,
    refused,
    rounded,
    same_bits,
    save,
    values,
)  # fmt: skip

TILE_K, TILE_M, TILE_N = 128, 128, 512


# get-started/about/tiling-overview.rst.


def test_tiles_of_128_partitions():
    """tiling-overview.rst, "Tile-based operations": 256 rows in two tiles; slices and nl.ds."""

    @nki.jit
    def inverse(x, with_ds):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        source = nl.ndarray((nl.tile_size.pmax, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        target = nl.ndarray(source.shape, dtype=x.dtype, buffer=nl.sbuf)
        for i in range(x.shape[0] // nl.tile_size.pmax):
            rows = nl.ds(i * 128, 128) if with_ds else slice(i * 128, (i + 1) * 128)
            nisa.dma_copy(dst=source, src=x[rows, :])
            nisa.reciprocal(dst=target, data=source)
            nisa.dma_copy(dst=out[rows, :], src=target)
        return out

    x = values((256, 16)) + 5
    for with_ds in (False, True):
        same_bits(inverse(x, with_ds), np.float32(1) / x)


def test_an_output_that_is_only_half_written():
    """tiling-overview.rst, "Tile size considerations": the rest would be garbage on the chip."""

    @nki.jit
    def first_tile(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0:128], src=load(x[0:128]))
        return out

    x = values((256, 8))
    same_bits(first_tile(x[:128]), x[:128])
    refused("return-unwritten", first_tile, x, line=None)


def test_any_number_of_rows():
    """tiling-overview.rst, last example: the last tile is cut with min, not with a mask."""

    @nki.jit
    def exponential(x):
        rows, columns = x.shape
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        for p in range(math.ceil(rows / 128)):
            start = p * 128
            size = min(start + 128, rows) - start
            part = slice(start, start + size)
            nisa.dma_copy(dst=t[0:size], src=x[part, :])
            nisa.activation(dst=t[0:size], data=t[0:size], op=nl.relu)
            nisa.dma_copy(dst=out[part, :], src=t[0:size])
        return out

    for rows in (1, 128, 129, 300):
        x = values((rows, 8))
        same_bits(exponential(x), np.maximum(x, 0))


def test_the_uncut_tile_of_the_last_rows():
    """The page's own last example copies a cut slice into the whole tile: sizes differ."""

    def kernel(x, cut):
        t = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        rows = x[0 : min(128, x.shape[0]), :]
        nisa.dma_copy(dst=t[0 : rows.shape[0]] if cut else t, src=rows)  # rule

    pair("dma-size", kernel, (values((100, 8)), True), (values((100, 8)), False))


def test_tile_sizes():
    """tiling-overview.rst, "Tile size considerations": the three constraints."""

    def kernel(rows, columns):
        a = nl.ndarray((128, rows), dtype=nl.bfloat16)
        b = nl.ndarray((128, columns), dtype=nl.bfloat16)
        nisa.memset(a, 1.0)
        nisa.memset(b, 1.0)
        sums = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(sums, a, b)  # rule

    assert nl.tile_size.pmax == 128
    assert (nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax) == (128, 512)
    pair("matmul-stationary-free", kernel, (128, 512), (129, 512))
    pair("matmul-moving-free", kernel, (128, 512), (128, 513))

    def bank(columns):
        nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum)  # rule

    pair("psum-bank", bank, 512, 513)


# guides/tutorials/matrix_multiplication.rst and kernel-optimization.rst.


@nki.jit
def basic(left, right):
    """One tile: left [K, M] is transposed already."""
    sums = nl.ndarray((left.shape[1], right.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(sums, load(left), load(right))
    t = nl.ndarray(sums.shape, dtype=left.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=t, src=sums)
    return save(t)


@nki.jit
def tiled(left, right):
    """A loop over result tiles, and one over the contraction that accumulates in PSUM."""
    (depth, rows), (_, columns) = left.shape, right.shape
    out = nl.ndarray((rows, columns), dtype=left.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(rows // TILE_M):
        for n in nl.affine_range(columns // TILE_N):
            sums = nl.ndarray((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // TILE_K):
                inner = nl.ds(k * TILE_K, TILE_K)
                a = load(left[inner, nl.ds(m * TILE_M, TILE_M)])
                b = load(right[inner, nl.ds(n * TILE_N, TILE_N)])
                nisa.nc_matmul(dst=sums, stationary=a, moving=b)
            t = nl.ndarray(sums.shape, dtype=left.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=t, src=sums)
            target = out[nl.ds(m * TILE_M, TILE_M), nl.ds(n * TILE_N, TILE_N)]
            nisa.dma_copy(dst=target, src=t)
    return out


@nki.jit
def hoisted(left, right):
    """The loads moved out of the inner loop: lists of tiles."""
    (depth, rows), (_, columns) = left.shape, right.shape
    out = nl.ndarray((rows, columns), dtype=left.dtype, buffer=nl.shared_hbm)
    for m in range(rows // TILE_M):
        stationary = []
        for k in range(depth // TILE_K):
            stationary.append(load(left[nl.ds(k * 128, 128), nl.ds(m * 128, 128)]))
        for n in range(columns // TILE_N):
            moving = []
            for k in range(depth // TILE_K):
                moving.append(load(right[nl.ds(k * 128, 128), nl.ds(n * TILE_N, TILE_N)]))
            sums = nl.ndarray((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in range(depth // TILE_K):
                nisa.nc_matmul(sums, stationary[k], moving[k])
            t = nl.ndarray(sums.shape, dtype=left.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=t, src=sums)
            nisa.dma_copy(dst=out[nl.ds(m * 128, 128), nl.ds(n * TILE_N, TILE_N)], src=t)
    return out


@nki.jit
def blocked(left, right, tiles_m=2, tiles_n=2, tiles_k=2):
    """All three dimensions in blocks: those of K are added up in SBUF, a block row stored whole."""
    (depth, rows), (_, columns) = left.shape, right.shape
    out = nl.ndarray((rows, columns), dtype=left.dtype, buffer=nl.shared_hbm)
    block_n, block_k = tiles_n * TILE_N, tiles_k * TILE_K
    for n in range(columns // block_n):
        results = []
        for _ in range(rows // TILE_M):
            result = nl.ndarray((TILE_M, tiles_n, TILE_N), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=result, value=0.0)
            results.append(result)
        for k in range(depth // block_k):
            b = nl.ndarray((TILE_K, tiles_k, block_n), dtype=right.dtype, buffer=nl.sbuf)
            a = nl.ndarray((TILE_K, tiles_k, rows), dtype=left.dtype, buffer=nl.sbuf)
            for i in range(tiles_k):
                inner = nl.ds(k * block_k + i * TILE_K, TILE_K)
                nisa.dma_copy(dst=b[:, i, :], src=right[inner, nl.ds(n * block_n, block_n)])
                nisa.dma_copy(dst=a[:, i, :], src=left[inner, :])
            for m in range(rows // TILE_M):
                for j in range(tiles_n):
                    sums = nl.ndarray((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
                    for i in range(tiles_k):
                        nisa.nc_matmul(
                            sums, a[:, i, nl.ds(m * 128, 128)], b[:, i, nl.ds(j * TILE_N, TILE_N)]
                        )
                    total = results[m][:, j, :]
                    nisa.tensor_tensor(dst=total, data1=total, data2=sums, op=nl.add)
        for m in range(rows // TILE_M):
            block = results[m].reshape((TILE_M, block_n))
            nisa.dma_copy(dst=out[nl.ds(m * 128, 128), nl.ds(n * block_n, block_n)], src=block)
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "kernel, shape",
    [
        (basic, (128, 64, 512)), (tiled, (256, 256, 512)), (hoisted, (256, 256, 512)),
        (blocked, (256, 256, 1024)),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_matrix_multiplications(kernel, shape, dtype):
    """matrix_multiplication.rst and kernel-optimization.rst: each step of the optimisation."""
    depth, rows, columns = shape
    # Small integers, so that every order of summation gives the same sum.
    left = values((depth, rows), "int8", low=-4, high=4).astype(np.float32)
    right = values((depth, columns), "int8", seed=1, low=-4, high=4).astype(np.float32)
    expected = rounded(left.T @ right, dtype)
    same_bits(kernel(rounded(left, dtype), rounded(right, dtype)), expected)


def test_the_memory_of_a_blocked_matmul():
    """matrix_multiplication.rst, "Optimization 3": what the live blocks take in SBUF."""
    left, right = np.zeros((256, 256), np.float32), np.zeros((256, 1024), np.float32)
    sbuf = memory_report(blocked)(left, right).sbuf[0]
    results = 2 * 2 * TILE_N * 4  # two M tiles of two N tiles in float32
    loaded = 2 * 1024 * 4 + 2 * 256 * 4  # two K tiles of each operand
    assert sbuf.peak == results + loaded


# The other tutorials.


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_transpose_of_free_axes(dtype):
    """transpose2d.rst: two free axes swapped by copies of single elements, or by one view."""

    @nki.jit
    def by_elements(x, shape):
        rows, columns = shape
        source, target = load(x), nl.ndarray(x.shape, dtype=x.dtype)
        for i in range(rows):
            for j in range(columns):
                nisa.tensor_copy(
                    dst=target[:, nl.ds(j * rows + i, 1)], src=source[:, nl.ds(i * columns + j, 1)]
                )
        return save(target)

    @nki.jit
    def by_view(x, shape):
        target = nl.ndarray((x.shape[0], shape[1], shape[0]), dtype=x.dtype)
        nisa.tensor_copy(dst=target, src=load(x).reshape((-1, *shape)).permute((0, 2, 1)))
        return save(target.flatten_dims(1, 2))

    x = values((5, 12), dtype)
    expected = np.ascontiguousarray(x.reshape(5, 3, 4).transpose(0, 2, 1)).reshape(5, 12)
    same_bits(by_elements(x, (3, 4)), expected)
    same_bits(by_view(x, (3, 4)), expected)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_average_pooling(size):
    """average_pool2d.rst: a pattern of five dimensions, a sum over two, a scaling."""

    @nki.jit
    def pool(x, size):
        channels, height, width = x.shape
        windows = load(x).ap(
            [
                [height * width, channels], [size * width, height // size], [size, width // size],
                [width, size], [1, size],
            ]
        )  # fmt: skip
        total = nl.sum(windows, axis=[3, 4])
        nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1.0 / size**2)
        return save(total)

    x = np.arange(2 * 6 * 6, dtype=np.float16).reshape(2, 6, 6)
    windows = x.reshape(2, 6 // size, size, 6 // size, size).astype(np.float32)
    total = windows.sum(axis=(2, 4)).astype(np.float16)
    expected = (total.astype(np.float32) * np.float32(1.0 / size**2)).astype(np.float16)
    same_bits(pool(x, size), expected)


def test_a_selective_scan():
    """fused_mamba.rst: exp(delta * A), a scan, and a sum over states, rows broadcast from one."""
    states, length = 3, 10

    @nki.jit
    def scan(delta, u, A, B, C):
        time = load(delta)
        total = nl.zeros(delta.shape, dtype=nl.float32)
        for i in range(states):
            decay = nl.ndarray(delta.shape, dtype=nl.float32)
            nisa.activation(dst=decay, op=nl.exp, data=time, scale=load(A[:, i : i + 1]))
            inflow = nl.multiply(time, load(u))
            rows = nl.broadcast_to(load(B[i : i + 1]), delta.shape)
            nisa.tensor_tensor(dst=inflow, data1=inflow, data2=rows, op=nl.multiply)
            state = nl.ndarray(delta.shape, dtype=nl.float32)
            nisa.tensor_tensor_scan(
                dst=state, data0=decay, data1=inflow, initial=0.0, op0=nl.multiply, op1=nl.add
            )
            rows = nl.broadcast_to(load(C[i : i + 1]), delta.shape)
            nisa.tensor_tensor(dst=state, data1=state, data2=rows, op=nl.multiply)
            nisa.tensor_tensor(dst=total, data1=total, data2=state, op=nl.add)
        return save(total)

    delta, u = np.abs(values((128, length))), values((128, length), seed=1)
    A, B, C = -np.abs(values((128, states))), values((states, length)), values((states, length))
    expected = np.zeros_like(delta, np.float64)
    for i in range(states):
        state = np.zeros(128)
        for t in range(length):
            state = np.exp(np.float64(delta[:, t]) * A[:, i]) * state
            state += np.float64(delta[:, t]) * u[:, t] * B[i, t]
            expected[:, t] += state * C[i, t]
    np.testing.assert_allclose(scan(delta, u, A, B, C), expected, rtol=1e-4, atol=1e-6)


def test_tensor_addition_in_tiles():
    """examples/tensor_addition: a grid of [128, 512] tiles."""

    @nki.jit
    def add(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for m in range(a.shape[0] // 128):
            for n in range(a.shape[1] // 512):
                part = (slice(m * 128, (m + 1) * 128), slice(n * 512, (n + 1) * 512))
                t = load(a[part])
                nisa.tensor_tensor(dst=t, data1=t, data2=load(b[part]), op=nl.add)
                nisa.dma_copy(dst=out[part], src=t)
        return out

    a, b = values((256, 1024), "bfloat16"), values((256, 1024), "bfloat16", seed=1)
    same_bits(add(a, b), rounded(a.astype(np.float32) + b.astype(np.float32), "bfloat16"))


def test_an_exponential_of_a_tile():
    """examples/layout-pass.py and tiling-overview.rst: exp of ones in bfloat16 prints 2.7188."""

    @nki.jit
    def exponential(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.exp(nl.load(x)))
        return out

    got = exponential(rounded(np.ones((128, 512)), "bfloat16"))
    assert (got == got[0, 0]).all() and float(got[0, 0]) == 2.71875


def test_more_partitions_than_there_are():
    """examples/layout-violation.py: 256 rows in one tile violate tile-size constraint 1."""

    def kernel(x):
        nl.load(x)  # rule

    pair("partitions", kernel, values((128, 4)), values((256, 4)))


# deep-dives/nki_perf_guide.rst.


def test_three_instructions_in_one():
    """nki_perf_guide.rst, "Opt #6": multiply, add and exp in a single activation."""

    @nki.jit
    def kernel(x, scale, bias):
        t, s, b = load(x), load(scale), load(bias)
        apart, together = (nl.ndarray(x.shape, dtype=nl.float32) for _ in range(2))
        nisa.tensor_scalar(apart, t, nl.multiply, s, op1=nl.add, operand1=b)
        nisa.activation(dst=apart, op=nl.exp, data=apart)
        nisa.activation(dst=together, op=nl.exp, data=t, bias=b, scale=s)
        return save(apart), save(together)

    apart, together = kernel(values((16, 8)), values((16, 1), seed=1), values((16, 1), seed=2))
    same_bits(apart, together)


def test_a_transpose_by_dma_and_by_the_tensor_engine():
    """nki_perf_guide.rst, "Opt #10": load_transpose2d, or loads and transposes of tiles."""

    @nki.jit
    def kernel(x):
        by_dma = nl.load_transpose2d(x)
        by_engine = nl.ndarray((x.shape[1], x.shape[0]), dtype=x.dtype)
        for i in range(x.shape[0] // 128):
            part = nl.ds(i * 128, 128)
            turned = nl.ndarray((x.shape[1], 128), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(turned, load(x[part]))
            nisa.tensor_copy(dst=by_engine[:, part], src=turned)
        return save(by_dma), save(by_engine)

    x = values((256, 32), "bfloat16")
    for got in kernel(x):
        same_bits(got, np.ascontiguousarray(x.T))


def test_two_results_for_one_instruction():
    """nki_perf_guide.rst, "Opt #5": two products in one tile of 128 partitions, reduced at once.

    The guide lets the second matmul write to partitions 64 to 127. In NKI 0.6 a matmul starts at
    column 0 of the array, whose results are those of partition 0 on; so here they are copied.
    """

    @nki.jit
    def kernel(x, y, directly):
        both = nl.ndarray((128, 8), dtype=nl.float32)
        sums = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.psum)
        for half in range(2):
            place = sums[64 * half :][0:64] if directly else sums[0:64]
            nisa.nc_matmul(place, load(x[half]), load(y), accumulate=False)  # rule
            nisa.tensor_copy(dst=both[64 * half :][0:64], src=place)
        total = nl.ndarray((128, 1), dtype=nl.float32)
        nisa.tensor_reduce(dst=total, op=nl.add, data=both, axis=1)
        return save(total)

    x = values((2, 32, 64), "int8").astype(np.float32)
    y = values((32, 8), "int8", seed=1).astype(np.float32)
    expected = np.concatenate([x[0].T @ y, x[1].T @ y]).sum(axis=1, keepdims=True)
    same_bits(kernel(x, y, False), expected)
    pair("matmul-dst-partition", kernel.function, (x, y, False), (x, y, True))
