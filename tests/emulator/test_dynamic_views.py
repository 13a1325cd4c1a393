"""Views whose address is known only at run time: what they address, and what they refuse."""

from nki_emulator.kernel import record

from .support import load, nisa, nl, np, pair, pytest, refused, save, simulate, tile, values

CHIP, HBM, PSUM = nl.sbuf, nl.shared_hbm, nl.psum


def index(value, dtype=nl.int32, register=False):
    """A run-time index: a register or a (1, 1) tile (inside a kernel)."""
    if register:
        return nisa.register_alloc(value)
    made = nl.ndarray((1, 1), dtype=dtype)
    nisa.memset(made, value)
    return made


def column(numbers, dtype=nl.int32):
    """A (P, 1) tile of indices (inside a kernel)."""
    made = nl.ndarray((len(numbers), 1), dtype=dtype)
    for row, number in enumerate(numbers):
        single = nl.ndarray((1, 1), dtype=dtype)
        nisa.memset(single, number)
        nisa.dma_copy(dst=made[row : row + 1], src=single)
    return made


INDEX = [(nl.int32, False), (nl.uint32, False), (None, True)]


@pytest.mark.parametrize("dtype, register", INDEX)
@pytest.mark.parametrize("dim, width", [(0, 12), (1, 4), (2, 1)])
def test_scalar_offset_steps_along_a_dimension_of_the_base(dtype, register, dim, width):
    def kernel(x, out):
        for number in range(3):
            i = index(number, dtype, register)
            view = x.ap([[12, 2], [1, 3]], offset=1, scalar_offset=i, indirect_dim=dim)
            assert view.shape == (2, 3) and view.is_indirect()
            nisa.dma_copy(dst=out[number], src=view)

    x, out = values((5, 3, 4)), np.zeros((3, 2, 3), np.float32)
    simulate(kernel)(x, out)
    flat = x.ravel()
    for number in range(3):
        places = 1 + number * width + 12 * np.arange(2)[:, None] + np.arange(3)
        np.testing.assert_array_equal(out[number], flat[places])


@pytest.mark.parametrize("dtype, register", INDEX)
def test_select_with_a_run_time_index(dtype, register):
    def kernel(x, a, b, c):
        t = nl.ndarray((5, 3, 4), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=x)
        i = index(2, dtype, register)
        nisa.dma_copy(dst=a, src=x.select(0, i))
        nisa.dma_copy(dst=b, src=x[1:4].permute((1, 0, 2)).select(-1, i)[:, 1:])
        moved = nl.ndarray((5, 4), dtype=nl.float32)
        nisa.tensor_copy(moved, t.select(1, i))
        nisa.dma_copy(dst=c, src=moved)
        assert t[:, 0].select(1, i).shape == (5, 1)

    x = values((5, 3, 4))
    a, b, c = np.zeros((3, 4), "f4"), np.zeros((3, 2), "f4"), np.zeros((5, 4), "f4")
    simulate(kernel)(x, a, b, c)
    np.testing.assert_array_equal(a, x[2])
    np.testing.assert_array_equal(b, x[1:4].transpose(1, 0, 2)[:, 1:, 2])
    np.testing.assert_array_equal(c, x[:, 2])


def test_the_index_is_read_when_the_instruction_runs():
    def kernel(x, out):
        i = index(0)
        view = x.select(0, i)
        nisa.dma_copy(dst=out[0], src=view)
        nisa.memset(i, 3)
        nisa.dma_copy(dst=out[1], src=view)

    x, out = values((4, 6)), np.zeros((2, 6), np.float32)
    simulate(kernel)(x, out)
    np.testing.assert_array_equal(out, x[[0, 3]])


@pytest.mark.parametrize("buffer", [CHIP, PSUM])
def test_compute_engines_read_and_write_at_a_scalar_offset(buffer):
    def kernel(x, n):
        t = nl.ndarray((4, 8), dtype=nl.float32, buffer=buffer)
        nisa.tensor_copy(t, load(x))
        r = nisa.register_alloc(n)
        where = t.ap([[8, 4], [1, 2]], scalar_offset=r, indirect_dim=1)
        nisa.tensor_scalar(where, where, nl.multiply, 2.0)
        return save(t)

    x = values((4, 8))
    for number in (0, 3, 6):
        expected = x.copy()
        expected[:, number : number + 2] *= 2
        np.testing.assert_array_equal(simulate(kernel)(x, number), expected)


