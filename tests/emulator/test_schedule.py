"""`kernel.with_schedule`: dependencies between named instructions."""

from nki_emulator import record

from .support import load, nisa, nki, nl, pair, pair_of_calls, pytest, same_bits, save, tile, values


@nki.jit
def three_steps(x):
    """Two independent instructions, one that needs both, and two of one name."""
    t = load(x)
    first, second, total = (nl.ndarray(x.shape, dtype=x.dtype) for _ in range(3))
    nisa.reciprocal(dst=first, data=t, name="first")
    nisa.tensor_scalar(dst=second, data=t, op0=nl.add, operand0=1.0, name="second")
    nisa.tensor_tensor(dst=total, data1=first, data2=second, op=nl.add, name="total")
    for _ in range(2):
        nisa.memset(dst=tile((1, 1)), value=0.0, name="twice")
    return save(total)


X = values((4, 8)) + 3


@pytest.mark.parametrize(
    "schedule",
    [
        [("second", "first")],
        [("second", ["first"])],
        [["total", ("first", "second")]],
        (("first", "second"),),  # against the program order: nothing flows between the two
        [],
    ],
)
def test_a_schedule_does_not_change_the_result(schedule):
    same_bits(three_steps.with_schedule(schedule)(X), three_steps(X))
    same_bits(nki.simulate(three_steps.with_schedule(schedule))(X), three_steps(X))


def test_a_scheduled_kernel_is_a_kernel_of_its_own():
    scheduled = three_steps.with_schedule([("second", "first")])
    assert three_steps.schedule is None
    assert scheduled.__name__ == "three_steps"
    same_bits(scheduled[1](X), three_steps(X))
    _, session = record(scheduled)(X)
    assert "first" in [entry.name for entry in session.trace]


@pytest.mark.parametrize(
    "bad", ["total", [("total",)], [("total", "first", "second")], [("total", 1)], [("total", [])],
            [(None, "first")], [("total", [None])], {"total": "first"}],
)  # fmt: skip
def test_what_is_no_schedule(bad):
    pair_of_calls(
        "schedule",
        lambda: three_steps.with_schedule([("total", "first")]),
        lambda: three_steps.with_schedule(bad),
    )


@pytest.mark.parametrize("bad", ["third", "twice"])
def test_names_that_no_or_several_instructions_have(bad):
    error = pair_of_calls(
        "schedule-name",
        lambda: three_steps.with_schedule([("total", "first")])(X),
        lambda: three_steps.with_schedule([("total", bad)])(X),
    )
    assert repr(bad) in str(error)


@pytest.mark.parametrize(
    "bad",
    [
        [("first", "total")],  # total reads what first wrote
        [("first", "second"), ("second", "first")],
        [("first", "first")],
        [("second", "total"), ("second", "first")],
    ],
)
def test_circles(bad):
    pair_of_calls(
        "schedule-order",
        lambda: three_steps.with_schedule([("first", "second")])(X),
        lambda: three_steps.with_schedule(bad)(X),
    )


def test_an_edge_within_a_dynamic_loop_and_one_around_it():
    @nki.jit
    def looped(x):
        t = load(x)
        nisa.memset(dst=tile((1, 1)), value=0.0, name="before")

        def body(i):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, name="up")
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0, name="double")

        nl.fori_loop(0, 3, body)
        return save(t)

    same_bits(looped.with_schedule([("double", "up")])(X), looped(X))
    pair_of_calls(
        "schedule-order",
        lambda: looped.with_schedule([("double", "up")])(X),
        lambda: looped.with_schedule([("up", "before")])(X),
    )


def test_both_programs_of_a_launch_are_checked():
    @nki.jit
    def each(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        core = nl.program_id()
        t = load(x[core])
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, name="up")
        if core == 1:
            nisa.memset(dst=tile((1, 1)), value=0.0, name="only on 1")
        nisa.dma_copy(dst=out[core], src=t, name="out")
        return out

    x = values((2, 4, 8))
    same_bits(each[2].with_schedule([("out", "up")])(x), x + 1)
    same_bits(each.with_schedule([("out", "up")])[2](x), x + 1)
    pair_of_calls(
        "schedule-name",
        lambda: each[2].with_schedule([("out", "up")])(x),
        lambda: each[2].with_schedule([("out", "only on 1")])(x),
    )


def test_depends_on_returns_the_consumer():
    def kernel(order):
        t = tile((2, 2))
        a = nisa.memset(dst=t, value=1.0)
        b = nisa.memset(dst=tile((2, 2)), value=2.0)
        c = nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        assert c.depends_on(b, a) is c
        assert c.depends_on(b).depends_on(a) is c
        first, second = (b, a) if order == "as issued" else (a, b)
        first.depends_on(second)  # rule

    pair("depends-on", kernel, "as issued", "the other way")
