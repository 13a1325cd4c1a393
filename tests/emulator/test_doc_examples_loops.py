"""deep-dives/nki-dynamic-loops.rst, the migration guide on loops, and the stubs of registers."""

import warnings

from nki_emulator import record

from .support import (
    load,
    nisa,
    nki,
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
    warned,
)  # fmt: skip


def rows_of(tensor, index, width):
    return tensor.ap([[width, 2], [1, width]], scalar_offset=index)


def in_each_style(kernel):
    """The kernel with ``loop(start, stop, step, body)`` as nl.dynamic_range and as nl.fori_loop."""

    def ranged(start, stop, step, body):
        for i in nl.dynamic_range(start, stop, step):
            body(i)

    def structured(start, stop, step, body):
        nl.fori_loop(start, stop, body, step)

    return lambda *arguments: (kernel(ranged, *arguments), kernel(structured, *arguments))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("bounds", ["integers", "registers", "loaded"])
def test_a_loop_over_rows(bounds):
    """Section "Examples": constant bounds, registers, and a bound loaded from a tensor."""

    @nki.jit
    def kernel(style, x, stop):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile(x.shape))
        first, last = 0, 6
        if bounds != "integers":
            first, last = nisa.register_alloc(0), nisa.register_alloc(6)
        if bounds == "loaded":
            nisa.register_load(last, load(stop))

        def body(i):
            rows = nl.ndarray((2, 4), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=rows, src=rows_of(x, i, 4))
            nisa.tensor_scalar(dst=rows, data=rows, op0=nl.add, operand0=2.0)
            nisa.dma_copy(dst=rows_of(out, i, 4), src=rows)

        style(first, last, 2, body)
        return out

    x = values((6, 4))
    stop = np.array([[4]], np.int32)
    expected = x + 2
    if bounds == "loaded":
        expected[4:] = 0
    for result in in_each_style(kernel)(x, stop):
        same_bits(result, expected)


def test_the_body_exists_once():
    """Section "Hardware Lowering": the artifact does not grow with the trip count."""

    def kernel(style, count):
        t = tile((2, 2))

        def body(i):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)

        if style == "dynamic":
            nl.fori_loop(0, count, body)
        else:
            for i in range(count):
                body(i)

    def sizes(style):
        sessions = [record(kernel)(style, count)[1] for count in (3, 30)]
        return [session.static_instructions for session in sessions]

    assert sizes("dynamic")[0] == sizes("dynamic")[1]
    assert sizes("unrolled")[1] == sizes("unrolled")[0] + 27


def test_one_argument_is_the_stop():
    """Section "Parameter Constraints": as in range, start is 0."""

    def kernel():
        counter = tile((1, 1), nl.int32)
        for i in nl.dynamic_range(3):
            nisa.register_store(counter, i)
        return save(counter)

    with pytest.warns(DeprecationWarning):
        assert simulate(kernel)().item() == 2


def test_a_step_is_a_positive_integer():
    """Section "Parameter Constraints", and "Rules for migrated loops"."""

    def kernel(step):
        t = tile((1, 1))

        def body(i):
            nisa.memset(dst=t, value=1.0)

        step = nisa.register_alloc(1) if step is None else step
        nl.fori_loop(0, 4, body, step)  # rule

    for bad in (None, 0, -1, 1.0):
        pair("dynamic-loop-step", kernel, (2,), (bad,))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_loop_variable_is_no_python_number():
    """Section "Hardware Lowering": it cannot be used in host-side expressions."""

    def kernel(use):
        t = tile((1, 1), nl.int32)
        for i in nl.dynamic_range(2):
            if use == "register_store":
                nisa.register_store(t, i)
            elif use == "condition":
                assert not i  # rule
            elif use == "sum":
                i + 1  # rule
            else:
                range(i)  # rule

    simulate(kernel)("register_store")
    for use, rule in (
        ("condition", "register-condition"), ("sum", "register-arithmetic"),
        ("range", "register-conversion"),
    ):  # fmt: skip
        assert isinstance(refused(rule, kernel, use), TypeError)


def test_the_loop_variable_is_read_only():
    """nki-language-guide.rst, "Dynamic Control Flow": the induction variable is frozen."""

    def kernel(write):
        def body(i):
            own = nisa.register_alloc()
            nisa.register_move(i if write else own, 3)  # rule

        nl.fori_loop(0, 2, body)

    pair("register-frozen", kernel, False, True)


