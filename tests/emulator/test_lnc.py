"""An LNC 2 launch: two programs on one shared HBM that meet in core_barrier and sendrecv."""

import contextvars
import signal
import threading
import warnings

from nki_emulator import NkiError, NkiUninitializedRead, record

from .support import load, ml_dtypes, nisa, nki, nl, np, pair, pytest, refused, simulate, tile

BOTH = (0, 1)


def two(kernel):
    """The kernel for two cores."""
    return nki.jit(kernel)[2]


def me():
    return nl.program_id(axis=0)


def shared(shape=(4, 8), dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def exchange(src, dst, **keywords):
    other = 1 - me()
    options = {"send_to_rank": other, "recv_from_rank": other, "pipe_id": 0, **keywords}
    nisa.sendrecv(src=src, dst=dst, **options)  # rule


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert [t.name for t in threading.enumerate() if t.name.startswith("nki-")] == []


X = np.arange(32, dtype=np.float32).reshape(4, 8)


# Each program does its part.


def halves(x):
    out = shared(x.shape, x.dtype)
    rows = x.shape[0] // nl.num_programs(axes=0)
    first = me() * rows
    nisa.dma_copy(dst=out[first : first + rows, :], src=load(x[first : first + rows, :]))
    return out


def test_each_program_writes_its_part():
    assert np.array_equal(two(halves)(X), X)
    assert np.array_equal(nki.jit(halves)[1](X), X)


def test_program_identity():
    seen = []

    def kernel():
        seen.append((nl.program_id(0), nl.num_programs(), nl.program_ndim()))

    two(kernel)()
    assert seen == [(0, 2, 1), (1, 2, 1)]


def test_a_part_that_no_program_writes_is_an_error():
    def kernel(x, rows):
        out = shared(x.shape)
        if me() == 0:
            nisa.dma_copy(dst=out[0:rows, :], src=load(x[0:rows, :]))
        return out

    error = pair("return-unwritten", two(kernel), (X, 4), (X, 2), line=None)
    assert isinstance(error, NkiUninitializedRead)


def test_arguments_are_in_shared_hbm_and_change_for_the_caller():
    def kernel(x, options):
        assert x.buffer == nl.shared_hbm and options["y"].buffer == nl.shared_hbm
        row = x[2 * me() : 2 * me() + 2, :]
        t = load(row)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=row, src=t)
        return x

    x = X.copy()
    assert two(kernel)(x, {"y": X}) is x
    assert np.array_equal(x, X + 1)


def test_containers_of_arguments_are_not_shared_between_the_programs():
    class Options(nl.NKIObject):
        count: int = 0

    seen = []

    def kernel(options, table):
        options.count += 1
        table["calls"] += 1
        seen.append((options.count, table["calls"]))

    options = Options()
    two(kernel)(options, {"calls": 0})
    assert seen == [(1, 1), (1, 1)] and options.count == 0


# core_barrier.


def through_hbm(x, barrier=True):
    """Each core writes half of a tensor and both read all of it."""
    both, out = shared(), shared((8, 8))
    rows = slice(2 * me(), 2 * me() + 2)
    nisa.dma_copy(dst=both[rows, :], src=load(x[rows, :]))
    if barrier:
        nisa.core_barrier(data=both, cores=BOTH)
    t = load(both)  # reads both halves
    nisa.dma_copy(dst=out[4 * me() : 4 * me() + 4, :], src=t)
    return out


def test_after_a_barrier_each_core_sees_what_the_other_wrote():
    assert np.array_equal(two(through_hbm)(X), np.concatenate([X, X]))


def test_reading_too_early_is_not_hidden_by_the_order_of_the_emulator():
    """Program 0 comes first here, so what it would read has not been written yet."""
    error = refused("uninitialized-read", two(through_hbm), X, False, line=None)
    assert "nisa.core_barrier" in str(error)


def test_programs_take_turns_deterministically():
    for _ in range(3):
        order = []

        def kernel():
            data = shared()
            for step in range(3):
                order.append((step, me()))  # noqa: B023
                nisa.core_barrier(data, BOTH)

        two(kernel)()
        assert order == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("engine", ["gpsimd", "vector", "scalar", "tensor", "sync"])
def test_a_barrier_is_traced_on_its_engine(engine):
    def kernel():
        nisa.core_barrier(shared(), BOTH, engine=nisa.engine[engine], name="wait")

    _, session = record(two(kernel))()
    row = session.trace[0]
    assert (row.op, row.engine, row.name, row.writes) == ("core_barrier", engine, "wait", ())


