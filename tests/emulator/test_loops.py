"""Loops on the device: iterations, the rules of their bodies, and what a session counts."""

import warnings

import nki_emulator.loops
from nki_emulator.kernel import record

from .support import load, nisa, nl, np, pair, pytest, refused, simulate, tile, values

F = np.float32


def count_up():
    """A (1, 1) int32 counter in SBUF, and a function that adds one to it (inside a kernel)."""
    counter = tile((1, 1), nl.int32)
    return counter, lambda: nisa.tensor_scalar(counter, counter, nl.add, 1)


def run(kernel, *arguments):
    """The session of a kernel, with a trace."""
    session = record(kernel)(*arguments)[1]
    return session[0] if isinstance(session, list) else session


@pytest.mark.parametrize("lower, upper, step", [(0, 5, 1), (2, 9, 3), (3, 3, 1), (5, 2, 1)])
@pytest.mark.parametrize("registers", [False, True])
def test_fori_loop_visits_the_values_of_range(lower, upper, step, registers):
    def kernel(out):
        low = nisa.register_alloc(lower) if registers else lower
        high = nisa.register_alloc(upper) if registers else upper

        def body(i):
            t = nl.ndarray((1, 1), dtype=nl.int32)
            nisa.register_store(t, i)
            nisa.dma_copy(dst=out.select(0, i), src=t)

        nl.fori_loop(low, high, body, step)

    out = np.full((10, 1), -1, np.int32)
    simulate(kernel)(out)
    expected = np.full((10, 1), -1, np.int32)
    for value in range(lower, upper, step):
        expected[value] = value
    np.testing.assert_array_equal(out, expected)


def test_fori_loop_returns_nothing_and_keeps_state_in_sbuf():
    def kernel(x, n, out):
        bound, total = load(n), tile((1, 6))
        r = nisa.register_alloc()
        nisa.register_load(r, bound)

        def body(i):
            row = nl.ndarray((1, 6), dtype=nl.float32)
            nisa.dma_copy(dst=row, src=x.ap([[6, 1], [1, 6]], scalar_offset=i))
            nisa.tensor_tensor(total, total, row, nl.add)

        assert nl.fori_loop(1, r, body) is None
        nisa.dma_copy(dst=out, src=total)

    x, out = values((9, 6)), np.zeros((1, 6), F)
    simulate(kernel)(x, np.array([[4]], np.int32), out)
    np.testing.assert_array_equal(out[0], (F(0) + x[1] + x[2]) + x[3])


@pytest.mark.parametrize("start", [0, 1, 4])
def test_while_loop_runs_until_the_register_is_zero(start):
    def kernel(n, out):
        left, done = load(n), tile((1, 1))
        r = nisa.register_alloc()
        nisa.register_load(r, left)

        def body(condition):
            nisa.tensor_scalar(done, done, nl.add, 1.0)
            nisa.tensor_scalar(left, left, nl.subtract, 1)
            nisa.register_load(condition, left)
            return condition

        assert nl.while_loop(r, body) is None
        back = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.register_store(back, r)  # the condition is passed by value: r is unchanged
        nisa.dma_copy(dst=out[0:1, 0:1], src=done)
        nisa.dma_copy(dst=out[0:1, 1:2], src=back)

    out = np.zeros((1, 2), F)
    simulate(kernel)(np.array([[start]], np.int32), out)
    np.testing.assert_array_equal(out, [[start, start]])


def test_while_loop_may_return_a_register_of_its_body():
    def kernel(out):
        counter, add_one = count_up()

        def body(condition):
            add_one()
            nisa.dma_copy(dst=out, src=counter)
            following = nisa.register_alloc(0)
            return following

        nl.while_loop(nisa.register_alloc(-1), body)

    out = np.zeros((1, 1), np.int32)
    simulate(kernel)(out)
    assert out.item() == 1


