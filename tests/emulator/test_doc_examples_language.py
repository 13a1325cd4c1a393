"""api/nki/language: what the examples in the stubs of nki.language say."""

import pytest

from .support import (
    load,
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

SHAPE = (4, 6)


def filled(value, dtype="float32"):
    return nl.full(SHAPE, value, dtype=dtype, buffer=nl.sbuf)


BINARY = [
    ("add", 3.0, 2.0, 5.0), ("subtract", 10.0, 3.0, 7.0), ("multiply", 3.0, 4.0, 12.0),
    ("maximum", 3.0, 5.0, 5.0), ("minimum", 3.0, 5.0, 3.0), ("equal", 3.0, 3.0, 1.0),
    ("not_equal", 3.0, 3.0, 0.0), ("less", 2.0, 3.0, 1.0), ("less_equal", 3.0, 3.0, 1.0),
    ("greater", 2.0, 3.0, 0.0), ("greater_equal", 2.0, 3.0, 0.0), ("logical_and", 1.0, 0.0, 0.0),
    ("logical_or", 1.0, 0.0, 1.0), ("logical_xor", 1.0, 1.0, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("name, x, y, expected", BINARY)
@pytest.mark.parametrize("second", ["tile", "number"])
def test_binary_functions(name, x, y, expected, second):
    """Examples of add to greater_equal: two tiles, or a tile and a number."""

    def kernel():
        return save(getattr(nl, name)(filled(x), filled(y) if second == "tile" else y))

    same_bits(simulate(kernel)(), np.full(SHAPE, expected, np.float32))


@pytest.mark.parametrize(
    "name, x, y, expected",
    [
        ("bitwise_and", 12, 10, 8), ("bitwise_or", 12, 10, 14), ("bitwise_xor", 12, 10, 6),
        ("left_shift", 3, 2, 12), ("right_shift", 12, 2, 3),
    ],
)  # fmt: skip
def test_bitwise_functions(name, x, y, expected):
    """Stubs of bitwise_and to right_shift: integers, a tile or a number as second operand."""

    def kernel(dtype):
        function = getattr(nl, name)
        first, second = (filled(z if dtype == "int32" else float(z), dtype) for z in (x, y))
        return save(function(first, second)), save(function(first, y))  # rule

    for got in simulate(kernel)("int32"):
        same_bits(got, np.full(SHAPE, expected, np.int32))
    pair("integer-dtype", kernel, "int32", "float32")


UNARY = [
    ("abs", -1.0, 1.0), ("square", 3.0, 9.0), ("exp", 0.0, 1.0), ("log", 1.0, 0.0),
    ("sqrt", 4.0, 2.0), ("rsqrt", 4.0, 0.5), ("reciprocal", 4.0, 0.25), ("sin", 0.0, 0.0),
    ("cos", 0.0, 1.0), ("tan", 0.0, 0.0), ("arctan", 0.0, 0.0), ("ceil", 3.2, 4.0),
    ("ceil", -3.7, -3.0), ("floor", 3.7, 3.0), ("floor", -3.2, -4.0), ("trunc", 3.7, 3.0),
    ("trunc", -3.7, -3.0), ("negative", 5.0, -5.0), ("negative", -3.0, 3.0), ("sign", -5.0, -1.0),
    ("sign", 0.0, 0.0), ("sign", 5.0, 1.0), ("relu", -1.0, 0.0), ("tanh", 0.0, 0.0),
    ("sigmoid", 0.0, 0.5), ("gelu", 0.0, 0.0), ("silu", 0.0, 0.0), ("erf", 0.0, 0.0),
    ("logical_not", 1.0, 0.0), ("copy", 2.5, 2.5),
]  # fmt: skip


@pytest.mark.parametrize("name, x, expected", UNARY)
def test_unary_functions(name, x, expected):
    """Examples of abs to sign: one value each."""

    def kernel():
        return save(getattr(nl, name)(filled(x)))

    got = simulate(kernel)()
    same_bits(np.abs(got) if expected == 0 else got, np.full(SHAPE, expected, np.float32))


def test_a_result_of_another_dtype():
    """Example of abs with explicit dtype; comparisons with dtype=nl.uint8."""

    def kernel():
        absolute = nl.abs(filled(-1.0), dtype=nl.float16)
        same = nl.equal(filled(1.0), filled(1.0), dtype=nl.uint8)
        assert (absolute.dtype, same.dtype) == (nl.float16, nl.uint8)
        return save(absolute), save(same)

    absolute, same = simulate(kernel)()
    same_bits(absolute, np.ones(SHAPE, np.float16))
    same_bits(same, np.ones(SHAPE, np.uint8))


def test_sine_outside_one_turn(recwarn):
    """nki.api.shared.rst, Activation Functions: nl.sin reduces the range, nisa does not."""

    def kernel():
        nine, plain = filled(9.0), tile(SHAPE)
        nisa.activation(dst=plain, op=nl.sin, data=nine)
        return save(nl.sin(nine)), save(plain)

    reduced, plain = simulate(kernel)()
    np.testing.assert_allclose(reduced, np.sin(9.0), rtol=1e-4)
    np.testing.assert_allclose(plain, 27.65, rtol=1e-3)
    assert ["[activation-range]" in str(warning.message) for warning in recwarn] == [True]


@pytest.mark.parametrize(
    "name, x, y, expected",
    [
        ("abs_max", -5.0, 3.0, -5.0), ("abs_max", 1.0, -1.0, -1.0), ("abs_min", 5.0, -3.0, -3.0),
        ("abs_min", -5.0, 3.0, 3.0), ("abs_min", 1.0, -1.0, -1.0),
    ],
)  # fmt: skip
def test_magnitudes(on_target, name, x, y, expected):
    """Examples of abs_max and abs_min: the signed value, y on a tie, on NeuronCore-v4 only."""

    def kernel():
        return save(getattr(nl, name)(filled(x), filled(y)))  # rule

    refused("operator-target", kernel)
    on_target("trn3")
    same_bits(simulate(kernel)(), np.full(SHAPE, expected, np.float32))


@pytest.mark.parametrize("name, expected", [("abs_max", -5.0), ("abs_min", 3.0)])
def test_the_magnitude_of_a_tile_and_a_column(on_target, name, expected):
    """Examples of abs_max and abs_min: their second operand is a (P, 1) tile."""
    on_target("trn3")

    def kernel():
        return save(getattr(nl, name)(filled(-5.0), nl.full((4, 1), 3.0, dtype=nl.float32)))

    same_bits(simulate(kernel)(), np.full(SHAPE, expected, np.float32))


def test_other_binary_functions_do_not_broadcast():
    """Release notes 0.4, Known Issues: a (P, 1) tile is not added to a (P, F) one."""

    def kernel(columns):
        nl.add(filled(-5.0), nl.full((4, columns), 3.0, dtype=nl.float32))  # rule

    pair("implicit-broadcast", kernel, 6, 1)


def test_functions_that_do_not_compile():
    """Release notes 0.4, Known Issues: no divide, mod, fmod; power of two tiles only."""

    def kernel(name, y):
        getattr(nl, name)(filled(3.0), filled(2.0) if y == "tile" else y)  # rule

    simulate(kernel)("power", "tile")
    refused("scalar-power", kernel, "power", 2.0)
    for name in ("divide", "mod", "fmod"):
        refused("no-device-function", kernel, name, "tile")


def test_a_comparison_is_no_condition():
    """The stubs' examples end in ``assert nl.equal(...)``, which no kernel can evaluate.

    nki-language-guide.rst, "Tensor Values" (note): the compiler does not know element values.
    """

    def kernel(asserted):
        same = nl.equal(filled(1.0), filled(1.0))
        assert not asserted or same  # rule

    pair("tensor-condition", kernel, False, True)


def test_power():
    """Example of power: two tiles."""
    same_bits(
        simulate(lambda: save(nl.power(filled(3.0), filled(2.0))))(),
        np.full(SHAPE, 9, np.float32),
    )


@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "prod", "var", "all"])
@pytest.mark.parametrize("axis", [(2,), (1, 2)])
def test_reductions(name, axis):
    """Stubs of sum to all: over the last free axes, never over the partition."""

    def kernel(x, axis):
        return save(getattr(nl, name)(load(x), axis=axis))  # rule

    x = values((4, 2, 3), "int8", low=1, high=3).astype(np.float32)
    expected = {"all": np.ones((4, 2, 3)).all}.get(name, getattr(x.astype(np.float64), name))
    got = simulate(kernel)(x, axis)
    np.testing.assert_allclose(got.reshape(-1), np.ravel(expected(axis=axis)), rtol=1e-6)
    pair("reduce-axis", kernel, (x, axis), (x, (0, *axis)))


def test_softmax_and_rms_norm():
    """Examples of softmax and rms_norm: uniform input gives uniform output."""

    def kernel():
        width = SHAPE[1]
        return (
            save(nl.softmax(filled(1.0), axis=1)),
            save(nl.rms_norm(filled(2.0), filled(1.0), axis=1, n=width)),
        )

    softmax, norm = simulate(kernel)()
    np.testing.assert_allclose(softmax, 1 / 6, rtol=1e-6)
    np.testing.assert_allclose(norm, 1, rtol=1e-6)


@pytest.mark.parametrize("condition, expected", [(1.0, 10.0), (0.0, 5.0)])
def test_where(condition, expected):
    """Examples of where: 1.0 takes x, 0.0 takes y."""

    def kernel():
        return save(nl.where(filled(condition), filled(10.0), filled(5.0)))

    same_bits(simulate(kernel)(), np.full(SHAPE, expected, np.float32))


def test_a_product_with_the_identity():
    """Examples of matmul, transpose, shared_identity_matrix and copy."""

    @nki.jit
    def kernel(x):
        eye = nl.shared_identity_matrix(n=32, dtype=nl.float32)
        assert nl.is_sbuf(eye.buffer) and nl.is_on_chip(eye.buffer)
        product = nl.matmul(eye, nl.load(x), transpose_x=True)
        assert nl.is_psum(product.buffer)
        copied = nl.copy(product)
        assert nl.is_sbuf(copied.buffer)
        transposed = nl.copy(nl.transpose(eye))
        return save(copied), save(transposed)

    x = values((32, 16))
    copied, transposed = kernel(x)
    same_bits(copied, x)
    same_bits(transposed, np.eye(32, dtype=np.float32))


def test_matmul_without_a_transposed_operand():
    """Release notes 0.4, Known Issues: only transpose_x=True works."""

    def kernel(transpose_x):
        nl.matmul(tile((16, 8)), tile((16, 4)), transpose_x=transpose_x)  # rule

    pair("matmul-transpose-x", kernel, True, False)


def test_creation():
    """Stubs of zeros, ones, full, zeros_like, empty_like, shared_constant, ndarray."""

    @nki.jit
    def kernel(x):
        t = load(x)
        like = nl.zeros_like(t)
        empty = nl.empty_like(t, dtype=nl.bfloat16)
        assert like.shape == empty.shape == t.shape and empty.dtype == nl.bfloat16
        constant = nl.shared_constant(np.arange(6, dtype=np.int32).reshape(2, 3))
        assert constant.buffer == nl.shared_hbm
        made = (
            nl.zeros(SHAPE, nl.int32),
            nl.ones(SHAPE, nl.float16),
            nl.full(SHAPE, 2.5, nl.float32),
        )
        return (*map(save, made), save(like), save(load(constant)))

    zeros, ones, full, like, constant = kernel(values(SHAPE))
    same_bits(zeros, np.zeros(SHAPE, np.int32))
    same_bits(ones, np.ones(SHAPE, np.float16))
    same_bits(full, np.full(SHAPE, 2.5, np.float32))
    same_bits(like, np.zeros(SHAPE, np.float32))
    same_bits(constant, np.arange(6, dtype=np.int32).reshape(2, 3))


def test_random_numbers(on_target):
    """Examples of random_seed and rand: in [0, 1), the same after the same seed."""

    @nki.jit
    def kernel():
        seed = nl.full((1, 1), 42, dtype=nl.int32, buffer=nl.sbuf)
        results = []
        for _ in range(2):
            nl.random_seed(seed)
            results.append(save(nl.rand((8, 32), dtype=nl.float32)))
        return tuple(results)

    on_target("trn3")
    first, second = kernel()
    same_bits(first, second)
    assert (first >= 0).all() and (first < 1).all() and np.unique(first).size > 200


def test_movement():
    """Stubs of load, load_transpose2d, store, broadcast_to, expand_dims, gather_flattened."""

    @nki.jit
    def kernel(x, indices):
        out = nl.ndarray((6, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x, dtype=nl.float32))
        t = nl.load(x, dtype=nl.float32)
        assert nl.expand_dims(t, 1).shape == (4, 1, 6)
        wide = nl.broadcast_to(t[:, 0:1], (4, 5))
        row = nl.broadcast_to(t[0:1], (4, 6))
        assert nl.broadcast_to(t, (4, 6)) is t
        gathered = nl.gather_flattened(t, nl.load(indices))
        return out, save(wide), save(row), save(gathered)

    x = values(SHAPE, "bfloat16")
    indices = values((4, 3), "uint32", low=0, high=5)
    wide_x = x.astype(np.float32)
    out, wide, row, gathered = kernel(x, indices)
    same_bits(out, np.ascontiguousarray(wide_x.T))
    same_bits(wide, np.repeat(wide_x[:, :1], 5, axis=1))
    same_bits(row, np.repeat(wide_x[:1], 4, axis=0))
    same_bits(gathered, np.take_along_axis(wide_x, indices.astype(np.int64), axis=1))


def test_order():
    """Example of no_reorder: what is inside runs in order, with its result."""

    def kernel():
        with nl.no_reorder():
            total = nl.add(filled(3.0), filled(2.0))
        return save(total)

    same_bits(simulate(kernel)(), np.full(SHAPE, 5, np.float32))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
def test_unrolled_loops(name):
    """Examples of the deprecated ranges: squares of column blocks."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in getattr(nl, name)(x.shape[1] // 4):
            block = nl.load(x[:, i * 4 : i * 4 + 4])
            nl.store(out[:, i * 4 : i * 4 + 4], nl.multiply(block, block))
        return out

    x = values((4, 12))
    same_bits(kernel(x), x * x)


def test_dtypes_are_names():
    """Supported Data Types: every dtype can hold a tile, and its size is documented."""
    sizes = {
        "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "float16": 2,
        "bfloat16": 2, "tfloat32": 4, "float32": 4, "float8_e4m3": 1, "float8_e5m2": 1,
        "float8_e4m3fn": 1, "float8_e8m0fnu": 1, "float8_e5m2_x4": 4, "float8_e4m3fn_x4": 4,
        "float4_e2m1fn_x4": 2, "bool_": 1,
    }  # fmt: skip

    def kernel():
        for name, size in sizes.items():
            t = nl.ndarray((2, 8), dtype=getattr(nl, name))
            assert t.view(nl.uint8).shape == (2, 8 * size)

    simulate(kernel)()


def test_rounding_of_small_floats():
    """Supported Data Types: float8_e5m2 has two mantissa bits, float8_e4m3 three."""

    def kernel(x, dtype):
        return save(nl.copy(load(x), dtype=dtype))

    x = np.array([[1.0, 1.1, 1.2, 1.3]], np.float32)
    for dtype, expected in (
        ("float8_e5m2", [1, 1, 1.25, 1.25]),
        ("float8_e4m3", [1, 1.125, 1.25, 1.25]),
    ):
        got = simulate(kernel)(x, dtype)
        assert got.astype(np.float32).tolist() == [expected]
        same_bits(got, rounded(x, dtype))