def barrier(how):
    out = shared()
    data, cores, engine = out, BOTH, nisa.engine.gpsimd
    if how in ("sbuf", "hbm"):
        data = tile((4, 8)) if how == "sbuf" else nl.ndarray((4, 8), nl.float32, buffer=nl.hbm)
    elif how == "not a tensor":
        data = 3
    elif how == "dma":
        engine = nisa.engine.dma
    elif how == "unknown":
        engine = nisa.engine.unknown
    elif how == "list":
        cores = [0, 1]
    elif how != "right":
        cores = how
    nisa.core_barrier(data, cores, engine)  # rule


@pytest.mark.parametrize(
    "rule, bad",
    [
        ("barrier-data", "sbuf"), ("barrier-data", "hbm"), ("operand-type", "not a tensor"),
        ("barrier-cores", (0,)), ("barrier-cores", (1, 0)), ("barrier-cores", (0, 1, 2)),
        ("barrier-cores", 0), ("enum", "dma"), ("enum", "unknown"),
    ],
)  # fmt: skip
def test_barrier_rules(rule, bad):
    pair(rule, two(barrier), "right", (bad,))


def test_cores_may_be_a_list():
    simulate(two(barrier))("list")


# sendrecv.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float8_e5m2", "uint32"])
@pytest.mark.parametrize("carrier", ["dma", "gpsimd_dma"])
def test_tiles_are_exchanged_bit_for_bit(dtype, carrier):
    numpy = {"bfloat16": ml_dtypes.bfloat16, "float8_e5m2": ml_dtypes.float8_e5m2}.get(dtype, dtype)
    x = np.random.default_rng(3).integers(0, 100, (2, 5, 12)).astype(numpy)

    def kernel(x):
        got, out = nl.ndarray((5, 12), dtype=x.dtype), shared((2, 5, 12), x.dtype)
        exchange(load(x[me()]), got, dma_engine=nisa.dma_engine[carrier])
        nisa.dma_copy(dst=out[me()], src=got)
        return out

    got = two(kernel)(x)
    assert got.dtype == x.dtype and np.array_equal(got.view(np.uint8), x[::-1].view(np.uint8))


def test_strided_views_are_exchanged():
    """A slice of a wider tile, every second column, partitions that start anywhere."""

    def kernel(x):
        wide, out = nl.ndarray((16, 16), dtype=nl.float32), shared((2, 4, 4))
        nisa.memset(wide, value=-1.0)
        part = load(x)
        nisa.tensor_scalar(dst=part, data=part, op0=nl.add, operand0=100.0 * me())
        exchange(part[:, 0::2], wide[5:9, 3:7], name="swap")
        got = nl.ndarray((16, 16), dtype=nl.float32)
        nisa.tensor_copy(dst=got, src=wide)
        assert (np.delete(got.array, np.s_[5:9], 0) == -1).all()
        nisa.dma_copy(dst=out[me()], src=got[5:9, 3:7])
        return out

    got = two(kernel)(X)
    assert np.array_equal(got, np.stack([X[:, 0::2] + 100, X[:, 0::2]]))


def test_what_is_sent_is_the_content_at_the_time():
    def kernel():
        t, got, out = tile((2, 2), value=1.0 + me()), nl.ndarray((2, 2), nl.float32), shared((2, 2))
        exchange(t, got)
        nisa.memset(t, value=9.0)
        if me() == 1:
            nisa.dma_copy(dst=out, src=got)
        return out

    assert (two(kernel)() == 1).all()


def test_an_exchange_is_traced():
    def kernel():
        exchange(tile((2, 4)), nl.ndarray((2, 4), nl.float32), pipe_id=5, name="swap")

    _, session = record(two(kernel))()
    row = session.trace[-1]
    assert (row.op, row.engine, row.name, row.details) == ("sendrecv", "dma", "swap", {"pipe": 5})
    assert row.bytes == 32 and session.counts["sendrecv"] == 1