def test_dynamic_range_is_deprecated_and_works():
    def kernel(out):
        counter, add_one = count_up()
        start, stop = nisa.register_alloc(0), nisa.register_alloc(512)
        for i in nl.dynamic_range(start, stop, 128):
            add_one()
            nisa.dma_copy(dst=out.ap([[1, 1], [1, 1]], scalar_offset=i), src=counter)
        for _ in nl.dynamic_range(2):
            add_one()
        nisa.dma_copy(dst=out[511:512], src=counter)

    out = np.zeros((512, 1), np.int32)
    with pytest.warns(DeprecationWarning, match=r"\[deprecated\] nl.dynamic_range"):
        simulate(kernel)(out)
    assert out[[0, 128, 256, 384, 511], 0].tolist() == [1, 2, 3, 4, 6]


def test_nested_loops_and_static_loops_inside():
    def kernel(out):
        counter, add_one = count_up()

        def outer(i):
            def inner(j):
                for _ in range(2):
                    add_one()

            nl.fori_loop(0, i, inner)
            nisa.dma_copy(dst=out.select(0, i), src=counter)

        nl.fori_loop(0, 4, outer)

    out = np.zeros((4, 1), np.int32)
    session = run(kernel, out)
    np.testing.assert_array_equal(out[:, 0], [0, 2, 6, 12])
    # One memset, the inner body's two additions, one copy.
    assert session.static_instructions == 4
    assert session.instructions == 1 + 2 * (0 + 1 + 2 + 3) + 4
    adds = [r.loop for r in session.trace if r.op == "tensor_scalar"][::2]
    assert adds == [
        ((1, 1), (2, 0)), ((1, 2), (2, 0)), ((1, 2), (2, 1)), ((1, 3), (2, 0)), ((1, 3), (2, 1)),
        ((1, 3), (2, 2)),
    ]  # fmt: skip