def test_the_index_may_be_any_element_of_a_tile():
    def kernel(x, numbers, out):
        n = load(numbers)
        for row in range(3):
            i = n.ap(pattern=[[2, 1], [1, 1]], offset=2 * row + 1)
            nisa.dma_copy(dst=out[row], src=x.select(0, i))

    x, out = values((6, 4)), np.zeros((3, 4), np.float32)
    numbers = np.array([[9, 1], [9, 5], [9, 0]], np.int32)
    simulate(kernel)(x, numbers, out)
    np.testing.assert_array_equal(out, x[[1, 5, 0]])


def test_offset_of_another_dtype_of_the_same_size():
    def kernel(x, out):
        view = x.ap([[4, 2], [1, 4]], scalar_offset=index(1), dtype=nl.int32)
        assert view.dtype == nl.int32
        nisa.dma_copy(dst=out, src=view)

    x, out = values((5, 4)), np.zeros((2, 4), np.int32)
    simulate(kernel)(x, out)
    np.testing.assert_array_equal(out, x.view(np.int32)[1:3])


def test_the_innermost_offset_counts_elements_of_the_access():
    def kernel(x):
        t = load(x)
        view = t.ap([[16, 3], [1, 4]], dtype=nl.int16, scalar_offset=index(5), indirect_dim=1)
        moved = nl.ndarray((3, 4), dtype=nl.int16)
        nisa.tensor_copy(moved, view)
        return save(moved)

    x = values((3, 8), "int32")
    np.testing.assert_array_equal(simulate(kernel)(x), x.view(np.int16)[:, 5:9])


def test_the_trace_shows_where_a_scalar_index_led():
    def kernel(x, n):
        t = tile((4, 8))
        nisa.tensor_copy(t.select(1, nisa.register_alloc(5)), t[:, 0])
        nisa.dma_copy(dst=t.select(1, load(n)), src=x)

    _, session = record(kernel)(values((4, 1)), np.array([[3]], np.int32))
    session = session[0] if isinstance(session, list) else session
    copy, dma = session.trace[1], session.trace[-1]
    assert copy.writes[0].dynamic == "scalar" and copy.writes[0].offset == 5
    assert copy.reads[0].dynamic == "" and len(copy.reads) == 1
    assert dma.writes[0].dynamic == "scalar" and dma.writes[0].offset == 3
    assert dma.reads[1].dtype == "int32" and dma.reads[1].shape == (1, 1)


# Bounds, checked when the instruction runs.


def test_an_index_outside_the_dimension():
    def select(n, register):
        x = tile((4, 8))
        nisa.memset(x.select(1, index(n, register=register)), 1.0)  # rule

    for register in (False, True):
        pair("dynamic-out-of-bounds", select, (7, register), (8, register))
        pair("dynamic-out-of-bounds", select, (0, register), (-1, register))

    def pattern(n):
        x = tile((4, 8))
        where = x.ap([[8, 4], [1, 3]], offset=1, scalar_offset=index(n), indirect_dim=1)
        nisa.memset(where, 1.0)  # rule

    pair("dynamic-out-of-bounds", pattern, 4, 5)

    def some_partitions(n):
        """Beyond its partition lies the next one, which is no place to go either."""
        x = tile((4, 8))
        where = x.ap([[8, 2], [1, 1]], offset=4, scalar_offset=index(n), indirect_dim=1)
        nisa.memset(where, 1.0)  # rule

    pair("dynamic-out-of-bounds", some_partitions, 3, 4)

    def hbm(n):
        x = save(tile((4, 8)))
        nisa.dma_copy(dst=tile((2, 8)), src=x.ap([[8, 2], [1, 8]], scalar_offset=index(n)))  # rule

    pair("dynamic-out-of-bounds", hbm, 2, 3)


