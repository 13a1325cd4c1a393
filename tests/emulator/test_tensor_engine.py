"""nc_matmul and nc_transpose: numbers against NumPy, and each operand rule."""

from nki_emulator import NkiNotImplemented

from .support import (
    NUMPY,
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


def matmul(w, x, columns=None):
    stationary, moving = load(w), load(x)
    shape = (stationary.size // w.shape[0], moving.size // x.shape[0])
    acc = nl.ndarray(columns or shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=stationary, moving=moving)
    return save(acc)


def exact(w, x):
    flat = [a.astype(np.float64).reshape(len(a), -1) for a in (w, x)]
    return flat[0].T @ flat[1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("sizes", [(128, 128, 512), (1, 1, 1), (5, 7, 3), (100, 33, 200)])
def test_product(dtype, sizes):
    depth, columns, width = sizes
    w, x = values((depth, columns), dtype, 1), values((depth, width), dtype, 2)
    got = simulate(matmul)(w, x)
    np.testing.assert_allclose(got, exact(w, x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("second", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
def test_sixteen_and_eight_bit_types_mix(second):
    w, x = values((64, 16), "bfloat16", 1), values((64, 20), second, 2)
    np.testing.assert_allclose(simulate(matmul)(w, x), exact(w, x), rtol=1e-5, atol=1e-4)


def test_free_dimensions_are_flattened():
    w, x = values((32, 2, 5), seed=1), values((32, 3, 4), seed=2)
    got = simulate(matmul)(w, x, (10, 3, 4))
    np.testing.assert_allclose(got.reshape(10, 12), exact(w, x), rtol=1e-5, atol=1e-5)


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
        return save(acc), save(other), save(third)

    w, x = values((40, 16), seed=1), values((40, 20), seed=2)
    first, second, third = simulate(kernel)(w, x)
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(first, np.tile(w[:, 0] @ x[:, ::2], (8, 1)), **close)
    np.testing.assert_allclose(
        second, np.repeat((w[:, ::2][:, :6].T @ x[:, 3])[:, None], 4, axis=1), **close
    )
    expected = np.einsum("km,kab->mab", w[:, :3], x.reshape(40, 5, 4)[:, :, :2])
    np.testing.assert_allclose(third, expected.transpose(0, 2, 1), **close)


def test_products_use_rounded_operands_and_float32_sums():
    w = np.full((128, 1), 1 + 2.0**-6, NUMPY["bfloat16"])
    x = np.full((128, 1), 1 + 2.0**-7, NUMPY["bfloat16"])
    expected = 128 * (1 + 2.0**-6) * (1 + 2.0**-7)
    assert simulate(matmul)(w, x)[0, 0] == np.float32(expected)


@pytest.mark.parametrize("shape", [(128, 128, 512), (16, 4, 8)])
def test_double_row(shape):
    depth, columns, width = shape
    w, x = (values((depth, 2, n), "float8_e4m3", n) for n in (columns, width))

    def kernel(w, x):
        acc = nl.ndarray((columns, width), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(
            acc, load(w), load(x), perf_mode=nisa.matmul_perf_mode.double_row
        )
        return save(acc)

    expected = np.einsum("kim,kin->mn", *(a.astype(np.float64) for a in (w, x)))
    np.testing.assert_allclose(simulate(kernel)(w, x), expected, rtol=1e-5, atol=1e-4)


# Rules. `plain` takes what a case changes and leaves the rest legal.


def plain(
    depth=32, columns=16, width=24, first="float32", second="float32", dst="float32",
    dst_shape=None, buffers=(nl.psum, nl.sbuf, nl.sbuf), moving_depth=None, **options,
):  # fmt: skip
    dst_tile = nl.ndarray(dst_shape or (columns, width), dtype=dst, buffer=buffers[0])
    stationary = tile((depth, columns), first, buffers[1])
    moving = tile((moving_depth or depth, width), second, buffers[2])
    nisa.nc_matmul(dst_tile, stationary, moving, **options)  # rule


def case(**changes):
    return lambda: plain(**changes)


def run_case(change):
    change()


P, S = nl.psum, nl.sbuf
RULES = [
    ("matmul-moving-free", {"width": 512}, {"width": 513, "dst_shape": (16, 512)}),
    ("matmul-stationary-free", {"columns": 128}, {"columns": 129, "dst_shape": (128, 24)}),
    ("matmul-contraction", {"moving_depth": 32}, {"moving_depth": 31}),
    ("matmul-dst-buffer", {}, {"buffers": (S, S, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, P, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, S, P)}),
    ("matmul-dst-dtype", {}, {"dst": "bfloat16", "first": "bfloat16", "second": "bfloat16"}),
    ("matmul-dtype", {"first": "bfloat16", "second": "bfloat16"}, {"first": "int32"}),
    ("matmul-dtype", {"first": "bfloat16", "second": "float8_e5m2"},
     {"first": "bfloat16", "second": "float8_e4m3fn"}),
    ("matmul-dtype-mix", {"first": "tfloat32"}, {"first": "bfloat16"}),
    ("matmul-dtype-mix", {"second": "tfloat32"}, {"second": "float16"}),
    ("matmul-dst-shape", {}, {"dst_shape": (16, 25)}),
    ("matmul-dst-shape", {"dst_shape": (16, 4, 6)}, {"dst_shape": (24, 16)}),
    ("matmul-accumulate", {"accumulate": False}, {"accumulate": 0}),
    ("matmul-accumulate", {"accumulate": np.False_}, {"accumulate": 1}),
    ("matmul-tile", {"tile_position": (0, 0), "tile_size": (32, 128)}, {"tile_position": (0, 0)}),
    ("matmul-tile", {"tile_position": (0, 0), "tile_size": (32, 128)}, {"tile_size": (32, 128)}),
    ("matmul-tile", {"tile_position": (0, 0), "tile_size": (32, 128)},
     {"tile_position": (0, 32), "tile_size": (32, 32)}),
    ("matmul-tile", {"tile_position": (0, 0), "tile_size": (32, 128)},
     {"tile_position": (0, 0), "tile_size": (48, 128)}),
    ("matmul-tile", {"tile_position": (32, 0), "tile_size": (32, 128)},
     {"tile_position": (32, 0), "tile_size": (64, 128)}),
    ("matmul-tile", {"tile_position": (96, 0), "tile_size": (32, 128)},
     {"tile_position": (128, 0), "tile_size": (32, 128)}),
    ("matmul-tile", {"depth": 32, "tile_position": (0, 0), "tile_size": (32, 128)},
     {"depth": 33, "tile_position": (0, 0), "tile_size": (32, 128)}),
    ("matmul-transpose", {}, {"is_transpose": True, "accumulate": True}),
    ("enum", {"perf_mode": nisa.matmul_perf_mode.none}, {"perf_mode": "double_row"}),
    ("matmul-double-row", {}, {"perf_mode": nisa.matmul_perf_mode.double_row}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", RULES)
def test_matmul_rules(rule, good, bad):
    pair(rule, run_case, case(**good), case(**bad))


def test_row_tiles_of_32_need_gen3(on_target):
    options = {"tile_position": (32, 0), "tile_size": (32, 128)}
    simulate(lambda: plain(**options))()
    on_target("trn1")
    refused("matmul-tile", lambda: plain(**options))
    simulate(lambda: plain(tile_position=(64, 0), tile_size=(64, 128)))()


def test_gen4_limits(on_target):
    on_target("trn3")
    pair("matmul-moving-free", run_case, case(width=4096),
         case(width=4097, dst_shape=(16, 4096)))  # fmt: skip
    half = {"dst": "bfloat16", "first": "bfloat16", "second": "bfloat16"}
    pair("matmul-moving-free", run_case, case(width=8192, **half),
         case(width=8193, dst_shape=(16, 8192), **half))  # fmt: skip
    simulate(run_case)(case(first="float8_e4m3fn", second="bfloat16"))
    pair("matmul-dtype-mix", run_case, case(first="float8_e4m3fn", second="float8_e5m2"),
         case(first="float8_e4m3fn", second="float8_e4m3"))  # fmt: skip


def test_double_row_needs_gen3(on_target):
    def kernel():
        pair_tile = tile((32, 2, 16), nl.float8_e4m3)
        acc = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(  # rule
            acc, pair_tile, pair_tile, perf_mode=nisa.matmul_perf_mode.double_row
        )

    simulate(kernel)()
    on_target("trn1")
    refused("target", kernel, line=None)


# Where operands lie: partition p feeds row p of the array.


def at_partition(start, count, height, position=(), size=(), address=None):
    w = nl.ndarray((height, 16), dtype=nl.float32, address=address and (address, 0))
    x = nl.ndarray((height, 16), dtype=nl.float32, address=address and (address, 1024))
    for t in (w, x):
        nisa.memset(dst=t, value=1.0)
    acc = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
    rows = slice(start, start + count)
    nisa.nc_matmul(acc, w[rows], x[rows], tile_position=position, tile_size=size)  # rule


@pytest.mark.parametrize(
    "good, bad",
    [
        # The lower half of a full tile is rows 64..127.
        ((64, 64, 128, (64, 0), (64, 128)), (64, 64, 128)),
        ((64, 64, 128, (64, 0), (64, 128)), (64, 64, 128, (0, 0), (64, 128))),
        ((96, 32, 128, (96, 0), (32, 128)), (96, 32, 128, (64, 0), (32, 128))),
        ((0, 64, 128), (0, 64, 128, (64, 0), (64, 128))),
        # A whole tile of up to 64 partitions goes where the compiler puts it.
        ((0, 64, 64, (64, 0), (64, 128)), (0, 64, 65, (64, 0), (64, 128))),
        ((0, 32, 32, (96, 0), (32, 128)), (32, 16, 48)),
        # A given address fixes it.
        ((0, 32, 32, (32, 0), (32, 128), 32), (0, 32, 32, (64, 0), (32, 128), 32)),
    ],
)
def test_operands_start_at_the_row_of_the_tile(good, bad):
    pair("matmul-tile-position", at_partition, good, bad)


def test_row_tile_product():
    def kernel(w, x):
        stationary, moving = load(w), load(x)
        outs = []
        for row in (0, 64):
            acc = nl.ndarray((8, 10), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(
                acc, stationary[row : row + 64], moving[row : row + 64],
                tile_position=(row, 0), tile_size=(64, 128),
            )  # fmt: skip
            outs.append(save(acc))
        return tuple(outs)

    w, x = values((128, 8), seed=1), values((128, 10), seed=2)
    low, high = simulate(kernel)(w, x)
    np.testing.assert_allclose(low, exact(w[:64], x[:64]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(high, exact(w[64:], x[64:]), rtol=1e-5, atol=1e-5)


def test_results_leave_at_partition_zero():
    def kernel(first):
        acc = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.psum)
        w = tile((32, 32))
        nisa.nc_matmul(acc[first : first + 32], w, w[:, 0:16])  # rule

    pair("matmul-dst-partition", kernel, 0, 32)


# Transposes.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint16", "tfloat32"])
@pytest.mark.parametrize("shape", [(128, 128), (5, 3), (100, 1), (7, 2, 9)])
def test_tensor_engine_transpose_keeps_every_bit(dtype, shape):
    def kernel(x):
        data = load(x.reshape(shape), dtype=dtype if dtype == "tfloat32" else x.dtype)
        dst = nl.ndarray((data.size // shape[0], shape[0]), dtype=data.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=dst, data=data)
        return save(dst)

    x = values(shape, "float32" if dtype == "tfloat32" else dtype)
    if x.dtype.kind == "f" or dtype == "bfloat16":
        x.flat[0] = np.nan
        x.flat[-1] = -np.inf
    got = simulate(kernel)(x)
    if dtype != "tfloat32":
        same_bits(got, np.ascontiguousarray(x.reshape(shape[0], -1).T))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float8_e5m2"])
@pytest.mark.parametrize("buffers", [(S, S), (P, P), (S, P)])
def test_vector_engine_transpose(dtype, buffers):
    def kernel(x):
        data = load(x)
        if buffers[1] == P:
            moved = nl.ndarray(x.shape, dtype=x.dtype, buffer=P)
            nisa.tensor_copy(dst=moved, src=data)
            data = moved
        dst = nl.ndarray((20, 32), dtype=x.dtype, buffer=buffers[0])
        nisa.nc_transpose(dst=dst, data=data, engine=nisa.engine.vector)
        return save(dst)

    x = values((32, 20), dtype)
    same_bits(simulate(kernel)(x), np.ascontiguousarray(x.T))


def test_engine_of_a_transpose_follows_the_buffers():
    from nki_emulator import record

    def kernel():
        for buffer in (P, S):
            nisa.nc_transpose(nl.ndarray((8, 8), nl.float32, buffer), tile((8, 8)))

    _, session = record(kernel)()
    engines = [r.engine for r in session.trace if r.op == "nc_transpose"]
    assert engines == ["tensor", "vector"]


def transpose(shape=(32, 16), dst_shape=None, dtype="float32", dst=None, buffers=(P, S), **options):
    data = tile(shape, dtype, buffers[1])
    made = nl.ndarray(dst_shape or (shape[1], shape[0]), dtype=dst or dtype, buffer=buffers[0])
    nisa.nc_transpose(made, data, **options)  # rule


TENSOR, VECTOR = nisa.engine.tensor, nisa.engine.vector
TRANSPOSE_RULES = [
    ("transpose-dtype", {}, {"dst": "bfloat16"}),
    ("transpose-shape", {}, {"dst_shape": (32, 16)}),
    ("transpose-shape", {"dst_shape": (16, 4, 8)}, {"dst_shape": (16, 33)}),
    ("transpose-size", {"shape": (32, 32), "engine": VECTOR},
     {"shape": (33, 32), "engine": VECTOR}),
    ("transpose-size", {"shape": (32, 32), "buffers": (S, S)},
     {"shape": (32, 33), "buffers": (S, S)}),
    ("matmul-dst-buffer", {"engine": TENSOR}, {"engine": TENSOR, "buffers": (S, S)}),
    ("buffer-sbuf", {"engine": TENSOR}, {"engine": TENSOR, "buffers": (P, P)}),
    ("enum", {"engine": nisa.engine.unknown}, {"engine": nisa.engine.scalar}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", TRANSPOSE_RULES)
def test_transpose_rules(rule, good, bad):
    pair(rule, lambda change: transpose(**change), (good,), (bad,))


def test_transposed_data_starts_at_row_zero():
    def kernel(first):
        data = tile((128, 16))
        dst = nl.ndarray((16, 64), dtype=nl.float32, buffer=P)
        nisa.nc_transpose(dst, data[first : first + 64])  # rule

    pair("matmul-tile-position", kernel, 0, 64)


def test_transpose_by_matmul():
    def kernel(x, dst_dtype=nl.bfloat16, repeat=False, scale=1.0):
        data = load(x)
        identity = nl.shared_identity_matrix(x.shape[0], dtype=x.dtype)
        if scale != 1:
            identity = tile((x.shape[0], x.shape[0]), x.dtype, value=scale)
        dst = nl.ndarray((x.shape[1], x.shape[0]), dtype=dst_dtype, buffer=P)
        nisa.nc_matmul(dst, data, identity, is_transpose=True)  # rule
        return save(dst)

    x = values((64, 20), "bfloat16")
    x[0, 0] = np.nan
    same_bits(simulate(kernel)(x), np.ascontiguousarray(x.T))
    pair("transpose-dtype", kernel, (x, nl.bfloat16), (x, nl.float32))
    pair("matmul-transpose-identity", kernel, (x,), (x, nl.bfloat16, False, 2.0))


def test_transposes_of_8_bit_data_are_not_emulated():
    def kernel(dtype):
        transpose(dtype=dtype)

    simulate(kernel)(nl.bfloat16)
    error = refused("not-implemented", kernel, nl.float8_e5m2)
    assert isinstance(error, NkiNotImplemented)


def test_a_transpose_restarts_the_accumulation_group():
    def kernel(x):
        data = load(x)
        identity = nl.shared_identity_matrix(32, dtype=nl.float32)
        dst = nl.ndarray((32, 32), dtype=nl.float32, buffer=P)
        nisa.nc_matmul(dst, data, identity)
        nisa.nc_transpose(dst, data)
        return save(dst)

    x = values((32, 32))
    np.testing.assert_array_equal(simulate(kernel)(x), x.T)
