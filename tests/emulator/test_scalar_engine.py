"""Scalar Engine: every activation function, scale and bias, running sums, and the rules."""

import math

import torch

from nki_emulator import NkiError, NkiWarning
from nki_emulator.functions import erf_float64

from .numeric import DTYPES, converted, f32
from .support import (
    FLOATS,
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
CMD = nisa.reduce_cmd
F = "float32"


def derivative(function):
    """A torch function's derivative in float64."""

    def evaluate(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    return evaluate


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


# name: (float64 reference, lowest and highest input).
REFERENCES = {
    "copy": (lambda x: x, -5, 5),
    "square": (torch.square, -5, 5),
    "sigmoid": (torch.sigmoid, -30, 30),
    "relu": (torch.relu, -5, 5),
    "gelu": (torch.nn.functional.gelu, -8, 8),
    "gelu_dx": (derivative(torch.nn.functional.gelu), -8, 8),
    "gelu_apprx_tanh": (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), -8, 8),
    "gelu_apprx_sigmoid": (quick_gelu, -8, 8),
    "gelu_apprx_sigmoid_dx": (derivative(quick_gelu), -8, 8),
    "silu": (torch.nn.functional.silu, -30, 30),
    "silu_dx": (derivative(torch.nn.functional.silu), -30, 30),
    "tanh": (torch.tanh, -5, 5),
    "softplus": (torch.nn.functional.softplus, -30, 30),
    "mish": (torch.nn.functional.mish, -20, 20),
    "erf": (torch.erf, -5, 5),
    "erf_dx": (derivative(torch.erf), -5, 5),
    "exp": (torch.exp, -20, 20),
    "log": (torch.log, 1e-6, 1e6),
    "sin": (torch.sin, -3.14, 3.14),
    "arctan": (torch.arctan, -1.57, 1.57),
    "sqrt": (torch.sqrt, 1e-6, 1e6),
    "rsqrt": (torch.rsqrt, 1e-6, 1e6),
    "reciprocal": (torch.reciprocal, 0.1, 100),
    "sign": (torch.sign, -5, 5),
    "abs": (torch.abs, -5, 5),
}


def apply(x, op, dtype, **options):
    dst = nl.ndarray(x.shape, dtype=dtype)
    nisa.activation(dst=dst, op=op, data=load(x), **options)
    return save(dst)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_functions_in_float32(name):
    reference, low, high = REFERENCES[name]
    x = np.linspace(low, high, 128 * 40, dtype=np.float32).reshape(128, 40)
    got = simulate(lambda x: apply(x, getattr(nl, name), nl.float32))(x)
    expected = reference(torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(got, expected, rtol=3e-6, atol=3e-7)


@pytest.mark.parametrize("name", ["gelu", "exp", "copy", "silu"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_data_and_dst_convert(name, dtype):
    reference = REFERENCES[name][0]
    x = values((64, 33), dtype)
    for out in FLOATS:
        got = simulate(lambda x, out=out: apply(x, getattr(nl, name), out))(x)
        wide = reference(torch.from_numpy(x.astype(np.float64))).numpy()
        step = {"float32": 1e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}[out]
        np.testing.assert_allclose(got.astype(np.float64), wide, rtol=step, atol=step / 8)


def test_erf_is_accurate_everywhere():
    x = np.concatenate([
        np.linspace(-7, 7, 20001), np.logspace(-30, -1, 500), -np.logspace(-30, -1, 500),
        [0.0, -0.0, np.inf, -np.inf],
    ]).astype(np.float32)  # fmt: skip
    expected = np.array([math.erf(v) for v in x.tolist()])
    got = erf_float64(x)
    assert np.abs(got - expected).max() < 1e-9
    small = np.abs(x) < 0.1
    np.testing.assert_allclose(got[small], expected[small], rtol=1e-7)
    assert np.isnan(erf_float64(np.array([np.nan, 1.0], np.float32))[0])


@pytest.mark.parametrize("name", ["gelu", "silu", "sigmoid", "softplus", "gelu_apprx_tanh", "mish"])
def test_large_inputs_do_not_overflow(name):
    x = np.array([[-1e4, -100.0, 100.0, 1e4]], np.float32)
    got = simulate(lambda x: apply(x, getattr(nl, name), nl.float32))(x)
    expected = REFERENCES[name][0](torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("scale", [1.0, 0.5, "column", "psum"])
@pytest.mark.parametrize("bias", [None, 0.25, "float32", "bfloat16", "int32"])
def test_scale_and_bias(scale, bias):
    def kernel(x, s, b):
        factor = scale
        if scale == "psum":
            factor = nl.ndarray(s.shape, dtype=nl.float32, buffer=P)
            nisa.tensor_copy(factor, load(s))
        elif scale == "column":
            factor = load(s)
        term = load(b, dtype=bias) if isinstance(bias, str) else bias
        return apply(x, nl.copy, nl.float32, scale=factor, bias=term)

    x, s, b = values((100, 3, 4)), values((100, 1), seed=1), values((100, 1), seed=2)
    factor = s[:, :, None] if isinstance(scale, str) else np.float32(scale)
    term = 0 if bias is None else bias
    if isinstance(bias, str):
        term = np.rint(b) if bias == "int32" else rounded(b, bias).astype(np.float32)
        term = term[:, :, None]
    same_bits(simulate(kernel)(x, s, b), (x * factor + np.float32(1) * term).astype(np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", DTYPES)
def test_activation_dtypes(dtype, out):
    x = values((7, 2, 3), dtype)
    got = simulate(lambda x: apply(x, nl.square, out, scale=0.3, bias=0.5))(x)
    wide = f32(x) * np.float32(0.3) + np.float32(0.5)
    same_bits(got, converted(wide * wide, out))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bias_of_any_dtype(dtype):
    x, b = values((9, 4)), values((9, 1), dtype, 1)
    got = simulate(lambda x, b: apply(x, nl.copy, nl.float32, bias=load(b)))(x, b)
    same_bits(got, x + f32(b))


def test_activation_in_place_and_through_views():
    def kernel(x):
        t = load(x)
        nisa.activation(t[:, ::2], nl.square, t[:, ::2])
        nisa.activation(t.reshape((8, 2, 3)), nl.copy, t, scale=2.0)
        return save(t)

    x = values((8, 6))
    expected = x.copy()
    expected[:, ::2] **= 2
    np.testing.assert_array_equal(simulate(kernel)(x), 2 * expected)


def test_a_zero_stride_destination_is_a_throw_away():
    def kernel(x):
        scratch = nl.ndarray((8, 1), dtype=nl.bfloat16)
        total = nl.ndarray((8, 1), dtype=nl.float32)
        nisa.activation_reduce(scratch.broadcast(1, 6), nl.square, load(x), nl.add, total)
        return save(total)

    x = values((8, 6))
    np.testing.assert_allclose(simulate(kernel)(x), (x * x).sum(1, keepdims=True), rtol=1e-5)


# Running sums.


def test_a_reduce_res_within_dst_keeps_the_sum():
    """NKI 0.6 release notes: a reduce_res that aliases dst does not lose the result."""

    def kernel(x):
        dst, t = nl.ndarray(x.shape, dtype=nl.float32), load(x)
        nisa.activation_reduce(dst, nl.square, t, nl.add, dst[:, 2:3])
        nisa.activation(t, nl.copy, t, reduce_op=nl.add, reduce_res=t[:, 0:1],
                        reduce_cmd=CMD.reset_reduce)  # fmt: skip
        return save(dst), save(t)

    x = values((9, 5), "int8").astype(np.float32)
    dst, t = x * x, x.copy()
    dst[:, 2], t[:, 0] = (x * x).sum(1), x.sum(1)
    for got, expected in zip(simulate(kernel)(x), (dst, t)):
        same_bits(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_is_rounded_to_reduce_res(dtype):
    def kernel(x):
        total = nl.ndarray((9, 1), dtype=dtype, buffer=P)
        nisa.activation_reduce(
            nl.ndarray(x.shape, dtype=nl.int8), nl.copy, load(x), nl.add, total, scale=0.5
        )
        return save(total)

    x = values((9, 3), "int8")
    expected = f32(x).sum(1, keepdims=True) * np.float32(0.5)
    same_bits(simulate(kernel)(x), converted(expected, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_activation_reduce_sums_before_rounding(dtype):
    def kernel(x):
        dst, total = nl.ndarray(x.shape, dtype=dtype), nl.ndarray((16, 1), dtype=nl.float32)
        nisa.activation_reduce(dst, nl.exp, load(x), nl.add, total, bias=-1.0, scale=0.5)
        return save(dst), save(total)

    x = values((16, 3, 7), dtype)
    expected = np.exp(x.astype(np.float32) * np.float32(0.5) - np.float32(1))
    dst, total = simulate(kernel)(x)
    same_bits(dst, rounded(expected, dtype))
    np.testing.assert_allclose(total[:, 0], expected.reshape(16, -1).sum(1), rtol=1e-6)


def chained(x, commands, reduce_op=nl.add):
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32)
    data = load(x)
    for index, command in enumerate(commands):
        last = index == len(commands) - 1
        nisa.activation(  # rule
            nl.ndarray(x.shape, dtype=nl.float32), nl.copy, data, reduce_op=reduce_op,
            reduce_res=total if last else None, reduce_cmd=command,
        )  # fmt: skip
    return save(total)


@pytest.mark.parametrize(
    "commands, times",
    [
        ([CMD.reset_reduce], 1), ([CMD.reset_reduce, CMD.reduce], 2), ([CMD.reset], 0),
        ([CMD.reset, CMD.reduce, CMD.reduce], 2), ([CMD.reset_reduce, CMD.idle], 1),
        ([CMD.reset_reduce, CMD.reset_reduce], 1),
    ],
)  # fmt: skip
def test_reduce_commands(commands, times):
    x = values((16, 5))
    got = simulate(lambda x: chained(x, commands))(x)
    np.testing.assert_allclose(got, times * x.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_the_scalar_accumulator_starts_unknown_and_is_not_the_vector_one():
    x = values((16, 5))
    pair("accumulator", chained, (x, (CMD.reset, CMD.reduce)), (x, (CMD.reduce,)))
    pair("accumulator", chained, (x, (CMD.reset, CMD.idle)), (x, (CMD.idle,)))

    def mixed(x, vector_first):
        if vector_first:
            nisa.tensor_scalar_reduce(
                nl.ndarray(x.shape, dtype=F), load(x), nl.multiply, 1.0, nl.add
            )
        chained(x, (CMD.reduce,) if vector_first else (CMD.reset_reduce,))

    pair("accumulator", mixed, (x, False), (x, True))


# Rules.


def activated(
    op=nl.exp, data=((8, 6), F, S), dst=((8, 6), F, S), bias=None, scale=1.0, reduce_res=None,
    **options,
):  # fmt: skip
    bias, scale, reduce_res = (
        tile(*v, value=1) if isinstance(v, tuple) else v for v in (bias, scale, reduce_res)
    )
    made, source = tile(*dst), tile(*data, value=1)
    nisa.activation(made, op, source, bias, scale, reduce_res=reduce_res, **options)  # rule


RULES = [
    ("operator", {"op": nl.gelu}, {"op": nl.add}),
    ("operator", {"op": nl.gelu}, {"op": nl.prelu}),
    ("operator", {"op": nl.copy}, {"op": nl.cos}),
    ("operator", {"op": nl.copy}, {"op": "exp"}),
    ("operand-dtype", {"scale": ((8, 1), F, S)}, {"scale": ((8, 1), "bfloat16", S)}),
    ("operand-dtype", {"bias": ((8, 1), "bfloat16", S)}, {"bias": ((8, 1), "tfloat32", S)}),
    ("vector-operand", {"bias": ((8, 1), F, P)}, {"bias": ((8, 6), F, S)}),
    ("partition-count", {"scale": ((8, 1), F, S)}, {"scale": ((4, 1), F, S)}),
    ("partition-count", {}, {"dst": ((6, 8), F, S)}),
    ("free-size", {"dst": ((8, 2, 3), F, P)}, {"dst": ((8, 7), F, S)}),
    ("operand-type", {"scale": 2}, {"scale": None}),
    ("reduce-op", {"reduce_cmd": CMD.reduce, "reduce_op": nl.add}, {"reduce_cmd": CMD.reduce}),
    ("operator-reduce", {"reduce_cmd": CMD.reset_reduce, "reduce_op": nl.add},
     {"reduce_cmd": CMD.reset_reduce, "reduce_op": nl.maximum}),
    ("reduce-cmd", {"reduce_cmd": CMD.reset}, {"reduce_cmd": CMD.load_reduce}),
    ("vector-operand", {"reduce_res": ((8, 1), F, S), "reduce_cmd": CMD.reset},
     {"reduce_res": ((8, 6), F, S), "reduce_cmd": CMD.reset}),
    ("packed-dtype", {}, {"dst": ((8, 6), "float8_e5m2_x4", S)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", RULES)
def test_activation_rules(rule, good, bad):
    def kernel(change):
        if change.get("reduce_cmd") == CMD.reduce:
            activated(reduce_cmd=CMD.reset)
        activated(**change)

    pair(rule, kernel, (good,), (bad,))


def test_gen2_takes_a_bias_column_only(on_target):
    on_target("trn1")
    pair("activation-bias", lambda c: activated(**c), ({"bias": ((8, 1), F, S)},), ({"bias": 1.0},))
    pair(
        "activation-bias", lambda c: activated(op=nl.reciprocal, **c), ({},),
        ({"bias": ((8, 1), F, S)},),
    )  # fmt: skip


def test_prelu_belongs_to_activate2():
    with pytest.raises(NkiError, match="nl.prelu needs a slope; use nisa.activate2"):
        simulate(lambda: activated(op=nl.prelu))()


@pytest.mark.parametrize(
    "name, inside, outside",
    [
        ("log", 2.0**-64, 2.0**-65), ("log", 2.0**64, 2.0**65), ("log", 1.0, 0.0),
        ("sqrt", 2.0**118, 2.0**119), ("sqrt", 2.0**-116, 0.0), ("sqrt", 1.0, -1.0),
        ("rsqrt", 2.0**-87, 0.0), ("rsqrt", 2.0**97, 2.0**98),
        ("reciprocal", -(2.0**42), 2.0**43), ("reciprocal", 2.0**-42, 0.0),
        ("sin", -3.1415925, 3.1416), ("sin", np.pi, -3.1416), ("arctan", 1.5707, 1.5709),
        ("arctan", -np.pi / 2, -1.5709),
    ],
)  # fmt: skip
def test_a_value_outside_the_documented_range_warns(recwarn, name, inside, outside):
    def kernel(x):
        apply(x, getattr(nl, name), nl.float32)

    simulate(kernel)(np.full((2, 2), inside, np.float32))
    assert not [w for w in recwarn if issubclass(w.category, NkiWarning)]
    with pytest.warns(NkiWarning, match=r"\[activation-range\] nl\." + name) as warned:
        simulate(kernel)(np.full((2, 2), outside, np.float32))
    assert warned[0].filename.endswith("test_scalar_engine.py")


def test_sin_outside_its_range_continues_a_cubic():
    """The documentation gives sin(9.0) as about 27.65."""
    x = np.array([[9.0, -9.0, 3.0]], np.float32)
    with pytest.warns(NkiWarning):
        got = simulate(lambda x: apply(x, nl.sin, nl.float32))(x)
    np.testing.assert_allclose(got, [[27.65, -27.65, np.sin(3.0)]], rtol=1e-3)