def test_a_session_counts_bodies_once():
    def kernel():
        t = tile((4, 4))

        def body(i):
            nisa.memset(t, 1.0)
            nisa.tensor_scalar(t, t, nl.add, 1.0)

        nl.fori_loop(0, 3, body)
        nl.fori_loop(0, 2, body)
        nisa.memset(t, 2.0)

    session = run(kernel)
    assert (session.instructions, session.static_instructions) == (12, 6)
    loops = [r.loop for r in session.trace]
    assert loops[0] == () and loops[-1] == ()
    assert loops[1:11] == [((1, i // 2),) for i in range(6)] + [((2, i // 2),) for i in range(4)]


def test_a_kernel_without_loops_counts_every_instruction():
    def kernel():
        for _ in range(3):
            tile((4, 4))

    session = run(kernel)
    assert (session.instructions, session.static_instructions) == (3, 3)


def test_shared_identity_may_be_made_in_a_body():
    def kernel(out):
        def body(i):
            eye = nl.shared_identity_matrix(4, dtype=nl.float32)
            nisa.dma_copy(dst=out, src=eye)

        nl.fori_loop(0, 3, body)
        nisa.dma_copy(dst=out, src=nl.shared_identity_matrix(4, dtype=nl.float32))

    out = np.zeros((4, 4), F)
    simulate(kernel)(out)
    np.testing.assert_array_equal(out, np.eye(4))


# What a body must do: the same in every iteration.


def loop_over(body, count=3):
    nl.fori_loop(0, count, body)


def constant(fixed):
    t, state = tile((4, 4)), [0.0]

    def body(i):
        state[0] += 0.0 if fixed else 1.0
        nisa.memset(t, state[0])  # rule

    loop_over(body)


def region(fixed):
    t, state = tile((4, 8)), [0]

    def body(i):
        state[0] += not fixed
        nisa.memset(t[:, state[0] : state[0] + 2], 0.0)  # rule

    loop_over(body)


def storage(fixed):
    tiles = [tile((4, 4)), tile((4, 4)), tile((4, 4))]

    def body(i):
        nisa.memset(tiles[0] if fixed else tiles.pop(), 0.0)  # rule

    loop_over(body)


def operation(fixed):
    t, ops = tile((4, 4)), [nl.add, nl.multiply, nl.add]

    def body(i):
        nisa.tensor_scalar(t, t, nl.add if fixed else ops.pop(), 1.0)  # rule

    loop_over(body)


def branch(fixed):
    t, state = tile((4, 4)), [0]

    def body(i):
        state[0] += 1
        if state[0] == 3 and not fixed:
            nisa.memset(t, 1.0)  # rule
        nisa.memset(t, 0.0)

    loop_over(body)


def fewer(fixed):
    t, state = tile((4, 4)), [0]

    def body(i):
        state[0] += 1
        nisa.memset(t, 0.0)
        if state[0] < 3 or fixed:
            nisa.memset(t, 1.0)

    nl.fori_loop(0, 3, body)  # rule


def more(fixed):
    t, state = tile((4, 4)), [0]

    def body(i):
        state[0] += 1
        nisa.memset(t, 0.0)
        if state[0] == 2 and not fixed:
            nisa.memset(t, 1.0)  # rule

    loop_over(body)


def allocation(fixed):
    widths = [8, 6, 4]

    def body(i):
        width = widths[0] if fixed else widths.pop()
        t = nl.ndarray((4, width), dtype=nl.float32)  # rule
        nisa.memset(t[:, 0:2], 0.0)

    loop_over(body)


def placement(fixed):
    addresses = [512, 256, 0]

    def body(i):
        byte = 0 if fixed else addresses.pop()
        nl.ndarray((4, 4), dtype=nl.float32, address=(0, byte))  # rule

    loop_over(body)


def inner_bound(fixed):
    t, state = tile((4, 4)), [0]

    def body(i):
        state[0] += not fixed
        nl.fori_loop(0, state[0] + 1, lambda j: nisa.memset(t, 0.0) and None)  # rule

    loop_over(body)


def dynamic_index(fixed):
    x, indices = tile((4, 8)), [tile((1, 1), nl.int32), tile((1, 1), nl.int32)]

    def body(i):
        nisa.memset(x.select(1, indices[0] if fixed else indices.pop()), 0.0)  # rule

    loop_over(body, 2)


def condition(fixed):
    turns = tile((1, 1), nl.int32, value=1)
    zero = tile((1, 1), nl.int32)
    made = []

    def body(r):
        other = nisa.register_alloc(1)
        nisa.register_load(other, turns)
        nisa.register_load(r, turns)
        nisa.tensor_copy(turns, zero)
        made.append(r)
        return r if fixed or len(made) == 1 else other

    nl.while_loop(nisa.register_alloc(1), body)  # rule


SAME = [constant, region, storage, operation, branch, fewer, more, allocation, placement,
        inner_bound, dynamic_index, condition]  # fmt: skip


@pytest.mark.parametrize("kernel", SAME)
def test_iterations_must_issue_the_same_instructions(kernel):
    error = pair("dynamic-loop-body", kernel, True, False)
    assert "iteration" in error.message and "first" in error.message


def test_the_message_says_what_differs():
    error = refused("dynamic-loop-body", lambda: constant(False))
    assert "value of nisa.memset" in error.message
    assert "is 2.0, in the first one 1.0" in error.message
    error = refused("dynamic-loop-body", lambda: region(False))
    assert "at offset 2" in error.message and "at offset 1" in error.message
    error = refused("dynamic-loop-body", lambda: branch(False))
    assert "tests/emulator/test_loops.py" in error.message


def test_names_may_differ():
    def kernel():
        t, numbers = tile((4, 4)), [0]

        def body(i):
            numbers.append(0)
            nisa.memset(t, 0.0, name=f"clear{len(numbers)}")

        nl.fori_loop(0, 3, body)

    simulate(kernel)()


# Scope: tensors, registers, dependencies.


def test_tensors_of_a_body_cannot_be_used_after_it():
    def kernel(keep):
        made = []
        t = tile((4, 4))

        def body(i):
            inside = tile((4, 4))
            made.append(inside if not keep else t)

        nl.fori_loop(0, 2, body)
        nisa.tensor_copy(t, made[-1])  # rule

    pair("dynamic-loop-scope", kernel, True, False)


def test_tensors_of_a_body_cannot_be_used_in_the_next_iteration():
    def kernel(carry):
        made = [tile((4, 4))]
        first = made[0]

        def body(i):
            inside = nl.ndarray((4, 4), dtype=nl.float32)
            nisa.tensor_copy(inside, made[-1] if carry else first)  # rule
            made.append(inside)

        nl.fori_loop(0, 2, body)

    pair("dynamic-loop-scope", kernel, False, True)


def test_a_dynamic_view_cannot_take_an_index_out_of_its_loop():
    def kernel(carry):
        x, made = tile((4, 8)), []
        outside = tile((1, 1), nl.int32)

        def body(i):
            inside = tile((1, 1), nl.int32)
            made.append(x.select(1, inside if carry else outside))

        nl.fori_loop(0, 1, body)
        nisa.memset(made[0], 1.0)  # rule

    pair("dynamic-loop-scope", kernel, False, True)


def test_a_tensor_of_a_body_cannot_be_returned():
    def kernel(inside):
        made = [nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)]
        nisa.dma_copy(dst=made[0], src=tile((4, 4)))

        def body(i):
            out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=tile((4, 4)))
            if inside:
                made.append(out)

        nl.fori_loop(0, 1, body)
        return made[-1]

    pair("dynamic-loop-scope", kernel, False, True, line=None)


def test_registers_carry_nothing_between_iterations():
    def kernel(carry):
        r, t = nisa.register_alloc(0), tile((1, 1), nl.int32)

        def body(i):
            if not carry:
                nisa.register_load(r, t)
            nisa.register_store(t, r)  # rule
            nisa.register_load(r, t)

        nl.fori_loop(0, 2, body)

    pair("register-carried", kernel, False, True)


def test_registers_carry_nothing_out_of_a_loop():
    def kernel(carry):
        r, t = nisa.register_alloc(0), tile((1, 1), nl.int32)
        nl.fori_loop(0, 2, lambda i: nisa.register_load(r, t) and None)
        if not carry:
            nisa.register_load(r, t)
        nisa.register_store(t, r)  # rule

    pair("register-carried", kernel, False, True)


def test_registers_of_a_body_cannot_be_used_after_it():
    def kernel(inside):
        made, t = [nisa.register_alloc(0)], tile((1, 1), nl.int32)
        nl.fori_loop(0, 1, lambda i: inside and made.append(nisa.register_alloc(0)) or None)
        nisa.register_store(t, made[-1])  # rule

    pair("dynamic-loop-scope", kernel, False, True)


def test_the_register_of_a_counted_loop_cannot_be_written():
    def kernel(write):
        def body(i):
            r = nisa.register_alloc(0)
            nisa.register_move(i if write else r, 3)  # rule

        nl.fori_loop(0, 2, body)

    pair("register-frozen", kernel, False, True)


def test_dependencies_do_not_cross_a_loop():
    def into(cross):
        t = tile((4, 4))
        before = nisa.memset(t, 0.0)

        def body(i):
            first = nisa.memset(t, 1.0)
            nisa.memset(t, 2.0).depends_on(before if cross else first)  # rule

        nl.fori_loop(0, 2, body)

    def out_of(cross):
        t, inside = tile((4, 4)), []
        nl.fori_loop(0, 1, lambda i: inside.append(nisa.memset(t, 1.0)))
        before = nisa.memset(t, 0.0)
        nisa.memset(t, 2.0).depends_on(inside[0] if cross else before)  # rule

    def between_iterations(cross):
        t, inside = tile((4, 4)), []

        def body(i):
            inside.append(nisa.memset(t, 1.0))
            nisa.memset(t, 2.0).depends_on(inside[0 if cross else -1])  # rule

        nl.fori_loop(0, 2, body)

    for kernel in (into, out_of, between_iterations):
        pair("depends-on-loop", kernel, False, True)


# Arguments and results.


def test_results_of_bodies():
    def fori(result):
        nl.fori_loop(0, 2, lambda i: result)  # rule

    def conditional(result):
        zero = nisa.register_alloc(0)
        nl.while_loop(nisa.register_alloc(1), lambda r: result or zero)  # rule

    pair("fori-body-result", fori, None, 1)
    pair("fori-body-result", fori, None, False)
    pair("while-body-result", conditional, None, 1)

    def forgotten():
        nl.while_loop(nisa.register_alloc(1), lambda r: None)  # rule

    refused("while-body-result", forgotten)


def test_arguments_of_loops():
    def fori(step):
        nl.fori_loop(0, 4, lambda i: None, step)  # rule

    def ranged(step):
        for _ in nl.dynamic_range(0, 4, step):  # rule
            pass

    def condition(init):
        zero = nisa.register_alloc(0)
        nl.while_loop(init or zero, lambda r: zero)  # rule

    def function(body):
        nl.fori_loop(0, 0, body)  # rule

    def bound(upper):
        nl.fori_loop(0, upper, lambda i: None)  # rule

    for bad in (0, -1, 1.0, True):
        pair("dynamic-loop-step", fori, 2, bad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pair("dynamic-loop-step", ranged, 1, 0)

    def register_step():
        nl.fori_loop(0, 4, lambda i: None, nisa.register_alloc(1))  # rule

    refused("dynamic-loop-step", register_step)
    pair("while-condition", condition, None, 3)
    pair("dynamic-loop-function", function, len, 3)
    pair("operand-type", bound, 1, 1.0)
    pair("operand-type", bound, 1, None)


def test_no_dynamic_loop_in_a_no_reorder_region():
    def fori(inside):
        t = tile((4, 4))

        def body(i):
            with nl.no_reorder():
                nisa.memset(t, 1.0)

        if inside:
            with nl.no_reorder():
                helper(body)
        helper(body)

    def helper(body):
        nl.fori_loop(0, 2, body)  # rule

    def conditional(inside):
        region, r = nl.no_reorder(), nisa.register_alloc(0)
        if inside:
            region.__enter__()
        nl.while_loop(r, lambda r: r)  # rule

    def ranged(inside):
        with nl.no_reorder():
            for _ in nl.affine_range(2):
                pass
            if inside:
                for _ in nl.dynamic_range(2):  # rule
                    pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for kernel in (fori, conditional, ranged):
            pair("no-reorder-loop", kernel, False, True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_loop_cannot_be_left_in_the_middle():
    def by_break(leave, more):
        t = tile((4, 4))
        for _ in nl.dynamic_range(3):
            nisa.memset(t, 1.0)
            if leave:
                break  # rule
        if more:
            nisa.memset(t, 1.0)

    def by_return(leave, more):
        t = tile((4, 4))
        for _ in nl.dynamic_range(3):
            nisa.memset(t, 1.0)
            if leave:
                return  # rule

    for kernel in (by_break, by_return):
        for more in (False, True):
            pair("dynamic-loop-break", kernel, (False, more), (True, more))

    def then_a_loop():
        for _ in nl.dynamic_range(3):
            break  # rule
        nl.fori_loop(0, 1, lambda i: None)

    refused("dynamic-loop-break", then_a_loop)


def test_endless_loops_are_stopped(monkeypatch):
    def conditional(endless):
        one, zero = tile((1, 1), nl.int32, value=1), tile((1, 1), nl.int32)

        def body(r):
            nisa.register_load(r, one if endless else zero)
            return r

        nl.while_loop(nisa.register_alloc(1), body)  # rule

    def counted(count):
        nl.fori_loop(0, count, lambda i: None)  # rule

    assert nki_emulator.loops.MAX_ITERATIONS == 100_000
    monkeypatch.setattr(nki_emulator.loops, "MAX_ITERATIONS", 50)
    pair("dynamic-loop-endless", conditional, False, True)
    pair("dynamic-loop-endless", counted, 50, 51)


def test_errors_in_a_body_show_the_loop():
    def kernel():
        def body(i):
            nl.ndarray((4, 4), dtype=nl.float32)[:, 4]  # rule

        nl.fori_loop(0, 2, body)

    error = refused("out-of-bounds", kernel)
    assert [line.function for line in error.chain][:2] == ["body", "kernel"]
