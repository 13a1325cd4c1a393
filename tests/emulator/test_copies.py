"""tensor_copy, memset and the constant tiles of nki.language."""

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
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
F, U8 = "float32", "uint8"
VECTOR, SCALAR, GPSIMD = nisa.engine.vector, nisa.engine.scalar, nisa.engine.gpsimd
DTYPES = sorted(set(NUMPY) - {"float8_e8m0fnu"})


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_tensor_copy_converts_through_float32(source, target):
    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=target)
        nisa.tensor_copy(dst=dst, src=load(x))
        return save(dst)

    x = values((7, 9), source)
    got = simulate(kernel)(x)
    wide = x.astype(np.float32)
    if source == target:
        same_bits(got, x)
    elif target == "bool":
        same_bits(got, wide != 0)
    elif "int" in target:
        limits = np.iinfo(NUMPY[target])
        np.testing.assert_array_equal(got, np.clip(np.rint(wide), limits.min, limits.max))
    else:
        same_bits(got, rounded(wide, target))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "float8_e4m3"])
def test_equal_dtypes_copy_every_bit(dtype):
    """Also NaN payloads and integers that float32 cannot hold."""

    def kernel(x, dst):
        t = nl.ndarray(x.shape, dtype=dtype)
        nisa.tensor_copy(dst=t, src=load(x))
        nisa.dma_copy(dst=dst, src=t)

    bits = np.random.default_rng(0).integers(0, 256, (4, 32), dtype=np.uint8)
    x, dst = bits.view(NUMPY[dtype]), np.zeros_like(bits).view(NUMPY[dtype])
    simulate(kernel)(x, dst)
    np.testing.assert_array_equal(dst.view(np.uint8), bits)


def test_packed_types_copy_as_bits():
    def kernel(x, out):
        t = nl.ndarray((4, 8), dtype=nl.float8_e4m3fn_x4)
        nisa.dma_copy(dst=t, src=x.view(nl.float8_e4m3fn_x4))
        u = nl.ndarray((4, 8), dtype=nl.float8_e4m3fn_x4)
        nisa.tensor_copy(dst=u, src=t)
        nisa.dma_copy(dst=out.view(nl.float8_e4m3fn_x4), src=u)

    x = np.arange(128, dtype=np.uint8).reshape(4, 32)
    out = np.zeros_like(x)
    simulate(kernel)(x, out)
    same_bits(out, x)


def test_tensor_copy_between_shapes_and_strides():
    def kernel(x):
        dst = tile((8, 4, 6))
        nisa.tensor_copy(dst=dst[:, ::2, 0:5], src=load(x))
        return save(dst)

    x = values((8, 10))
    expected = np.zeros((8, 4, 6), np.float32)
    expected[:, ::2, 0:5] = x.reshape(8, 2, 5)
    np.testing.assert_array_equal(simulate(kernel)(x), expected)


def copied(dst=((8, 6), F, S), src=((8, 6), F, S), **options):
    nisa.tensor_copy(tile(*dst), tile(*src), **options)  # rule


