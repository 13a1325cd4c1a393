"""Registers: what they hold, how they reach memory, and what Python may not do with them."""

from nki_emulator.registers import HIGHEST, LOWEST, NkiRegisterError

from .support import NUMPY, nisa, nl, np, pair, pytest, refused, save, simulate, tile

INTEGERS = ["int8", "int16", "int32", "uint8", "uint16", "uint32"]


def stored(register, dtype=nl.int32):
    """A register in a new HBM tensor (inside a kernel)."""
    out = nl.ndarray((1, 1), dtype=dtype, buffer=nl.shared_hbm)
    nisa.register_store(out, register)
    return out


@pytest.mark.parametrize("dtype", [*INTEGERS, "float32"])
@pytest.mark.parametrize("shape", [(1,), (1, 1)])
@pytest.mark.parametrize("on_chip", [False, True])
def test_load_and_store(dtype, shape, on_chip):
    limits = np.iinfo(NUMPY[dtype]) if dtype != "float32" else None
    numbers = [limits.min, limits.max, 7] if limits else [-1.5, 3.25, 0.0]

    def kernel(x):
        out = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)
        r = nisa.register_alloc()
        if on_chip and len(shape) == 2:
            t, back = (nl.ndarray(shape, dtype=dtype) for _ in range(2))
            nisa.dma_copy(dst=t, src=x)
            nisa.register_load(r, t)
            nisa.register_store(back, r)
            nisa.dma_copy(dst=out, src=back)
        else:
            nisa.register_load(r, x)
            nisa.register_store(out, r)
        return out

    for number in numbers:
        x = np.full(shape, number, NUMPY[dtype])
        np.testing.assert_array_equal(simulate(kernel)(x), x)


def test_alloc_and_move():
    def kernel():
        a, b = nisa.register_alloc(5), nisa.register_alloc(x=None)
        nisa.register_move(b, a)
        nisa.register_move(a, -7)
        assert isinstance(a, nisa.VirtualRegister)
        return stored(a), stored(b)

    a, b = simulate(kernel)()
    assert (a.item(), b.item()) == (-7, 5)


def test_a_store_may_narrow_if_the_value_fits():
    def kernel(value):
        r = nisa.register_alloc(value)
        t = nl.ndarray((1, 1), dtype=nl.uint8)
        nisa.register_store(t, r)  # rule
        return save(t)

    pair("register-range", kernel, 255, 256)
    pair("register-range", kernel, 0, -1)


def test_immediates_have_32_bits():
    def kernel(value, more=0):
        nisa.register_alloc(value + more if more else value)  # rule

    pair("register-range", kernel, HIGHEST, (HIGHEST, 1))
    pair("register-range", kernel, LOWEST, (LOWEST, -1))
    pair("register-immediate", kernel, None, 1.0)
    pair("register-immediate", kernel, 1, True)

    def move(value):
        nisa.register_move(nisa.register_alloc(), value)  # rule

    pair("register-immediate", move, 3, "3")


def test_printing_shows_the_value(capsys):
    def kernel():
        print(nisa.register_alloc(5), nisa.register_alloc())

    simulate(kernel)()
    assert capsys.readouterr().out == "VirtualRegister(5) VirtualRegister(unwritten)\n"


def python(use):
    r = nisa.register_alloc(1)
    use(r)  # rule


