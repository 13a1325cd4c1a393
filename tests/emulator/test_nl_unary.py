"""nki.language on one tile: activation functions, sign and bits, trigonometry and rounding."""

import math

from nki_emulator import NkiWarning, functions, record

from .numeric import DTYPES, FLOATS, INTEGERS, converted, f32
from .support import (
    NUMPY,
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
)

P, S = nl.psum, nl.sbuf


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normal(x):
    return 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


# In float64, from the formulas that the names stand for.
FUNCTIONS = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": sigmoid, "square": np.square, "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0), "sign": np.sign, "negative": np.negative,
    "gelu": lambda x: x * normal(x),
    "gelu_dx": lambda x: normal(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: (
        sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - sigmoid(1.702 * x)))
    ),
    "gelu_apprx_tanh": lambda x: (
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "erf": np.vectorize(math.erf),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "sin": np.sin, "cos": np.cos,
}  # fmt: skip
# Of positive values only.
POSITIVE = {
    "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "tan": np.tan,  # Below pi / 2.
    "arctan": np.arctan,
}  # fmt: skip
ALL = FUNCTIONS | POSITIVE
# float32 operations of which each may round, relative to the result or to 1.
ERROR = 2e-6


def arguments(name, dtype, shape=(9, 14)):
    if name in POSITIVE:
        return (0.25 + np.abs(values(shape, seed=2)).clip(0, 1)).astype(NUMPY[dtype])
    return values(shape, dtype, seed=2)


