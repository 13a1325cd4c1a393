"""nki.language on two tiles, or a tile and a number: arithmetic, comparisons, logic and bits."""

import re

from nki_emulator import NkiWarning, record

from .numeric import DTYPES, FLOATS, INTEGERS, converted, f32
from .support import NUMPY, load, nisa, nl, np, pair, pytest, refused, save, simulate, tile, values

S, P = nl.sbuf, nl.psum
TRUTH = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
ARITHMETIC = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum,
}  # fmt: skip
LOGIC = {
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
BITS = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip
NUMERIC = ARITHMETIC | TRUTH


def equal_arrays(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(f32(got), f32(expected))


def small(shape, dtype, seed):
    """Values whose sums and products every dtype but the narrow floats holds."""
    if "int" in dtype:
        return values(shape, dtype, seed, low=0 if dtype[0] == "u" else -9, high=9)
    return values(shape, dtype, seed)


@pytest.mark.parametrize("name", sorted(NUMERIC))
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_tiles(name, dtype):
    def kernel(x, y):
        result = getattr(nl, name)(load(x), load(y))
        assert result.buffer == nl.sbuf and result.dtype == dtype
        return save(result)

    x, y = small((9, 12), dtype, 1), small((9, 12), dtype, 2)
    if dtype in ("int32", "uint32"):  # Integer arithmetic, of 32 bits.
        wide = NUMERIC[name](x.astype(np.int64), y.astype(np.int64))
        expected = wide.astype(NUMPY[dtype])
    else:
        expected = converted(NUMERIC[name](f32(x), f32(y)), dtype)
    equal_arrays(simulate(kernel)(x, y), expected)


@pytest.mark.parametrize("name", sorted(NUMERIC))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_a_tile_and_a_number(name, dtype):
    def kernel(x):
        function = getattr(nl, name)
        return save(function(load(x), 3)), save(function(3, load(x)))

    x = small((9, 12), dtype, 3)
    right, left = simulate(kernel)(x)
    three = np.float32(3)
    equal_arrays(right, converted(NUMERIC[name](f32(x), three), dtype))
    equal_arrays(left, converted(NUMERIC[name](three, f32(x)), dtype))


@pytest.mark.parametrize("result", ["float32", "float16", "uint8", "int32"])
@pytest.mark.parametrize("first, second", [("bfloat16", "float32"), ("int8", "float16")])
def test_dtype_converts_the_result(first, second, result):
    def kernel(x, y):
        return save(nl.subtract(load(x), load(y), dtype=result)), save(
            nl.multiply(load(x), 1.5, dtype=result)
        )

    x, y = small((5, 7), first, 4), small((5, 7), second, 5)
    difference, product = simulate(kernel)(x, y)
    equal_arrays(difference, converted(f32(x) - f32(y), result))
    equal_arrays(product, converted(f32(x) * np.float32(1.5), result))


def test_comparisons_of_two_dtypes_have_that_of_the_first():
    def kernel(x, y):
        return save(nl.less(load(x), load(y))), save(nl.less(load(y), load(x), dtype=nl.uint8))

    x, y = values((5, 7), "bfloat16", 6), values((5, 7), "float32", 7)
    less, greater = simulate(kernel)(x, y)
    equal_arrays(less, converted(f32(x) < y, "bfloat16"))
    equal_arrays(greater, converted(y < f32(x), "uint8"))


def test_integers_of_32_bits_are_exact():
    def kernel(x, y):
        return save(nl.add(load(x), load(y)))

    x = np.array([[2**24 + 1, -(2**30) - 1]], np.int32)
    y = np.array([[2, -3]], np.int32)
    np.testing.assert_array_equal(simulate(kernel)(x, y), x + y)


@pytest.mark.parametrize("buffers", [(S, S), (P, S), (S, P)])
def test_views_and_partial_tiles(buffers):
    """Strided, permuted and broadcast views of part of the partitions, in SBUF and PSUM."""

    def kernel(x, y):
        loaded = []
        for source, buffer in ((x, buffers[0]), (y, buffers[1])):
            tile_ = nl.ndarray(source.shape, dtype=source.dtype, buffer=buffer)
            nisa.tensor_copy(dst=tile_, src=load(source))
            loaded.append(tile_)
        first = loaded[0][32:41, :, 1::2].permute((0, 2, 1))
        second = loaded[1][:9].broadcast(2, 4)
        return save(nl.add(first, second)), save(nl.greater(first, 0.5))

    x, y = values((64, 4, 6), seed=8), values((9, 3, 1), seed=9)
    first = x[32:41, :, 1::2].transpose(0, 2, 1)
    total, above = simulate(kernel)(x, y)
    equal_arrays(total, first + y)
    equal_arrays(above, converted(first > 0.5, "float32"))


def test_an_operand_stays_as_it_is():
    def kernel(x):
        loaded = load(x)
        nl.add(loaded, loaded)
        return save(loaded)

    x = values((4, 4))
    equal_arrays(simulate(kernel)(x), x)


# Logic.


@pytest.mark.parametrize("name", sorted(LOGIC))
@pytest.mark.parametrize("dtype", DTYPES)
def test_logic(name, dtype):
    def kernel(x, y):
        function = getattr(nl, name)
        return save(function(load(x), load(y))), save(function(load(x), 1))

    x, y = (np.array([[0, 0, 1, 1], [0, 1, 0, 1]]) == 1).astype(NUMPY[dtype])[:, None]
    both, one = simulate(kernel)(x, y)
    equal_arrays(both, converted(LOGIC[name](f32(x) != 0, f32(y) != 0), dtype))
    equal_arrays(one, converted(LOGIC[name](f32(x) != 0, True), dtype))


@pytest.mark.parametrize("name", [*sorted(LOGIC), "logical_not"])
def test_logic_warns_of_what_is_not_boolean(name, recwarn):
    def kernel(value):
        operands = (tile((2, 2), value=value),) if name == "logical_not" else (
            tile((2, 2), value=1.0), tile((2, 2), value=value),
        )  # fmt: skip
        getattr(nl, name)(*operands)

    simulate(kernel)(1.0)
    assert not recwarn.list
    with pytest.warns(NkiWarning, match=re.escape("[boolean-values]")) as caught:
        simulate(kernel)(2.0)
    assert f"nl.{name}: {'x' if name == 'logical_not' else 'y'} holds 2.0" in str(caught[0].message)


def test_logic_warns_of_numbers():
    def kernel(number):
        nl.logical_or(tile((2, 2)), number)

    simulate(kernel)(1)
    with pytest.warns(NkiWarning, match=r"\[boolean-values\].* y holds 3"):
        simulate(kernel)(3)


# Bits.


@pytest.mark.parametrize("name", sorted(BITS))
@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits(name, dtype):
    def kernel(x, y):
        function = getattr(nl, name)
        return save(function(load(x), load(y))), save(function(load(x), 5))

    limits = np.iinfo(NUMPY[dtype])
    x = values((6, 8), dtype, 1, limits.min, limits.max)
    y = values((6, 8), dtype, 2, limits.min, limits.max)
    both, one = simulate(kernel)(x, y)
    equal_arrays(both, BITS[name](x, y))
    equal_arrays(one, BITS[name](x, np.array(5, x.dtype)))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype):
    def kernel(x, y):
        return (
            save(nl.left_shift(load(x), load(y))), save(nl.right_shift(load(x), load(y))),
            save(nl.left_shift(load(x), 2)), save(nl.left_shift(1, load(y))),
        )  # fmt: skip

    limits = np.iinfo(NUMPY[dtype])
    x = values((6, 8), dtype, 1, limits.min, limits.max)
    y = values((6, 8), dtype, 2, 0, 6)
    bits = f"u{x.dtype.itemsize}"
    left, right, by_two, of_one = simulate(kernel)(x, y)
    shifted = y.astype(bits)
    equal_arrays(left, np.left_shift(x.view(bits), shifted).view(x.dtype))
    equal_arrays(right, np.right_shift(x.view(bits), shifted).view(x.dtype))
    equal_arrays(by_two, np.left_shift(x.view(bits), 2).astype(bits).view(x.dtype))
    equal_arrays(of_one, np.left_shift(np.ones_like(shifted), shifted).view(x.dtype))


def bitwise(dtype="int32", number=1):
    nl.bitwise_and(tile((4, 4), dtype), number)  # rule


def test_bits_need_integers():
    pair("integer-dtype", bitwise, "int32", "float32")
    pair("integer-dtype", bitwise, "uint8", "bool")
    pair("operand-type", bitwise, ("int32", 1), ("int32", 1.0))


def test_bits_need_one_width():
    def kernel(dtype):
        nl.bitwise_or(tile((4, 4), "int32"), tile((4, 4), dtype), dtype=nl.int32)  # rule

    pair("bitvec-width", kernel, "uint32", "int16")


# Power.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_power(dtype):
    def kernel(x, y):
        return save(nl.power(load(x), load(y)))

    x, y = np.abs(values((5, 6), dtype, 1)) + NUMPY[dtype](0.5), values((5, 6), dtype, 2)
    equal_arrays(simulate(kernel)(x, y), converted(np.power(f32(x), f32(y)), dtype))


def test_power_of_integers():
    def kernel(x, y):
        return save(nl.power(load(x), load(y)))

    x, y = np.array([[3, -7, 10]], np.int32), np.array([[19, 3, 9]], np.int32)
    np.testing.assert_array_equal(simulate(kernel)(x, y), [[3**19, -343, 10**9]])


def test_power_takes_no_numbers():
    def kernel(first, second):
        made = [tile((4, 4), value=2.0) if value is None else value for value in (first, second)]
        nl.power(*made)  # rule

    error = pair("scalar-power", kernel, (None, None), (None, 2.0))
    assert "nisa.tensor_scalar(op0=nl.power)" in str(error)
    refused("scalar-power", kernel, 2.0, None)


def test_power_stays_out_of_psum():
    def kernel(buffer):
        nl.power(tile((4, 4), buffer=buffer, value=1.0), tile((4, 4), value=1.0))  # rule

    pair("gpsimd-psum", kernel, S, P)


# abs_max and abs_min.


@pytest.mark.parametrize("name", ["abs_max", "abs_min"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_by_magnitude(name, dtype, on_target):
    def kernel(x, y):
        function = getattr(nl, name)
        return (
            save(function(load(x), load(y))),
            save(function(load(x), -1.0)),
            save(function(-1.0, load(x))),
        )

    def reference(a, b):
        first = np.abs(a) > np.abs(b) if name == "abs_max" else np.abs(a) < np.abs(b)
        return np.where(first, a, b)

    on_target("trn3")
    x, y = values((9, 8), dtype, 1), values((9, 8), dtype, 2)
    x[0], y[0] = NUMPY[dtype](1), NUMPY[dtype](-1)  # A tie takes the second.
    both, right, left = simulate(kernel)(x, y)
    one = np.float32(-1)
    equal_arrays(both, reference(f32(x), f32(y)).astype(NUMPY[dtype]))
    equal_arrays(right, reference(f32(x), one).astype(NUMPY[dtype]))
    equal_arrays(left, reference(one, f32(x)).astype(NUMPY[dtype]))


@pytest.mark.parametrize("name", ["abs_max", "abs_min"])
def test_by_magnitude_with_a_column(name, on_target):
    def kernel(x, column):
        function = getattr(nl, name)
        return save(function(load(x), load(column))), save(function(load(column), load(x)))

    on_target("trn3")
    x = np.array([[1, -5, 3, 0.5]], np.float32).repeat(3, 0)
    column = np.array([[-1], [2], [-3]], np.float32)
    wins = np.greater if name == "abs_max" else np.less
    right, left = simulate(kernel)(x, column)
    np.testing.assert_array_equal(right, np.where(wins(np.abs(x), np.abs(column)), x, column))
    np.testing.assert_array_equal(left, np.where(wins(np.abs(column), np.abs(x)), column, x))


def test_by_magnitude_needs_gen4(on_target):
    def kernel():
        nl.abs_max(tile((4, 4)), tile((4, 4)))  # rule

    refused("operator-target", kernel)
    on_target("trn3")
    simulate(kernel)()


# Rules.


@pytest.mark.parametrize("name", [*sorted(NUMERIC), *sorted(LOGIC), "power"])
def test_tiles_are_not_broadcast(name):
    def kernel(shape):
        nl_function = getattr(nl, name)
        nl_function(tile((8, 6), value=1.0), tile(shape, value=1.0))  # rule

    error = pair("implicit-broadcast", kernel, ((8, 6),), ((8, 1),))
    assert "x is [8, 6] and y [8, 1]" in str(error) and "nl.broadcast_to" in str(error)
    refused("implicit-broadcast", kernel, (8, 2, 3))


def test_columns_of_abs_max_are_the_only_exception(on_target):
    def kernel(shape):
        nl.abs_max(tile((8, 6)), tile(shape))  # rule

    on_target("trn3")
    pair("implicit-broadcast", kernel, ((8, 1),), ((8, 2),))


def test_the_result_dtype_is_not_guessed():
    def kernel(second, dtype):
        nl.add(tile((4, 4), nl.bfloat16), tile((4, 4), second), dtype)  # rule

    pair("result-dtype", kernel, (nl.bfloat16, None), (nl.float32, None))
    simulate(kernel)(nl.float32, nl.float16)
    refused("dtype", kernel, nl.float32, "float64")


def test_one_operand_is_a_tile():
    def kernel(x):
        nl.add(tile((4, 4)) if x is None else x, 2.0)  # rule

    pair("wrapper-operands", kernel, (None,), (1.0,))
    refused("wrapper-operands", kernel, "x")


def test_operands_are_on_the_chip():
    def kernel(x, on_chip):
        nl.multiply(load(x) if on_chip else x, load(x))  # rule

    x = values((4, 4))
    error = pair("buffer-on-chip", kernel, (x, True), (x, False))
    assert "x is in" in str(error) and "nl.load" in str(error)


def test_both_tiles_in_psum():
    def kernel(second):
        nl.multiply(tile((4, 4), buffer=P), tile((4, 4), buffer=second))  # rule

    pair("both-psum", kernel, S, P)


@pytest.mark.parametrize("name", ["divide", "mod", "fmod"])
def test_what_no_engine_computes(name):
    def kernel(use):
        x, y = tile((4, 4), value=3.0), tile((4, 4), value=2.0)
        if use:
            getattr(nl, name)(x, y)  # rule
        else:
            nl.multiply(x, nl.reciprocal(y))

    error = pair("no-device-function", kernel, False, True)
    assert f"nl.{name} does not compile" in str(error) and "nl.reciprocal(y)" in str(error)


def test_a_wrapper_runs_inside_a_kernel_only():
    kept = []

    def kernel():
        kept.append(tile((4, 4)))

    simulate(kernel)()
    with pytest.raises(Exception, match=re.escape("[no-kernel]")):
        nl.add(kept[0], kept[0])


def test_the_instructions_issued():
    def kernel():
        x, y = tile((4, 4), value=1.0), tile((4, 4), value=2.0)
        nl.add(x, y)
        nl.add(x, 2.0)
        nl.power(x, y)
        nl.add(tile((4, 4), nl.int32), tile((4, 4), nl.int32))

    _, session = record(kernel)()
    issued = [(step.op, step.engine) for step in session.trace if step.op != "memset"]
    assert issued == [
        ("tensor_tensor", "vector"), ("tensor_scalar", "vector"), ("tensor_tensor", "gpsimd"),
        ("tensor_tensor", "gpsimd"),
    ]  # fmt: skip