def send(how):
    """sendrecv with one thing changed, the same on both cores."""
    other = 1 - me()
    src, dst = tile((4, 8)), nl.ndarray((4, 8), dtype=nl.float32)
    options = {"send_to_rank": other, "recv_from_rank": other, "pipe_id": 0}
    if how == "psum src":
        src = tile((4, 8), buffer=nl.psum)
    elif how == "psum dst":
        dst = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.psum)
    elif how == "hbm dst":
        dst = shared()
    elif how == "dtype":
        dst = nl.ndarray((4, 8), dtype=nl.int32)
    elif how == "columns":
        dst = nl.ndarray((4, 7), dtype=nl.float32)
    elif how == "partitions":
        dst = nl.ndarray((3, 8), dtype=nl.float32)
    elif how == "rank of the shape":
        dst = nl.ndarray((4, 2, 4), dtype=nl.float32)
    elif how == "overlap":
        src, dst = src[:, 0:5], src[:, 3:8]
    elif how == "side by side":
        src, dst = src[:, 0:4], src[:, 4:8]
    elif how == "interleaved":
        src, dst = src[:, 0::2], src[:, 1::2]
    elif how == "unwritten":
        src = nl.ndarray((4, 8), dtype=nl.float32)
    elif how == "not a tensor":
        src = 1.0
    elif isinstance(how, dict):
        options |= {key: value(me()) if callable(value) else value for key, value in how.items()}
    nisa.sendrecv(src=src, dst=dst, **options)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-sbuf", "right", "psum src"), ("buffer-sbuf", "right", "psum dst"),
        ("buffer-sbuf", "right", "hbm dst"), ("operand-type", "right", "not a tensor"),
        ("same-dtype", "right", "dtype"), ("sendrecv-shape", "right", "columns"),
        ("sendrecv-shape", "right", "partitions"), ("sendrecv-shape", "right", "rank of the shape"),
        ("sendrecv-overlap", "side by side", "overlap"),
        ("sendrecv-overlap", "interleaved", "overlap"),
        ("uninitialized-read", "right", "unwritten"),
        ("sendrecv-rank", "right", {"send_to_rank": lambda me: me}),
        ("sendrecv-rank", "right", {"recv_from_rank": 0}),
        ("sendrecv-rank", "right", {"recv_from_rank": 2}),
        ("sendrecv-rank", "right", {"send_to_rank": True}),
        ("sendrecv-pipe", {"pipe_id": 7}, {"pipe_id": -1}),
        ("sendrecv-pipe", {"pipe_id": 0}, {"pipe_id": 0.0}),
        ("enum", {"dma_engine": nisa.dma_engine.dma}, {"dma_engine": 1}),
    ],
)  # fmt: skip
def test_sendrecv_rules(rule, good, bad):
    pair(rule, two(send), (good,), (bad,))


@pytest.mark.parametrize(
    "dtype, most",
    [("float32", 256), ("int32", 256), ("bfloat16", 256), ("int16", 256), ("uint8", 256),
     ("float8_e4m3", 256), ("float8_e5m2_x4", 256), ("float4_e2m1fn_x4", 256)],
)  # fmt: skip
def test_gpsimd_moves_256_elements_a_partition(dtype, most):
    """1024, 512 and 256 bytes of dtypes of 4, 2 and 1 bytes; the ordinary DMA has no limit."""

    def kernel(columns, carrier):
        src = tile((2, columns), dtype, value=0)
        exchange(src, nl.ndarray((2, columns), dtype), dma_engine=nisa.dma_engine[carrier])

    error = pair("sendrecv-size", two(kernel), (most, "gpsimd_dma"), (most + 1, "gpsimd_dma"))
    size = {1: 256, 2: 512, 4: 1024}
    assert any(f"at most {size[n]} of {dtype}" in str(error) for n in size)
    simulate(two(kernel))(most + 1, "dma")


# Only with two cores, only on NeuronCore-v3 and newer.


@pytest.mark.parametrize("kernel", [barrier, send])
def test_one_core_cannot_wait_for_another(kernel):
    error = refused("lnc2-only", kernel, "right")
    assert "kernel[2]" in str(error)
    refused("lnc2-only", nki.jit(kernel)[1], "right")
    simulate(two(kernel))("right")


@pytest.mark.parametrize("kernel", [barrier, send])
def test_generations(on_target, kernel):
    on_target("trn3")
    simulate(two(kernel))("right")
    on_target("trn1")
    error = refused("target", kernel, "right")
    assert "NeuronCore-v3" in str(error)
    refused("target", two(kernel), "right", line=None)


# Pairs that do not match: an error that shows both programs, never a hang.


def lines_of(error):
    """How often the two lines marked in a kernel appear in the message."""
    text = str(error)
    return "# mine" in text and "# theirs" in text


