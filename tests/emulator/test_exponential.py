"""exponential (gen4): values, running sums, dtypes and rules."""

from .numeric import converted, f32
from .support import (
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
F = "float32"
CMD = nisa.reduce_cmd
FLOATS = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32")
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16")


@pytest.fixture(autouse=True)
def gen4(on_target):
    on_target("trn3")


@pytest.mark.parametrize("shape", [(128, 9), (5, 2, 3, 4), (33, 1)])
@pytest.mark.parametrize("kind", ["none", "number", "column", "psum"])
def test_exponential(shape, kind):
    def kernel(x, largest):
        subtract = {"none": 0.0, "number": 1.5}.get(kind)
        if subtract is None:
            subtract = nl.ndarray(largest.shape, dtype=F, buffer=P if kind == "psum" else S)
            nisa.tensor_copy(subtract, load(largest))
        dst, total = nl.ndarray(x.shape, dtype=F), nl.ndarray((x.shape[0], 1), dtype=F)
        nisa.exponential(dst, load(x), subtract, total, CMD.reset_reduce)
        return save(dst), save(total)

    x = values(shape)
    largest = x.reshape(len(x), -1).max(1, keepdims=True)
    subtracted = {"none": 0, "number": np.float32(1.5)}.get(kind)
    if subtracted is None:
        subtracted = largest.reshape((len(x),) + (1,) * (len(shape) - 1))
    expected = np.exp(x - subtracted)
    dst, total = simulate(kernel)(x, largest)
    same_bits(dst, expected)
    exact = expected.reshape(len(x), -1).sum(1, dtype=np.float64, keepdims=True)
    np.testing.assert_allclose(total, exact, rtol=1e-6)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "uint32"])
@pytest.mark.parametrize("out", [*FLOATS, *INTEGERS])
def test_dtypes(dtype, out):
    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=out)
        nisa.exponential(dst, load(x), 1.0)
        return save(dst)

    x = values((7, 6), dtype, low=0, high=7)
    same_bits(simulate(kernel)(x), converted(np.exp(f32(x) - np.float32(1)), out))


@pytest.mark.parametrize("out", FLOATS)
def test_the_sum_is_of_unrounded_values(out):
    def kernel(x):
        dst, total = nl.ndarray(x.shape, dtype=nl.int8), nl.ndarray((7, 1), dtype=out)
        nisa.exponential(dst, load(x), 0.0, total, CMD.reset_reduce)
        return save(total)

    x = values((7, 2))
    exact = np.exp(x)
    same_bits(simulate(kernel)(x), converted(exact[:, :1] + exact[:, 1:], out))


def test_tfloat32_results():
    def kernel(x):
        dst, total = nl.ndarray(x.shape, dtype=nl.tfloat32), nl.ndarray((7, 1), dtype=nl.tfloat32)
        nisa.exponential(dst, load(x), 0.0, total, CMD.reset_reduce)
        wide = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.tensor_copy(wide, dst)
        return save(wide)

    x = values((7, 2))
    got = simulate(kernel)(x)
    assert (got.view(np.uint32) & 0x1FFF == 0).all()
    np.testing.assert_allclose(got, np.exp(x), rtol=2.0**-11)


def test_in_place_and_of_views():
    def kernel(x, column):
        t = load(x)
        nisa.exponential(t[:, ::2], t[:, ::2], t[:, 1:2])
        nisa.exponential(t[:, 1::2], load(column).broadcast(1, 3))
        return save(t)

    x, column = values((9, 6)), values((9, 1), seed=1)
    expected = np.repeat(np.exp(column), 6, axis=1)
    expected[:, ::2] = np.exp(x[:, ::2] - x[:, 1:2])
    same_bits(simulate(kernel)(x, column), expected)


@pytest.mark.parametrize("init", [0.0, 2.5, "column"])
def test_load_reduce_and_reduce(init):
    def kernel(x, start):
        data, total = load(x), nl.ndarray((9, 1), dtype=F)
        loaded = load(start) if init == "column" else init
        nisa.exponential(tile((9, 4)), data[:, 0:4], reduce_cmd=CMD.load_reduce, reduce_init=loaded)
        nisa.exponential(tile((9, 4)), data[:, 4:8], 0.0, total, CMD.reduce)
        return save(total)

    x, start = values((9, 8)), values((9, 1), seed=1)
    expected = np.exp(x).sum(1, keepdims=True, dtype=np.float64)
    expected += start if init == "column" else init
    np.testing.assert_allclose(simulate(kernel)(x, start), expected, rtol=1e-6)


def softened(
    dst=((8, 6), F, S), src=((8, 6), F, S), max_value=0.0, reduce_res=None, reduce_init=0.0,
    **options,
):  # fmt: skip
    max_value, reduce_res, reduce_init = (
        tile(*v) if isinstance(v, tuple) else v for v in (max_value, reduce_res, reduce_init)
    )
    made, source = tile(*dst), tile(*src)
    nisa.exponential(  # rule
        made, source, max_value, reduce_res, reduce_init=reduce_init, **options
    )


RESET = {"reduce_cmd": CMD.reset_reduce}
LOAD = {"reduce_cmd": CMD.load_reduce}


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("operand-dtype", {"src": ((8, 6), "uint32", S)}, {"dst": ((8, 6), "uint32", S)}),
        ("operand-dtype", {"dst": ((8, 6), "tfloat32", S)}, {"src": ((8, 6), "tfloat32", S)}),
        ("operand-dtype", {}, {"src": ((8, 6), "float8_e4m3fn", S)}),
        ("operand-dtype", {}, {"dst": ((8, 6), "bool", S)}),
        ("operand-dtype", {}, {"dst": ((8, 6), "float8_e5m2_x4", S)}),
        ("operand-dtype", {"max_value": ((8, 1), F, P)}, {"max_value": ((8, 1), "bfloat16", S)}),
        ("operand-dtype", {**RESET, "reduce_res": ((8, 1), "tfloat32", P)},
         {**RESET, "reduce_res": ((8, 1), "int32", S)}),
        ("operand-dtype", {**LOAD, "reduce_init": ((8, 1), F, S)},
         {**LOAD, "reduce_init": ((8, 1), "bfloat16", S)}),
        ("tile-rank", {"src": ((8, 1, 2, 3), F, S)}, {"src": ((8, 1, 1, 2, 3), F, S)}),
        ("tile-rank", {}, {"dst": ((8, 1, 1, 2, 3), F, S)}),
        ("reduce-init", LOAD, {**LOAD, "reduce_init": None}),
        ("reduce-init", {**RESET, "reduce_init": 0}, {**RESET, "reduce_init": 1.0}),
        ("reduce-init", {}, {"reduce_init": ((8, 1), F, S)}),
        ("reduce-cmd", RESET, {"reduce_cmd": CMD.reset}),
        ("vector-operand", {}, {"max_value": ((8, 6), F, S)}),
        ("vector-operand", {}, {**RESET, "reduce_res": ((8, 2), F, S)}),
        ("partition-count", {}, {"max_value": ((4, 1), F, S)}),
        ("operand-type", {"max_value": 1}, {"max_value": None}),
        ("free-size", {"dst": ((8, 2, 3), F, P)}, {"dst": ((8, 1), F, S)}),
    ],
)  # fmt: skip
def test_rules(rule, good, bad):
    pair(rule, lambda change: softened(**change), (good,), (bad,))


def test_needs_gen4(on_target):
    on_target("trn2")
    refused("target", softened)