COPY_RULES = [
    ("free-size", {"dst": ((8, 3, 2), F, S)}, {"dst": ((8, 3), F, S)}),
    ("gpsimd-psum", {"engine": GPSIMD}, {"engine": GPSIMD, "src": ((8, 6), F, P)}),
    ("gpsimd-psum", {"engine": VECTOR, "dst": ((8, 6), F, P)},
     {"engine": GPSIMD, "dst": ((8, 6), F, P)}),
    ("enum", {"engine": SCALAR}, {"engine": nisa.engine.sync}),
    ("packed-dtype", {}, {"src": ((8, 6), "float8_e5m2_x4", S)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", COPY_RULES)
def test_tensor_copy_rules(rule, good, bad):
    pair(rule, lambda change: copied(**change), (good,), (bad,))


def test_scalar_engine_copies_need_gen3(on_target):
    def kernel():
        copied(engine=SCALAR)

    simulate(kernel)()
    on_target("trn1")
    refused("target", kernel)


# memset.


@pytest.mark.parametrize("dtype", DTYPES)
def test_memset(dtype):
    value = 0 if dtype == "bool" else 3

    def kernel(x):
        dst = nl.ndarray((5, 6), dtype=dtype)
        nisa.memset(dst=dst, value=value)
        nisa.memset(dst=dst[:, 1::2], value=1)
        return save(dst)

    expected = np.full((5, 6), value).astype(NUMPY[dtype])
    expected[:, 1::2] = 1
    same_bits(simulate(kernel)(0), expected)


def test_memset_rounds_floats():
    def kernel():
        return save(tile((2, 2), nl.bfloat16, value=1 + 2.0**-9))

    assert (simulate(kernel)() == 1).all()


def filled(value=1, dtype="int32", buffer=S, **options):
    nisa.memset(nl.ndarray((4, 4), dtype=dtype, buffer=buffer), value, **options)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("memset-type", {"value": 2}, {"value": 2.0}),
        ("memset-type", {"value": True, "dtype": "bool"}, {"value": True}),
        ("memset-range", {"value": 255, "dtype": U8}, {"value": 256, "dtype": U8}),
        ("memset-range", {"value": 0, "dtype": U8}, {"value": -1, "dtype": U8}),
        ("memset-range", {"value": 1, "dtype": "bool"}, {"value": 2, "dtype": "bool"}),
        ("memset-packed", {"value": 0, "dtype": "float4_e2m1fn_x4"},
         {"value": 1, "dtype": "float4_e2m1fn_x4"}),
        ("operand-type", {"value": 2, "dtype": F}, {"value": "2", "dtype": F}),
        ("gpsimd-psum", {"engine": GPSIMD}, {"engine": GPSIMD, "buffer": P}),
        ("enum", {"engine": VECTOR}, {"engine": SCALAR}),
    ],
)  # fmt: skip
def test_memset_rules(rule, good, bad):
    pair(rule, lambda change: filled(**change), (good,), (bad,))


# Constants and filled tiles of nki.language.


def test_filled_tiles():
    def kernel():
        return (
            save(nl.zeros((4, 4), nl.float32)),
            save(nl.ones((4, 4), nl.int8)),
            save(nl.full((4, 4), 2.5, nl.bfloat16, buffer=P)),
        )

    zeros, ones, full = simulate(kernel)()
    assert (zeros == 0).all() and (ones == 1).all() and (full.astype(np.float32) == 2.5).all()


def test_filled_tiles_in_hbm():
    def kernel():
        return nl.full((4, 4), 2.5, nl.float32, nl.shared_hbm)

    assert (simulate(kernel)() == 2.5).all()


def test_identity_matrices_are_shared_and_read_only():
    def kernel(write):
        identity = nl.shared_identity_matrix(16, dtype=nl.bfloat16)
        assert nl.shared_identity_matrix(16, dtype=nl.bfloat16) is identity
        assert nl.shared_identity_matrix(16).dtype == nl.uint8
        if write:
            nisa.memset(dst=identity, value=0.0)  # rule
        return save(identity)

    assert (simulate(kernel)(False).astype(np.float32) == np.eye(16)).all()
    pair("read-only", kernel, False, True)


def test_identity_into_a_given_tile():
    def kernel(size):
        dst = nl.ndarray((16, 16), dtype=nl.float32)
        assert nl.shared_identity_matrix(size, dtype=nl.float32, dst=dst) is dst  # rule
        nisa.tensor_scalar(dst, dst, nl.multiply, 2.0)
        return save(dst)

    np.testing.assert_array_equal(simulate(kernel)(16), 2 * np.eye(16))
    pair("identity-dst", kernel, 16, 8)


def test_identity_matrices_take_sbuf():
    def kernel():
        nl.shared_identity_matrix(128, dtype=nl.float32)

    _, session = record(kernel)()
    assert session.sbuf.peak == 512


def test_constants_live_in_hbm(tmp_path):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    path = tmp_path / "constant.npy"
    np.save(path, array)

    def kernel(source):
        constant = nl.shared_constant(source)
        assert constant.buffer == nl.shared_hbm
        return save(load(constant))

    same_bits(simulate(kernel)(str(path)), array)
    same_bits(simulate(lambda: save(load(nl.shared_constant(array))))(), array)


def test_constant_rules():
    def of_dtype(name):
        nl.shared_constant(np.zeros((2, 2), name))  # rule

    def written(write):
        constant = nl.shared_constant(np.zeros((2, 2), np.float32))
        if write:
            nisa.dma_copy(dst=constant, src=tile((2, 2)))  # rule

    pair("constant", of_dtype, "float32", "float64")
    pair("read-only", written, False, True)