def test_different_tensors():
    def kernel(same):
        first, second = shared(), shared()
        if me() == 0:
            nisa.core_barrier(first, BOTH)  # theirs
        else:
            nisa.core_barrier(first if same else second, BOTH)  # rule # mine

    assert lines_of(pair("barrier-pair", two(kernel), True, False))


def test_different_views_of_one_tensor():
    def kernel(rows):
        nisa.core_barrier(shared()[rows * me() :, :], BOTH)  # rule

    pair("barrier-pair", two(kernel), 0, 2)


@pytest.mark.parametrize(
    "what, option",
    [
        ("pipe_id", {"pipe_id": 1}), ("shape", {"shape": (2, 3)}), ("dtype", {"dtype": nl.int32}),
        ("dma_engine", {"dma_engine": nisa.dma_engine.gpsimd_dma}),
    ],
)  # fmt: skip
def test_exchanges_that_do_not_fit(what, option):
    def swap(shape=(2, 4), dtype=nl.float32, **options):
        exchange(tile(shape, dtype), nl.ndarray(shape, dtype), **options)

    def kernel(same):
        if me() == 0:
            swap(**(option if same else {}))  # theirs
        else:
            swap(**option)  # mine

    error = pair("sendrecv-pair", two(kernel), True, False)
    assert lines_of(error) and f"disagree on {what}:" in str(error)
    assert [line.function for line in error.chain] == ["exchange", "swap", "kernel"]


def test_a_barrier_does_not_fit_an_exchange():
    def kernel(same):
        data = shared()
        if me() == 0 or same:
            nisa.core_barrier(data, BOTH)  # theirs
        else:
            exchange(tile((2, 2)), nl.ndarray((2, 2), nl.float32))  # mine

    error = pair("lnc-deadlock", two(kernel), True, False)
    assert lines_of(error) and "wait for different things" in str(error)


@pytest.mark.parametrize("short", [0, 1])
def test_a_program_that_ends_while_the_other_waits(short):
    def kernel(enough):
        data = shared()
        nisa.core_barrier(data, BOTH)  # theirs
        if enough or me() != short:
            nisa.core_barrier(data, BOTH)  # rule # mine

    error = pair("lnc-deadlock", two(kernel), True, False)
    assert lines_of(error) and f"waits for program {short}, which has ended" in str(error)


@pytest.mark.parametrize("waits", [0, 1])
def test_a_program_that_never_calls_what_the_other_waits_in(waits):
    def kernel(both):
        data = shared()
        if both or me() == waits:
            nisa.core_barrier(data, BOTH)  # rule

    error = pair("lnc-deadlock", two(kernel), True, False)
    assert "It never called" in str(error)


# Allocations and results.


def test_programs_must_allocate_the_same_shared_tensors():
    def kernel(width, dtype=nl.float32, name=""):
        mine = (8, width, dtype, name) if me() else (8, 4, nl.float32, "")
        nl.ndarray(mine[:2], dtype=mine[2], buffer=nl.shared_hbm, name=mine[3])  # rule

    pair("shared-hbm", two(kernel), 4, 5)
    pair("shared-hbm", two(kernel), 4, (4, nl.int32))
    pair("shared-hbm", two(kernel), 4, (4, nl.float32, "x"))


@pytest.mark.parametrize("more", [0, 1])
def test_programs_must_allocate_as_many_shared_tensors(more):
    def kernel(same):
        shared()
        if same or me() == more:
            nl.ndarray((3, 5), dtype=nl.float32, buffer=nl.shared_hbm, name="extra")

    error = pair("shared-hbm", two(kernel), True, False, line=None)
    assert "extra float32[3, 5]" in str(error) and f"program {more} allocates 2" in str(error)


@pytest.mark.parametrize("bad", ["nothing", "other", "fewer", "view"])
def test_programs_must_return_the_same_tensors(bad):
    def kernel(how):
        out, other = shared(), shared()
        if me() == 0:
            for written in (out, other):
                nisa.dma_copy(dst=written, src=tile((4, 8)))
        if me() == 1 and how != "same":
            return {
                "nothing": None, "other": (other, out), "fewer": (out,), "view": (out[0:2], other),
            }[how]  # fmt: skip
        return out, other

    error = pair("return-programs", two(kernel), "same", bad, line=None)
    assert "program 0 returns" in str(error) and "program 1" in str(error)