def test_an_unwritten_index():
    def kernel(written):
        i = nl.ndarray((1, 1), dtype=nl.int32)
        if written:
            nisa.memset(i, 0)
        nisa.memset(tile((4, 8)).select(1, i), 1.0)  # rule

    pair("uninitialized-read", kernel, True, False)


def test_reading_what_the_index_leads_to():
    def kernel(n):
        t = nl.ndarray((4, 8), dtype=nl.float32)
        nisa.memset(t[:, 0:4], 0.0)
        nisa.tensor_copy(tile((4, 1)), t[:, :].select(1, nisa.register_alloc(n)))  # rule

    pair("uninitialized-read", kernel, 3, 4)


# What may be an index, and of what.


def made(change):
    """Apply a function to an HBM tensor and a tile, both (8, 4, 6)."""
    h = nl.ndarray((8, 4, 6), dtype=nl.float32, buffer=HBM)
    change(h, tile((8, 4, 6)))  # rule


PATTERN = [[24, 2], [1, 6]]
CONSTRUCTION = [
    ("ap-one-offset", lambda h, t: h.ap(PATTERN, scalar_offset=index(0)),
     lambda h, t: h.ap(PATTERN, scalar_offset=index(0), vector_offset=column([0, 1]))),
    ("ap-indirect-dim", lambda h, t: h.ap(PATTERN, scalar_offset=index(0), indirect_dim=2),
     lambda h, t: h.ap(PATTERN, scalar_offset=index(0), indirect_dim=3)),
    ("ap-indirect-dim", lambda h, t: h.ap(PATTERN, scalar_offset=index(0), indirect_dim=0),
     lambda h, t: h.ap(PATTERN, scalar_offset=index(0), indirect_dim=-1)),
    ("ap-indirect-dim", lambda h, t: t.ap(PATTERN, scalar_offset=index(0), indirect_dim=1),
     lambda h, t: t.ap(PATTERN, scalar_offset=index(0))),
    ("ap-indirect-base", lambda h, t: h[:, :, 1:].ap(PATTERN, scalar_offset=index(0),
     indirect_dim=2),
     lambda h, t: h[:, :, 1:].ap(PATTERN, scalar_offset=index(0), indirect_dim=1)),
    ("ap-indirect-base", lambda h, t: h.ap(PATTERN, scalar_offset=index(0)),
     lambda h, t: h.permute((0, 2, 1)).ap(PATTERN, scalar_offset=index(0), indirect_dim=1)),
    ("ap-indirect-dtype",
     lambda h, t: h.view(nl.int16).ap([[48, 2], [1, 4]], scalar_offset=index(0)),
     lambda h, t: h.ap([[48, 2], [1, 4]], scalar_offset=index(0), dtype=nl.int16)),
    ("ap-vector-offset", lambda h, t: h.ap(PATTERN, vector_offset=column([0, 1])),
     lambda h, t: h.ap(PATTERN, vector_offset=column([0, 1]), indirect_dim=1)),
    ("ap-vector-offset", lambda h, t: h.ap(PATTERN, vector_offset=column([0, 1])),
     lambda h, t: h.ap(PATTERN, vector_offset=column([0]))),
    ("vector-buffer", lambda h, t: h.ap(PATTERN, vector_offset=column([0, 1])),
     lambda h, t: t.vector_select(0, column([0, 1]))),
    ("vector-select", lambda h, t: h.vector_select(0, column([0, 1])),
     lambda h, t: h.vector_select(1, column([0, 1]))),
    ("vector-select", lambda h, t: h[::2].vector_select(0, column([0, 1])),
     lambda h, t: h.permute((1, 0, 2)).vector_select(0, column([0, 1]))),
    ("vector-select", lambda h, t: h.vector_select(0, column([0, 1])),
     lambda h, t: h.vector_select(0, tile((2, 2), nl.int32))),
    ("dynamic-select", lambda h, t: t.select(1, index(0)), lambda h, t: t.select(0, index(0))),
    ("dynamic-select", lambda h, t: t[:, 0:1].select(1, index(0)),
     lambda h, t: t[:, 0:1].broadcast(1, 3).select(1, index(0))),
    ("scalar-index", lambda h, t: h.select(0, tile((1, 1), nl.uint32)),
     lambda h, t: h.select(0, tile((1, 1), nl.int16))),
    ("scalar-index", lambda h, t: h.select(0, tile((1, 1), nl.int32)),
     lambda h, t: h.select(0, tile((1, 2), nl.int32))),
    ("scalar-index", lambda h, t: h.select(0, tile((1, 1), nl.int32)),
     lambda h, t: h.select(0, tile((1, 1), nl.int32, PSUM))),
    ("scalar-index", lambda h, t: h.select(0, 1), lambda h, t: h.select(0, 1.0)),
    ("scalar-index", lambda h, t: h.ap(PATTERN, scalar_offset=index(0)),
     lambda h, t: h.ap(PATTERN, scalar_offset=3)),
    ("scalar-index", lambda h, t: h.select(0, tile((1, 4), nl.int32).select(1, 0)),
     lambda h, t: h.select(0, tile((1, 4), nl.int32).select(1, index(0)))),
    ("vector-index", lambda h, t: h.vector_select(0, column([0, 1], nl.uint32)),
     lambda h, t: h.vector_select(0, tile((2, 1), nl.uint16))),
    ("vector-index", lambda h, t: h.ap(PATTERN, vector_offset=tile((2, 1), nl.int32)),
     lambda h, t: h.ap(PATTERN, vector_offset=tile((2, 1, 1), nl.int32))),
    ("vector-index", lambda h, t: h.vector_select(0, column([0, 1])),
     lambda h, t: h.vector_select(0, nisa.register_alloc(0))),
    ("out-of-bounds", lambda h, t: h.ap([[24, 2], [1, 24]], offset=144, scalar_offset=index(0)),
     lambda h, t: h.ap([[24, 2], [1, 24]], offset=145, scalar_offset=index(0))),
    ("out-of-bounds", lambda h, t: h.ap([[24, 8], [1, 24]], vector_offset=column([0] * 8)),
     lambda h, t: h.ap([[24, 8], [1, 193]], vector_offset=column([0] * 8))),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", CONSTRUCTION)
def test_construction(rule, good, bad):
    pair(rule, made, good, bad, line=bad)


# Views of dynamic views.


def scalar(h, t):
    return h.ap([[24, 2], [6, 1], [1, 6]], scalar_offset=index(0))


def selected(h, t):
    return h.select(0, index(0))


def rows(h, t):
    return h.vector_select(0, column([0, 1]))


CHAINS = [
    (rows, lambda v: v[:, 1:3], lambda v: v[0:1]),
    (rows, lambda v: v[0:2, 0], lambda v: v[1]),
    (rows, lambda v: v.slice(1, 0, 2), lambda v: v.slice(0, 0, 1)),
    (rows, lambda v: v.slice(0, 0, 2), lambda v: v.slice(0, 0, 2, 2)),
    (rows, lambda v: v.select(1, 0), lambda v: v.select(0, 0)),
    (rows, lambda v: v.permute((0, 2, 1)), lambda v: v.permute((1, 0, 2))),
    (rows, lambda v: v.expand_dim(1), lambda v: v.expand_dim(0)),
    (rows, lambda v: v.expand_dim(1).squeeze_dim(1), lambda v: v[:, 0:1].squeeze_dim(0)),
    (rows, lambda v: v.reshape_dim(1, (2, 2)), lambda v: v.reshape_dim(0, (2, 1))),
    (rows, lambda v: v.reshape_dim(0, (2,)), lambda v: v.reshape_dim(0, (1, 2))),
    (rows, lambda v: v.flatten_dims(1, 2), lambda v: v.flatten_dims(0, 1)),
    (rows, lambda v: v.reshape((2, 24)), lambda v: v.reshape((4, 12))),
    (rows, lambda v: v[:, 0:1].broadcast(1, 3), lambda v: v.broadcast(0, 3)),
    (rows, lambda v: v.shape, lambda v: v.view(nl.int32)),
    (rows, lambda v: v.shape, lambda v: v.ap([[1, 4]])),
    (rows, lambda v: v.shape, lambda v: v.vector_select(0, column([0, 1]))),
    (rows, lambda v: v.select(1, 0), lambda v: v.select(1, index(0))),
    (rows, lambda v: v.shape, lambda v: v.indirect(column([0, 1]))),
    (scalar, lambda v: v[:, 0, 1:3], lambda v: v[0:1]),
    (scalar, lambda v: v.permute((2, 1, 0)), lambda v: v.select(0, 1)),
    (scalar, lambda v: v.squeeze_dim(1), lambda v: v.view(nl.int32)),
    (selected, lambda v: v[1:3, ::2], lambda v: v.select(0, index(0))),
    (selected, lambda v: v.select(0, 2), lambda v: v.select(0, nisa.register_alloc(0))),
    (selected, lambda v: v.reshape((2, 12)), lambda v: v.view(nl.int16)),
    (selected, lambda v: v.flatten_dims(0, 1), lambda v: v.ap([[1, 4]])),
]


@pytest.mark.parametrize("base, good, bad", CHAINS)
def test_chains(base, good, bad):
    def kernel(change):
        made(lambda h, t: change(base(h, t)))

    pair("dynamic-view", kernel, good, bad, line=bad)


def test_rules_of_static_views_hold_too():
    def kernel(change):
        made(lambda h, t: change(selected(h, t), t.select(1, index(0))))

    for rule, good, bad in (
        ("out-of-bounds", lambda v, c: v[3], lambda v, c: v[4]),
        ("partition-dim", lambda v, c: c[:, 0:1].broadcast(1, 3),
         lambda v, c: c[0:1].broadcast(0, 3)),
        ("reshape", lambda v, c: v.reshape((24,)), lambda v, c: v.reshape((23,))),
    ):  # fmt: skip
        pair(rule, kernel, good, bad, line=bad)


def test_is_indirect():
    def kernel():
        made(lambda h, t: [
            _is(scalar(h, t), True), _is(selected(h, t)[0], True), _is(rows(h, t)[:, 0], True),
            _is(h, False), _is(h.select(0, 1), False),
        ])  # fmt: skip

    def _is(view, expected):
        assert view.is_indirect() is expected

    simulate(kernel)()


def test_a_dynamic_view_has_no_values_in_python(capsys):
    def kernel(dynamic):
        x = save(tile((4, 8)))
        view = x.select(0, index(2) if dynamic else 2)
        print(view)
        np.asarray(view.array)  # rule

    pair("dynamic-operand", kernel, False, True)
    text = capsys.readouterr().out
    assert "with scalar index int32[1, 1] sbuf" in text


def test_only_dma_takes_a_row_for_each_partition():
    def kernel(vector):
        x, t = save(tile((4, 8))), tile((2, 8))
        view = x.vector_select(0, column([1, 2]))
        nisa.dma_copy(dst=t, src=view)
        nisa.tensor_copy(tile((2, 8)), view if vector else t)  # rule

    pair("vector-instruction", kernel, False, True)


def test_an_index_never_reaches_an_instruction_that_does_not_know_it():
    def kernel():
        x = tile((4, 8))
        nisa.memset(x.select(1, nisa.register_alloc(3)), 1.0)
        nisa.register_load(nisa.register_alloc(), tile((1, 4), nl.int32).select(1, index(2)))
        nisa.tensor_scalar(x, x, nl.add, tile((4, 3)).select(1, index(2)))
        nisa.activation(x, nl.exp, x, bias=tile((4, 3)).select(1, index(2)))

    simulate(kernel)()


def test_errors_name_the_original_operand():
    def kernel():
        x = tile((4, 8))
        nisa.tensor_copy(x, x.select(1, index(2)))  # rule

    error = refused("free-size", kernel)
    assert any("with scalar index" in operand for operand in error.operands)