def close(got, expected, dtype):
    """Within the last place of dtype, or of float32."""
    place = {"float32": 0.0, "bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    assert got.dtype == NUMPY[dtype] and got.shape == expected.shape
    bound = ERROR * np.maximum(np.abs(expected), 1) + place * np.abs(expected)
    if dtype == "float16":
        bound += 2.0**-25
    assert (np.abs(f32(got).astype(np.float64) - expected) <= bound).all()


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_functions(name, dtype):
    def kernel(x):
        result = getattr(nl, name)(load(x))
        assert result.buffer == nl.sbuf and result.dtype == dtype
        return save(result)

    x = arguments(name, dtype)
    close(simulate(kernel)(x), ALL[name](f32(x).astype(np.float64)), dtype)


@pytest.mark.parametrize("name", sorted(ALL))
def test_dtype_converts_the_result(name):
    def kernel(x):
        return save(getattr(nl, name)(load(x), dtype=nl.float32)), save(
            getattr(nl, name)(load(x), nl.bfloat16)
        )

    x = arguments(name, "float16")
    wide, narrow = simulate(kernel)(x)
    close(wide, ALL[name](f32(x).astype(np.float64)), "float32")
    same_bits(narrow, wide.astype(NUMPY["bfloat16"]))


@pytest.mark.parametrize("name", sorted(ALL))
def test_views_and_partial_tiles(name):
    def kernel(x):
        view = load(x)[:5, 1:7:2, :].permute((0, 2, 1))
        return save(getattr(nl, name)(view))

    x = arguments(name, "float32", (9, 8, 3))
    expected = ALL[name](x[:5, 1:7:2].transpose(0, 2, 1).astype(np.float64))
    close(simulate(kernel)(x), expected, "float32")


@pytest.mark.parametrize("name", sorted(set(ALL) - {"rsqrt"}))
def test_tiles_in_psum(name):
    def kernel(x, buffer):
        moved = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        nisa.tensor_copy(dst=moved, src=load(x))
        return save(getattr(nl, name)(moved))

    x = arguments(name, "float32")
    same_bits(simulate(kernel)(x, P), simulate(kernel)(x, S))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_functions_in_every_dtype(dtype):
    def kernel(x):
        loaded = load(x)
        return (
            save(nl.relu(loaded)),
            save(nl.negative(loaded)),
            save(nl.copy(loaded)),
            save(nl.abs(loaded)),
        )

    x = values((7, 9), dtype)
    relu, negative, copied, magnitude = simulate(kernel)(x)
    same_bits(relu, converted(np.maximum(f32(x), 0), dtype))
    same_bits(negative, converted(-f32(x), dtype))
    same_bits(copied, x)
    same_bits(magnitude, converted(np.abs(f32(x)), dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_invert(dtype):
    def kernel(x):
        return save(nl.invert(load(x)))

    limits = np.iinfo(NUMPY[dtype])
    x = values((7, 9), dtype, 1, limits.min, limits.max)
    same_bits(simulate(kernel)(x), np.invert(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_logical_not(dtype):
    def kernel(x):
        return save(nl.logical_not(load(x)))

    x = np.array([[0, 1, 1, 0]]).astype(NUMPY[dtype])
    same_bits(simulate(kernel)(x), converted(1 - f32(x), dtype))


def test_copy_is_bit_accurate():
    def kernel(x):
        moved = nl.ndarray(x.shape, dtype=x.dtype, buffer=P)
        nisa.tensor_copy(dst=moved, src=load(x))
        return save(nl.copy(moved))

    x = np.array([[2**31 - 1, -(2**24) - 1]], np.int32)
    same_bits(simulate(kernel)(x), x)


def test_invert_needs_integers():
    def kernel(dtype):
        nl.invert(tile((4, 4), dtype))  # rule

    pair("integer-dtype", kernel, "int32", "float32")


@pytest.mark.parametrize("name", sorted(ALL | {"copy": 0, "invert": 0, "logical_not": 0}))
def test_the_argument_is_a_tile(name):
    def kernel(x, argument):
        tile_ = tile((4, 4), nl.int8 if name == "invert" else nl.float32, value=1)
        getattr(nl, name)({"tile": tile_, "number": 1.0, "hbm": x}[argument])  # rule

    x = values((4, 4))
    pair("operand-type", kernel, (x, "tile"), (x, "number"))
    pair("buffer-on-chip", kernel, (x, "tile"), (x, "hbm"))


def test_rsqrt_reads_sbuf():
    def kernel(buffer):
        nl.rsqrt(tile((4, 4), buffer=buffer, value=1.0))  # rule

    error = pair("rsqrt-psum", kernel, S, P)
    assert "nisa.activation(op=nl.rsqrt)" in str(error)


def test_input_ranges():
    """Those that run on the Scalar Engine warn; reciprocal and rsqrt run elsewhere."""

    def kernel(name, value):
        getattr(nl, name)(tile((2, 2), value=value))

    for name, inside, outside in (
        ("log", 2.0**64, 2.0**65), ("sqrt", 2.0**118, 2.0**119), ("arctan", -1.5, 1.6),
    ):  # fmt: skip
        simulate(kernel)(name, inside)
        with pytest.warns(NkiWarning, match=r"\[activation-range\]"):
            simulate(kernel)(name, outside)
    simulate(kernel)("reciprocal", 2.0**-50)
    simulate(kernel)("rsqrt", 2.0**100)


def test_engines():
    def kernel():
        x = tile((4, 4), value=1.0)
        for function in (nl.exp, nl.rsqrt, nl.reciprocal, nl.negative, nl.copy):
            function(x)

    _, session = record(kernel)()
    issued = [(step.op, step.engine) for step in session.trace if step.op != "memset"]
    assert issued == [
        ("activation", "scalar"), ("tensor_scalar", "gpsimd"), ("reciprocal", "vector"),
        ("tensor_scalar", "vector"), ("tensor_copy", "vector"),
    ]  # fmt: skip


def test_every_activation_function_is_a_wrapper():
    assert set(functions.ACTIVATIONS) - {"copy"} <= set(ALL)


# Sine and cosine of any argument.


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("scale", [1.0, 10.0, 1000.0, 25000.0])
def test_sine_and_cosine_of_large_arguments(name, scale, recwarn):
    def kernel(x):
        return save(getattr(nl, name)(load(x)))

    x = np.linspace(-scale, scale, 1024, dtype=np.float32).reshape(32, 32)
    expected = getattr(np, name)(x.astype(np.float64))
    assert np.abs(simulate(kernel)(x) - expected).max() < 1e-6
    assert not recwarn.list


def test_sine_at_the_ends_of_its_period(recwarn):
    def kernel(x):
        return save(nl.sin(load(x)))

    near = np.float32(np.pi) * np.arange(-9, 10, dtype=np.float32)
    x = np.stack([np.nextafter(near, np.float32(end)) for end in (-99, 99)] + [near])
    assert np.abs(simulate(kernel)(x) - np.sin(x.astype(np.float64))).max() < 1e-6
    assert not recwarn.list


def test_tangent_of_large_arguments():
    def kernel(x):
        return save(nl.tan(load(x)))

    turns = np.arange(-50, 50, dtype=np.float32)[None] * np.float32(np.pi)
    x = turns + np.float32(0.7)
    np.testing.assert_allclose(simulate(kernel)(x), np.tan(x.astype(np.float64)), rtol=2e-6)


def test_arguments_beyond_reduction_warn():
    def kernel(value):
        nl.sin(tile((2, 2), value=value))

    simulate(kernel)(9.0)
    with pytest.warns(NkiWarning, match=r"\[activation-range\]"):
        simulate(kernel)(1e12)


# Rounding.

ROUND = {"ceil": np.ceil, "floor": np.floor, "trunc": np.trunc}


@pytest.mark.parametrize("name", sorted(ROUND))
@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding(name, dtype):
    def kernel(x):
        return save(getattr(nl, name)(load(x)))

    halves = np.arange(-12, 13) / np.float32(4)
    x = np.concatenate([halves, values((39,), seed=3)]).astype(NUMPY[dtype]).reshape(8, 8)
    got = simulate(kernel)(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(f32(got), ROUND[name](f32(x)))


@pytest.mark.parametrize("name", sorted(ROUND))
def test_rounding_of_values_that_int32_does_not_hold(name):
    def kernel(x):
        return save(getattr(nl, name)(load(x)))

    edge = [2.0**23 - 0.5, 2.0**31, 2.0**31 - 128, 1e20, np.inf]
    x = np.array([edge, np.negative(edge), [np.nan, -0.0, 1e-30, -1e-30, 0.0]], np.float32)
    np.testing.assert_array_equal(simulate(kernel)(x), ROUND[name](x))


@pytest.mark.parametrize("name", sorted(ROUND))
@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_rounding_of_integers(name, dtype):
    def kernel(x):
        return save(getattr(nl, name)(load(x)))

    x = values((4, 5), dtype)
    same_bits(simulate(kernel)(x), x)


@pytest.mark.parametrize("name", sorted(ROUND))
def test_rounding_into_another_dtype(name):
    def kernel(x):
        return save(getattr(nl, name)(load(x), dtype=nl.int16))

    x = 100 * values((4, 5))
    np.testing.assert_array_equal(simulate(kernel)(x), ROUND[name](x).astype(np.int16))