def test_no_dynamic_loop_in_a_no_reorder_region_but_around_it():
    """Section "Interaction with no_reorder", with the way around it."""

    def kernel(inside):
        t = tile((1, 1))

        def body(i):
            with nl.no_reorder():
                nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)

        if not inside:
            nl.fori_loop(0, 2, body)
            return save(t)
        with nl.no_reorder():
            nl.fori_loop(0, 2, body)  # rule

    pair("no-reorder-loop", kernel, False, True)
    assert simulate(kernel)(False).item() == 2


def test_static_loops_in_a_no_reorder_region():
    """Section "Interaction with no_reorder": the unrolled ranges are permitted."""

    def kernel(function):
        t = tile((1, 1))
        with nl.no_reorder():
            for _ in function(3):  # rule
                nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        return save(t)

    for function in (nl.affine_range, nl.sequential_range, nl.static_range):
        assert warned("deprecated", kernel, range, function).item() == 3


@pytest.mark.parametrize("start", [0, 1, 4])
def test_a_loop_with_a_condition(start):
    """Migration guide, 0.5 to 0.6, pattern 2: a true while, its state in SBUF."""

    @nki.jit
    def kernel(x, count):
        value, total = load(x), tile((1, 1))
        left, one = load(count), tile((1, 1), nl.int32, value=1)
        condition = nisa.register_alloc()
        nisa.register_load(condition, left)

        def body(register):
            nisa.tensor_tensor(dst=total, data1=total, data2=value, op=nl.add)
            nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
            nisa.register_load(register, left)
            return register

        nl.while_loop(condition, body)
        return save(total)

    x = np.array([[2.5]], np.float32)
    same_bits(kernel(x, np.array([[start]], np.int32)), x * np.float32(start))


