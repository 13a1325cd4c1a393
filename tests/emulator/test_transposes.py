"""nc_transpose and nc_matmul(is_transpose=True): bits and rules."""

from nki_emulator import record

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

P, S = nl.psum, nl.sbuf
TENSOR, VECTOR = nisa.engine.tensor, nisa.engine.vector


def any_bits(shape, dtype):
    """Every bit pattern is as good as any other: NaN payloads and subnormals included."""
    storage = np.dtype(NUMPY[dtype])
    generator = np.random.default_rng(shape)
    return generator.integers(0, 256, (*shape, storage.itemsize), np.uint8).view(storage)[..., 0]


def flat_transpose(x):
    return np.ascontiguousarray(x.reshape(len(x), -1).T)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "int32", "uint32", "int16", "uint16"]
)
@pytest.mark.parametrize("shape", [(128, 128), (5, 3), (100, 1), (7, 2, 9)])
def test_tensor_engine_keeps_every_bit(on_target, target, dtype, shape):
    on_target(target)

    def kernel(x):
        dst = nl.ndarray((x.size // shape[0], shape[0]), dtype=x.dtype, buffer=P)
        nisa.nc_transpose(dst=dst, data=load(x))
        return save(dst)

    x = any_bits(shape, dtype)
    same_bits(simulate(kernel)(x), flat_transpose(x))


@pytest.mark.parametrize("dtype", [name for name in NUMPY if name != "bool"])
@pytest.mark.parametrize("buffers", [(S, S), (P, P), (S, P), (P, S)])
def test_vector_engine_keeps_every_bit(dtype, buffers):
    def kernel(x):
        data = load(x)
        if buffers[1] == P:
            moved = nl.ndarray(x.shape, dtype=x.dtype, buffer=P)
            nisa.tensor_copy(dst=moved, src=data)
            data = moved
        dst = nl.ndarray((20, 32), dtype=x.dtype, buffer=buffers[0])
        nisa.nc_transpose(dst=dst, data=data, engine=VECTOR)
        return save(dst)

    x = any_bits((32, 20), dtype)
    same_bits(simulate(kernel)(x), flat_transpose(x))


@pytest.mark.parametrize("dtype", ["tfloat32", "float8_e5m2_x4", "float4_e2m1fn_x4"])
@pytest.mark.parametrize("engine, buffer", [(TENSOR, P), (VECTOR, S)])
def test_types_without_a_host_type(dtype, engine, buffer):
    def kernel(x):
        data = load(x)
        dst = nl.ndarray((20, 32), dtype=dtype, buffer=buffer)
        nisa.nc_transpose(dst=dst, data=data.view(dtype), engine=engine)
        return save(dst.view(x.dtype))

    x = any_bits((32, 20), "uint16" if "float4" in dtype else "uint32")
    same_bits(simulate(kernel)(x), flat_transpose(x))


@pytest.mark.parametrize("engine, buffer", [(TENSOR, P), (VECTOR, S)])
def test_strided_and_repeated_views(engine, buffer):
    def kernel(x):
        data = load(x)
        dst = nl.ndarray((6, 40), dtype=x.dtype, buffer=buffer)
        nisa.nc_transpose(dst[:, 0:40:2], data[:, 1:12:2], engine=engine)
        other = nl.ndarray((6, 5, 4), dtype=x.dtype, buffer=buffer)
        nisa.nc_transpose(
            other.permute((0, 2, 1)), data[:, 2:4].expand_dim(2).broadcast(2, 3), engine=engine
        )
        return save(dst[:, 0:40:2]), save(other)

    x = any_bits((20, 12), "bfloat16")
    first, second = simulate(kernel)(x)
    same_bits(first, flat_transpose(x[:, 1:12:2]))
    expected = flat_transpose(np.repeat(x[:, 2:4], 3, axis=1)).reshape(6, 4, 5)
    same_bits(second, np.ascontiguousarray(expected.transpose(0, 2, 1)))


def test_vector_engine_in_place():
    def kernel(x):
        data = load(x)
        nisa.nc_transpose(data, data)
        return save(data)

    x = any_bits((32, 32), "float32")
    same_bits(simulate(kernel)(x), flat_transpose(x))


def test_engine_of_a_transpose_follows_the_buffers():
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


RULES = [
    ("transpose-dtype", {}, {"dst": "bfloat16"}),
    ("transpose-dtype", {}, {"dst": "int32"}),
    ("transpose-dtype", {"dst": "float32"}, {"dtype": "int32", "dst": "float32"}),
    ("transpose-shape", {}, {"dst_shape": (32, 16)}),
    ("transpose-shape", {}, {"dst_shape": (15, 32)}),
    ("transpose-shape", {}, {"shape": (32, 15), "dst_shape": (16, 32)}),
    ("transpose-shape", {"dst_shape": (16, 4, 8)}, {"dst_shape": (16, 33)}),
    ("transpose-size", {"shape": (32, 32), "engine": VECTOR},
     {"shape": (33, 32), "engine": VECTOR}),
    ("transpose-size", {"shape": (32, 32), "buffers": (S, S)},
     {"shape": (32, 33), "buffers": (S, S)}),
    ("transpose-8-bit", {"dtype": "bfloat16"}, {"dtype": "float8_e4m3"}),
    ("transpose-8-bit", {"dtype": "int8", "engine": VECTOR}, {"dtype": "int8", "engine": TENSOR}),
    ("matmul-dst-buffer", {"engine": TENSOR}, {"engine": TENSOR, "buffers": (S, S)}),
    ("buffer-sbuf", {"engine": TENSOR}, {"engine": TENSOR, "buffers": (P, P)}),
    ("enum", {"engine": nisa.engine.unknown}, {"engine": nisa.engine.scalar}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", RULES)
def test_transpose_rules(rule, good, bad):
    pair(rule, lambda change: transpose(**change), (good,), (bad,))


@pytest.mark.parametrize("rule, good, bad", RULES)
def test_a_check_that_passed_is_not_taken_for_another_call(rule, good, bad):
    def kernel(first, second):
        transpose(**first)
        transpose(**second)

    pair(rule, kernel, (good, good), (good, bad))


def test_the_tensor_engine_starts_at_row_and_column_zero():
    def read(first):
        dst = nl.ndarray((16, 64), dtype=nl.float32, buffer=P)
        nisa.nc_transpose(dst, tile((128, 16))[first : first + 64])  # rule

    def write(first):
        dst = nl.ndarray((128, 16), dtype=nl.float32, buffer=P)
        nisa.nc_transpose(dst[first : first + 64], tile((16, 64)))  # rule

    pair("matmul-tile-position", read, 0, 64)
    pair("matmul-dst-partition", write, 0, 64)


def test_results_do_not_share_a_place():
    def kernel(stride):
        dst = nl.ndarray((16, 16), dtype=nl.float32, buffer=P)
        nisa.nc_transpose(dst.ap([[16, 16], [1, 8]]), tile((8, 16)))
        nisa.nc_transpose(dst.ap([[16, 16], [stride, 8]]), tile((8, 16)))  # rule

    pair("matmul-dst-overlap", kernel, 2, 0)


# gen2 has no transpose mode: the engine multiplies by the identity.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gen2_multiplies_by_the_identity(on_target, dtype):
    def kernel(x):
        dst = nl.ndarray((5, 4), dtype=x.dtype, buffer=P)
        nisa.nc_transpose(dst, load(x))
        return save(dst)

    x = values((4, 5), dtype)
    x[2, 1] = np.inf
    same_bits(simulate(kernel)(x), flat_transpose(x))
    on_target("trn1")
    got = simulate(kernel)(x).astype(np.float32)
    expected = flat_transpose(x).astype(np.float32)
    expected[1] = [np.nan, np.nan, np.inf, np.nan]  # infinity times 0 spreads along the row
    np.testing.assert_array_equal(got, expected)


def test_gen2_transposes_what_it_can_multiply(on_target):
    def kernel(dtype):
        transpose(dtype=dtype)

    simulate(kernel)(nl.int32)
    on_target("trn1")
    pair("matmul-dtype", kernel, nl.float32, nl.int32)


def test_gen2_takes_the_transpose_flag_for_a_label(on_target):
    """The product is an ordinary one: float32 results, accumulation."""
    on_target("trn1")

    def kernel(x, dst_dtype=nl.float32):
        data = load(x)
        dst = nl.ndarray((20, 64), dtype=dst_dtype, buffer=P)
        identity = nl.shared_identity_matrix(64, dtype=x.dtype)
        for accumulate in (False, True):
            nisa.nc_matmul(dst, data, identity, is_transpose=True, accumulate=accumulate)  # rule
        return save(dst)

    x = values((64, 20), "bfloat16")
    np.testing.assert_array_equal(simulate(kernel)(x), 2 * x.T.astype(np.float32))
    pair("matmul-dst-dtype", kernel, (x,), (x, nl.bfloat16))


# The transpose mode of nc_matmul.


def by_matmul(x, dst_dtype=None, scale=1.0, accumulate=None, times=1, columns=None):
    data = load(x)
    size = x.shape[0]
    identity = nl.shared_identity_matrix(size, dtype=x.dtype)
    if scale != 1:
        identity = tile((size, size), x.dtype, value=scale)
    width = columns or size
    dst = nl.ndarray((x.shape[1], width), dtype=dst_dtype or x.dtype, buffer=P)
    for _ in range(times):
        nisa.nc_matmul(  # rule
            dst, data, identity[:, 0:width], is_transpose=True, accumulate=accumulate
        )
    return save(dst)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_transpose_by_matmul_keeps_every_bit(dtype):
    x = any_bits((64, 20), dtype)
    same_bits(simulate(by_matmul)(x), flat_transpose(x))
    same_bits(simulate(by_matmul)(x, accumulate=False, times=2), flat_transpose(x))


def test_transpose_by_matmul_in_a_row_tile():
    def kernel(x):
        data = load(x)
        full = nl.shared_identity_matrix(128, dtype=x.dtype)
        dst = nl.ndarray((20, 64), dtype=x.dtype, buffer=P)
        nisa.nc_matmul(
            dst, data[64:128], full[64:128, 64:128], is_transpose=True, tile_position=(64, 0),
            tile_size=(64, 128),
        )  # fmt: skip
        return save(dst)

    x = any_bits((128, 20), "float16")
    same_bits(simulate(kernel)(x), flat_transpose(x[64:]))


def test_rules_of_the_transpose_mode():
    x = values((64, 20), "bfloat16")
    pair("transpose-dtype", by_matmul, (x, nl.bfloat16), (x, nl.float32))
    pair("matmul-transpose-identity", by_matmul, (x,), (x, nl.bfloat16, 2.0))
    pair("matmul-transpose-identity", by_matmul, (x,), (x, None, 1.0, None, 1, 32))
    pair("matmul-transpose", by_matmul, (x, None, 1.0, False, 2), (x, None, 1.0, None, 2))
    pair("matmul-transpose", by_matmul, (x, None, 1.0, False), (x, None, 1.0, True))
    pair("transpose-8-bit", by_matmul, (x,), (values((64, 20), "float8_e5m2"),))


def test_ocp_float8_is_no_operand_before_gen4():
    refused("matmul-dtype", by_matmul, values((64, 20), "float8_e4m3fn"))


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