def test_what_is_no_tensor_is_refused_in_both_programs():
    def kernel():
        return np.zeros(3)

    refused("return-type", two(kernel), line=None)


def test_constants_do_not_diverge():
    def kernel(step):
        made = nl.shared_constant(np.full((2, 2), 1.0 + step * me(), np.float32))  # rule
        assert (made.array == 1).all()

    pair("constant-diverges", two(kernel), 0, 1)


# Errors, interrupts and what a thread has to inherit.


def waits(then):
    """A kernel whose program 1 calls ``then`` in its own thread, while program 0 waits."""

    def kernel():
        data = shared()
        nisa.core_barrier(data, BOTH)  # waits
        if me() == 1:
            then()
        nisa.core_barrier(data, BOTH)

    return two(kernel)


def test_an_error_of_program_1_ends_program_0_and_reaches_the_caller():
    cleaned = []

    def kernel():
        data = shared()
        try:
            nisa.core_barrier(data, BOTH)
            if me() == 1:
                raise KeyError("in program 1")
            nisa.core_barrier(data, BOTH)
        finally:
            cleaned.append(me())

    with pytest.raises(KeyError, match="in program 1") as caught:
        two(kernel)()
    assert sorted(cleaned) == [0, 1] and caught.value.__context__ is None


def test_an_error_of_program_0_ends_program_1():
    cleaned = []

    def kernel():
        data = shared()
        try:
            nisa.core_barrier(data, BOTH)
            if me() == 0:
                raise KeyError("in program 0")
            nisa.core_barrier(data, BOTH)
        finally:
            cleaned.append(me())

    with pytest.raises(KeyError, match="in program 0"):
        two(kernel)()
    assert sorted(cleaned) == [0, 1]


def test_a_kernel_cannot_swallow_the_end_of_the_launch():
    def kernel():
        data = shared()
        for _ in range(3):
            try:
                nisa.core_barrier(data, BOTH)
            except:  # noqa: E722
                pass
            if me() == 1:
                raise KeyError("in program 1")

    with pytest.raises(KeyError, match="in program 1"):
        two(kernel)()


def test_the_error_of_a_rule_in_program_1_has_its_own_lines_only():
    def broken():
        nisa.memset(shared(), value=0.0)  # broken

    error = None
    try:
        waits(broken)()
    except NkiError as caught:
        error = caught
    assert error.rule == "buffer-on-chip"
    assert [line.function for line in error.chain] == ["broken", "kernel"]
    assert "threading" not in str(error) and "# broken" in str(error)


def test_sys_exit_in_program_1():
    def leave():
        raise SystemExit(7)

    with pytest.raises(SystemExit) as caught:
        waits(leave)()
    assert caught.value.code == 7


@pytest.fixture
def interrupts():
    """SIGINT as Python has it, also where the tests were started in the background of a shell,
    which lets it be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("busy", [True, False])
def test_an_interrupt_ends_both_programs(busy, interrupts):
    """Ctrl-C reaches the main thread, where program 0 runs or waits."""

    def interrupt():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        while busy:
            pass

    with pytest.raises(KeyboardInterrupt):
        waits(interrupt)()
    assert np.array_equal(two(through_hbm)(X), np.concatenate([X, X]))


def test_context_variables_and_numpy_settings_reach_both_programs():
    variable = contextvars.ContextVar("variable")
    variable.set("outside")
    seen = []

    def note():
        seen.append(variable.get())
        np.float32(1) / np.float32(0)  # engines raise no floating point exceptions
        with np.printoptions(precision=1):
            assert str(np.float64(0.25) + np.zeros(1)) == "[0.2]"

    with np.errstate(all="raise"):
        waits(note)()
        with pytest.raises(FloatingPointError):
            np.float32(1) / np.float32(0)
    assert seen == ["outside"]


def test_warnings_of_program_1_name_its_line():
    def deprecated():
        list(nl.affine_range(2))  # warned

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        waits(deprecated)()
    assert [str(w.message)[:12] for w in caught] == ["[deprecated]"]
    assert caught[0].filename == __file__


def test_launches_from_several_threads():
    results = {}

    def work(number):
        for _ in range(5):
            results[number] = two(through_hbm)(X + number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(results[n], np.concatenate([X, X]) + n) for n in range(3))


def test_a_jitted_kernel_inside_a_program_is_a_plain_function():
    inner = two(lambda: nl.program_id(0))
    seen = []
    two(lambda: seen.append(inner()))()
    assert seen == [0, 1]