def test_the_body_sees_the_condition():
    """Stub of while_loop: the condition can be stored and used as an offset."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile(x.shape))
        left = tile((1, 1), nl.int32)

        def body(register):
            part = nl.ndarray((1, 1), dtype=x.dtype)
            nisa.dma_copy(
                dst=part, src=x.ap([[1, 1], [1, 1]], scalar_offset=register, indirect_dim=1)
            )
            nisa.dma_copy(
                dst=out.ap([[1, 1], [1, 1]], scalar_offset=register, indirect_dim=1), src=part
            )
            nisa.register_store(left, register)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.add, operand0=-1.0)
            nisa.register_load(register, left)
            return register

        nl.while_loop(nisa.register_alloc(3), body)
        return out

    x = values((1, 5))
    expected = np.where((np.arange(5) >= 1) & (np.arange(5) <= 3), x, 0).astype(np.float32)
    same_bits(kernel(x), expected)


def test_a_counted_loop_is_a_range():
    """Stub of fori_loop: ``for i in range(lower, upper, step)``; nothing runs when it is empty."""

    @nki.jit
    def kernel(lower, upper, step):
        seen = tile((1, 16), nl.int32)

        def body(i):
            nisa.register_store(seen.ap([[16, 1], [1, 1]], scalar_offset=i, indirect_dim=1), i)

        nl.fori_loop(lower, upper, body, step)
        return save(seen)

    for bounds in ((0, 5, 1), (2, 12, 3), (4, 4, 1), (5, 2, 1)):
        expected = np.zeros((1, 16), np.int32)
        for i in range(*bounds):
            expected[0, i] = i
        same_bits(kernel(*bounds), expected)


def test_what_bodies_return():
    """ "Rules for migrated loops": nothing from fori_loop, the condition from while_loop."""

    def counted(result):
        nl.fori_loop(0, 1, lambda i: result)  # rule

    pair("fori-body-result", counted, (None,), (1,))

    def conditional(wrong):
        def body(register):
            zero = nisa.register_alloc(0)
            return None if wrong else zero

        nl.while_loop(nisa.register_alloc(1), body)  # rule

    pair("while-body-result", conditional, False, True)


def test_tensors_of_a_body_stay_in_it():
    """ "Rules for migrated loops": what is used outside is declared outside."""

    def kernel(outside):
        kept = []
        before = tile((2, 2))

        def body(i):
            own = nl.ndarray((2, 2), dtype=nl.float32)
            nisa.memset(dst=own, value=1.0)
            nisa.tensor_copy(dst=before, src=own)
            kept[:] = [before if outside else own]

        nl.fori_loop(0, 2, body)
        return save(kept[0])  # rule

    simulate(kernel)(True)
    refused("dynamic-loop-scope", kernel, False, line=None)


def test_the_old_loops_warn():
    """Migration guide, 0.5 to 0.6: dynamic_range is deprecated; fori_loop is not."""

    def kernel(old):
        t = tile((1, 1))
        if old:
            for _ in nl.dynamic_range(1):  # rule
                nisa.memset(dst=t, value=1.0)
        else:
            nl.fori_loop(0, 1, lambda i: nisa.memset(dst=t, value=1.0) and None)

    warned("deprecated", kernel, False, True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nested_loops():
    """A fori_loop in a fori_loop, state in SBUF: the body of each runs on the device."""

    @nki.jit
    def kernel():
        t = tile((1, 1))

        def inner(j):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 3, lambda i: nl.fori_loop(0, 4, inner))
        return save(t)

    assert kernel().item() == 12


def test_a_while_on_a_register():
    """Section "Using while with a VirtualRegister": deprecated, and a TypeError when traced.

    The note in the stub of VirtualRegister leaves it to the parsing front-end; a kernel that has to
    work with both calls nl.while_loop.
    """

    def kernel(structured):
        t, condition = tile((1, 1), nl.int32), nisa.register_alloc(1)

        def body(register):
            nisa.register_load(register, t)
            return register

        if structured:
            nl.while_loop(condition, body)
        else:
            while condition:  # rule
                condition = body(condition)

    assert isinstance(pair("register-condition", kernel, True, False), TypeError)


# Registers: the stubs of register_alloc, register_move, register_load, register_store.


def test_three_ways_to_a_register():
    """Examples of register_alloc and register_move: immediate, from a tensor, from a register."""

    @nki.jit
    def kernel():
        first = nisa.register_alloc(10)
        second = nisa.register_alloc(None)
        nisa.register_load(second, nl.zeros([1, 1], dtype=nl.int32, buffer=nl.sbuf))
        third = nisa.register_alloc()
        nisa.register_move(third, -7)
        fourth = nisa.register_alloc()
        nisa.register_move(fourth, third)
        results = []
        for register in (first, second, third, fourth):
            t = nl.ndarray([1, 1], dtype=nl.int32, buffer=nl.sbuf)
            nisa.register_store(t, register)
            results.append(save(t))
        return tuple(results)

    assert [result.item() for result in kernel()] == [10, 0, -7, -7]


def test_registers_hold_one_element_and_live_outside_psum():
    """Stubs of register_load and register_store: shape [1] or [1, 1], SBUF or HBM."""

    def kernel(shape, buffer):
        t = nl.ndarray(shape, dtype=nl.int32, buffer=buffer)
        if buffer == nl.shared_hbm:
            nisa.dma_copy(dst=t, src=tile((1, t.size), nl.int32))
        else:
            nisa.memset(dst=t, value=0)
        nisa.register_load(nisa.register_alloc(), t)  # rule

    pair("register-shape", kernel, ((1,), nl.shared_hbm), ((2,), nl.shared_hbm))
    pair("register-shape", kernel, ((1, 1), nl.sbuf), ((1, 2), nl.sbuf))
    pair("register-psum", kernel, ((1, 1), nl.sbuf), ((1, 1), nl.psum))


def test_a_tile_of_one_dimension():
    """The stub of register_store makes one in SBUF; the language guide says there is none.

    nki-language-guide.rst, "View primitives": SBUF and PSUM tensors are always at least 2-D.
    """

    def kernel(shape):
        nisa.register_store(nl.ndarray(shape, dtype=nl.int32), nisa.register_alloc(1))  # rule

    pair("rank", kernel, ((1, 1),), ((1,),))


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "float32"]
)
def test_register_dtypes(dtype):
    """nki-language-guide.rst, "Dynamic Control Flow": u8 to u32, i8 to i32 and fp32."""

    @nki.jit
    def kernel(x):
        register = nisa.register_alloc()
        nisa.register_load(register, x)
        t = nl.ndarray((1, 1), dtype=dtype)
        nisa.register_store(t, register)
        return save(t)

    x = values((1, 1), dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same_bits(kernel(x), x)
