"""The accumulator registers: reduce commands, continuation, and who shares which set."""

from .support import (
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

S = nl.sbuf
F = "float32"
CMD = nisa.reduce_cmd


def output(shape, dtype=F):
    return nl.ndarray(shape, dtype=dtype)


def chained(x, commands, init=None, negate=False, read_last_only=True):
    data = load(x)
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32)
    for index, command in enumerate(commands):
        last = index == len(commands) - 1
        nisa.tensor_scalar_reduce(  # rule
            output(x.shape), data, nl.multiply, 1.0, nl.add,
            reduce_res=total if last else None, reduce_cmd=command,
            reduce_init=init if command == nisa.reduce_cmd.load_reduce else None,
            reduce_res_negate=negate,
        )  # fmt: skip
    return save(total)


def test_accumulators_continue_between_instructions():
    x = values((16, 4))
    total = x.sum(axis=1, keepdims=True)

    def check(times, commands, offset=0.0, **options):
        got = simulate(lambda x: chained(x, commands, **options))(x)
        sign = -1 if options.get("negate") else 1
        np.testing.assert_allclose(got, sign * (times * total + offset), rtol=1e-4, atol=1e-5)

    check(1, [CMD.reset_reduce])
    check(3, [CMD.reset_reduce, CMD.reduce, CMD.reduce])
    check(1, [CMD.reset_reduce, CMD.reset_reduce])
    check(1, [CMD.load_reduce], offset=5.0, init=5.0)
    check(2, [CMD.reset_reduce, CMD.reduce], negate=True)


def test_accumulator_can_be_loaded_from_a_column():
    def kernel(x):
        return chained(x, [CMD.load_reduce], init=tile((16, 1), value=3.0))

    x = values((16, 4))
    expected = x.sum(axis=1, keepdims=True) + 3
    np.testing.assert_allclose(simulate(kernel)(x), expected, rtol=1e-4, atol=1e-5)


def test_accumulators_start_unknown():
    x = values((16, 4))
    pair(
        "accumulator", lambda x, commands: chained(x, commands),
        (x, (CMD.reset_reduce, CMD.reduce)), (x, (CMD.reduce,)),
    )  # fmt: skip


def test_accumulators_are_per_lane():
    def kernel(height):
        data = tile((64, 4), value=1.0)
        for first, rows, command in ((0, height, CMD.reset_reduce), (0, 64, CMD.reduce)):
            nisa.tensor_scalar_reduce(  # rule
                output((rows, 4)), data[first : first + rows], nl.multiply, 1.0, nl.add,
                reduce_cmd=command,
            )  # fmt: skip

    pair("accumulator", kernel, 64, 63)


# The instructions that share a set, each as call(command, res) on ones [16, 4].


def vector_instructions(gen4):
    x, column, mask = tile((16, 4), value=1.0), tile((16, 1)), tile((16, 4), nl.uint8, value=1)

    def cumulative(command, res):
        # It has no reduce_res: the next instruction reads the registers.
        nisa.tensor_scalar_cumulative(  # rule
            output((16, 4)), x, nl.multiply, nl.add, 1.0, reduce_cmd=command
        )

    calls = {
        "tensor_scalar_reduce": lambda command, res: nisa.tensor_scalar_reduce(  # rule
            output((16, 4)), x, nl.multiply, 1.0, nl.add, res, reduce_cmd=command
        ),
        "select_reduce": lambda command, res: nisa.select_reduce(  # rule
            output((16, 4)), mask, x, 0.0, res, command
        ),
        "range_select": lambda command, res: nisa.range_select(  # rule
            output((16, 4)), x, nl.greater_equal, nl.greater_equal, column, column, command, res
        ),
        "tensor_scalar_cumulative": cumulative,
    }
    if gen4:
        calls["exponential"] = lambda command, res: nisa.exponential(  # rule
            output((16, 4)), x, 1.0, res, command
        )
    return calls


def scalar_instructions(gen4):
    x = tile((16, 4), value=1.0)
    calls = {
        "activation": lambda command, res: nisa.activation(  # rule
            output((16, 4)), nl.copy, x, reduce_op=nl.add, reduce_res=res, reduce_cmd=command
        )
    }
    if gen4:
        calls["activate2"] = lambda command, res: nisa.activate2(  # rule
            output((16, 4)), nl.copy, x, 0.0, 0.0, nl.bypass, nl.bypass, reduce_op=nl.add,
            reduce_res=res, reduce_cmd=command,
        )  # fmt: skip
    return calls


SUMS = {"tensor_scalar_reduce": 4, "tensor_scalar_cumulative": 4, "exponential": 4}
VECTOR = [*SUMS, "select_reduce", "range_select"]


@pytest.mark.parametrize("second", VECTOR)
@pytest.mark.parametrize("first", VECTOR)
def test_the_vector_instructions_share_one_set(on_target, first, second):
    """What one leaves, another continues: sums add 4 ones, maxima keep the larger."""
    on_target("trn3")

    def kernel(start):
        calls = vector_instructions(gen4=True)
        res = output((16, 1))
        if start:
            calls[first](CMD.reset_reduce, None)
        calls[second](CMD.reduce, None)
        nisa.select_reduce(
            output((16, 4)), tile((16, 4), nl.uint8), tile((16, 4)), float("-inf"), res, CMD.reduce
        )
        return save(res)

    held = SUMS.get(first, 1)
    expected = held + SUMS[second] if second in SUMS else max(held, 1)
    assert (simulate(kernel)(True) == expected).all()
    pair("accumulator", kernel, True, False)


@pytest.mark.parametrize("first", ["activation", "activate2"])
@pytest.mark.parametrize("second", ["activation", "activate2"])
def test_the_scalar_instructions_share_one_set(on_target, first, second):
    on_target("trn3")

    def kernel(start):
        calls = scalar_instructions(gen4=True)
        res = output((16, 1))
        if start:
            calls[first](CMD.reset_reduce, None)
        calls[second](CMD.idle, None)
        calls[second](CMD.reduce, res)
        return save(res)

    assert (simulate(kernel)(True) == 8).all()
    pair("accumulator", kernel, True, False)


def test_the_two_sets_are_separate():
    def kernel(vector_too):
        scalar_instructions(False)["activation"](CMD.reset_reduce, None)
        calls = vector_instructions(False)
        if vector_too:
            calls["range_select"](CMD.reset_reduce, None)
        calls["tensor_scalar_reduce"](CMD.reduce, None)

    pair("accumulator", kernel, True, False)


@pytest.mark.parametrize("name", ["select_reduce", "range_select", "exponential"])
def test_idle_spoils_the_vector_set(on_target, name):
    on_target("trn3")

    def kernel(between):
        calls = vector_instructions(gen4=True)
        calls["tensor_scalar_reduce"](CMD.reset_reduce, None)
        if between:
            calls[name](CMD.idle, None)
        calls["tensor_scalar_reduce"](CMD.reduce, output((16, 1)))

    pair("accumulator", kernel, False, True)


@pytest.mark.parametrize("name", ["select_reduce", "range_select", "exponential"])
def test_an_idle_instruction_has_no_result(on_target, name):
    on_target("trn3")

    def kernel(command):
        vector_instructions(gen4=True)[name](command, output((16, 1)))

    pair("accumulator", kernel, CMD.reset_reduce, CMD.idle)