PYTHON = [
    ("register-condition", lambda r: bool(r)),
    ("register-condition", lambda r: not r),
    ("register-arithmetic", lambda r: r + 1),
    ("register-arithmetic", lambda r: 2 * r),
    ("register-arithmetic", lambda r: -r),
    ("register-arithmetic", lambda r: r < 3),
    ("register-arithmetic", lambda r: r == 3),
    ("register-arithmetic", lambda r: nl.ds(r, 8) and r // 2),
    ("register-conversion", lambda r: int(r)),
    ("register-conversion", lambda r: range(r)),
    ("register-conversion", lambda r: [1, 2, 3][r]),
    ("register-conversion", lambda r: tile((4, 4))[:, r]),
    ("register-conversion", lambda r: float(r)),
]


@pytest.mark.parametrize("rule, use", PYTHON)
def test_python_has_no_value_of_a_register(rule, use):
    error = pair(rule, python, (lambda r: (r != None, r is r),), (use,), line=use)  # noqa: E711
    assert isinstance(error, NkiRegisterError) and isinstance(error, TypeError)


def test_if_and_while_on_a_register_are_refused():
    def branch():
        r = nisa.register_alloc(1)
        if r:  # rule
            nisa.register_move(r, 0)

    def loop():
        r = nisa.register_alloc(1)
        while r:  # rule
            nisa.register_move(r, 0)

    refused("register-condition", branch)
    error = refused("register-condition", loop)
    assert "nl.while_loop" in str(error)


def test_operands():
    def load(dst, shape, dtype, buffer):
        r = nisa.register_alloc() if dst is None else dst
        src = nl.ndarray(shape, dtype=dtype, buffer=buffer)
        if buffer is not nl.shared_hbm:
            nisa.memset(src, 0)
        else:
            nisa.register_store(src, nisa.register_alloc(0))
        nisa.register_load(r, src)  # rule

    good = (None, (1, 1), nl.int32, nl.sbuf)
    pair("register-psum", load, good, (None, (1, 1), nl.int32, nl.psum))
    pair("register-shape", load, good, (None, (1, 2), nl.int32, nl.sbuf))
    pair("register-shape", load, good, (None, (1, 1, 1), nl.int32, nl.sbuf))
    pair("register-operand", load, good, (3, (1, 1), nl.int32, nl.sbuf))

    def load_as(dtype):
        t = nl.ndarray((1, 1), dtype=dtype)
        nisa.memset(t, 0.0)
        nisa.register_load(nisa.register_alloc(), t)  # rule

    pair("register-dtype", load_as, "float32", "bfloat16")

    def store(register, dtype):
        t = nl.ndarray((1, 1), dtype=dtype)
        nisa.register_store(t, nisa.register_alloc(1) if register else 1)  # rule

    pair("register-operand", store, (True, nl.int32), (False, nl.int32))
    pair("register-dtype", store, (True, nl.int32), (True, nl.float32))


def test_a_register_loaded_from_float32_is_no_integer():
    def kernel(dtype):
        t = nl.ndarray((1, 1), dtype=dtype)
        nisa.memset(t, 1 if dtype == nl.int32 else 1.0)
        r = nisa.register_alloc()
        nisa.register_load(r, t)
        nl.fori_loop(0, r, lambda i: None)  # rule

    pair("register-float", kernel, nl.int32, nl.float32)


def test_an_unwritten_register_cannot_be_read():
    def kernel(value):
        r = nisa.register_alloc(value)
        stored(r)

    error = pair("register-unwritten", kernel, 0, None, line=None)
    assert error.instruction == "register_store"


def test_an_unwritten_element_cannot_be_loaded():
    def kernel(write):
        t = nl.ndarray((1, 1), dtype=nl.int32)
        if write:
            nisa.memset(t, 1)
        nisa.register_load(nisa.register_alloc(), t)  # rule

    pair("uninitialized-read", kernel, True, False)


def test_registers_are_instructions_in_the_trace():
    from nki_emulator.kernel import record

    def kernel(x):
        r = nisa.register_alloc(1)
        nisa.register_load(r, x)
        nisa.register_move(r, 2)
        nisa.register_store(x, r)

    _, session = record(kernel)(np.zeros((1, 1), np.int32))
    session = session[0] if isinstance(session, list) else session
    assert [r.op for r in session.trace] == ["register_load", "register_move", "register_store"]
    assert {r.engine for r in session.trace} == {"sequencer"}
