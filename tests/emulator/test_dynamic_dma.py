"""DMA with run-time addresses: gather, scatter, transposes of gathered rows, what is skipped."""

from nki_emulator.kernel import record

from .support import (
    load,
    ml_dtypes,
    nisa,
    nki,
    nl,
    np,
    pair,
    pytest,
    refused,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

H = nl.shared_hbm
F, BF = "float32", "bfloat16"
DGE, OOB = nisa.dge_mode, nisa.oob_mode
DTYPES = ["float32", "bfloat16", "float16", "int32", "uint8", "float8_e5m2"]
BIG = 2**32 - 1  # -1 as uint32


def rows_of(view_of, indices, oob_mode=OOB.error, fill=None, dtype=None, **options):
    """Kernel result: rows of x gathered into a tile that held ``fill`` before."""

    def kernel(x, numbers):
        i = load(numbers)
        shape = (numbers.shape[0], *x.shape[1:])
        t = nl.ndarray(shape, dtype=dtype or x.dtype)
        if fill is not None:
            nisa.memset(t, fill)
        nisa.dma_copy(dst=t, src=view_of(x, i), oob_mode=oob_mode, **options)
        return save(t)

    return kernel, np.array(indices).reshape(-1, 1)


def by_select(x, i):
    return x.vector_select(0, i)


def by_pattern(x, i):
    rest = [[1, x.shape[1]]] if x.ndim == 2 else [[x.shape[2], x.shape[1]], [1, x.shape[2]]]
    return x.ap([[1, i.shape[0]], *rest], vector_offset=i, indirect_dim=0)


@pytest.mark.parametrize("view_of", [by_select, by_pattern])
@pytest.mark.parametrize("index_dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather(view_of, index_dtype, dtype):
    kernel, numbers = rows_of(view_of, [3, 0, 9, 3, 1])
    x = values((10, 7), dtype)
    same_bits(simulate(kernel)(x, numbers.astype(index_dtype)), x[[3, 0, 9, 3, 1]])


@pytest.mark.parametrize("view_of", [by_select, by_pattern])
def test_gather_of_more_dimensions_and_all_partitions(view_of):
    indices = np.random.default_rng(0).integers(0, 40, 128)
    kernel, numbers = rows_of(view_of, indices)
    x = values((40, 3, 4))
    same_bits(simulate(kernel)(x, numbers.astype(np.int32)), x[indices])


@pytest.mark.parametrize("source, target", [(F, BF), (BF, F), ("int32", F), (F, "int8")])
def test_gather_converts(source, target):
    kernel, numbers = rows_of(by_select, [2, 1, 2], dtype=target)
    x = values((4, 9), source)
    got, wide = simulate(kernel)(x, numbers.astype(np.int32)), x[[2, 1, 2]].astype(np.float32)
    if target == "int8":
        np.testing.assert_array_equal(got, np.clip(np.rint(wide), -128, 127))
    else:
        same_bits(got, rounded(wide, target))


def test_gather_with_an_offset_part_of_a_row_and_another_shape():
    def kernel(x, numbers):
        i = load(numbers)
        t = nl.ndarray((3, 2, 2), dtype=x.dtype)
        part = x.ap([[8, 3], [2, 4]], offset=1, vector_offset=i)
        nisa.dma_copy(dst=t, src=part)
        whole = nl.ndarray((3, 3), dtype=x.dtype)
        nisa.dma_copy(dst=whole, src=x[1:, 2:5].vector_select(0, i))
        return save(t), save(whole)

    x, numbers = values((6, 8)), np.array([[4], [0], [2]], np.int32)
    t, whole = simulate(kernel)(x, numbers)
    same_bits(t, x[[4, 0, 2], 1::2].reshape(3, 2, 2))
    same_bits(whole, x[1:][[4, 0, 2], 2:5])


def test_gather_where_the_index_counts_elements():
    """A one-dimensional base: each index is an element, and each row a pattern from there on."""

    def kernel(x, numbers):
        t = nl.ndarray((2, 3, 2), dtype=x.dtype)
        nisa.dma_copy(
            dst=t, src=x.ap([[1, 2], [10, 3], [1, 2]], vector_offset=load(numbers), indirect_dim=0)
        )
        return save(t)

    x, numbers = values((60,)), np.array([[31], [4]], np.uint32)
    places = numbers[:, :, None] + 10 * np.arange(3)[:, None] + np.arange(2)
    same_bits(simulate(kernel)(x, numbers), x[places])


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter(dtype):
    def kernel(x, numbers, out):
        nisa.dma_copy(dst=out.vector_select(0, load(numbers)), src=load(x))

    x, numbers = values((3, 5), dtype), np.array([[6], [0], [2]], np.int32)
    out = values((8, 5), dtype, seed=1)
    expected = out.copy()
    expected[[6, 0, 2]] = x
    simulate(kernel)(x, numbers, out)
    same_bits(out, expected)


def test_scatter_converts_and_takes_another_shape():
    def kernel(x, numbers, out):
        nisa.dma_copy(dst=out.vector_select(0, load(numbers)), src=load(x))

    x, numbers = values((4, 3)), np.array([[5], [1]], np.int32)
    out = np.zeros((8, 6), ml_dtypes.bfloat16)
    simulate(kernel)(x, numbers, out)
    same_bits(out[[5, 1]], rounded(x.reshape(2, 6), BF))
    assert not out[[0, 2, 3, 4, 6, 7]].any()


def test_scattered_rows_are_written_and_others_are_not():
    def kernel(numbers, row):
        out = nl.ndarray((6, 4), dtype=nl.float32, buffer=H)
        nisa.dma_copy(dst=out.vector_select(0, load(numbers)), src=tile((2, 4), value=1.0))
        nisa.dma_copy(dst=tile((1, 4)), src=out[row : row + 1])  # rule
        return None

    numbers = np.array([[3], [1]], np.int32)
    pair("uninitialized-read", kernel, (numbers, 3), (numbers, 2))


def test_only_the_gathered_rows_need_to_be_written():
    def kernel(numbers):
        x = nl.ndarray((6, 4), dtype=nl.float32, buffer=H)
        nisa.dma_copy(dst=x[2:4], src=tile((2, 4), value=1.0))
        nisa.dma_copy(dst=tile((2, 4)), src=x.vector_select(0, load(numbers)))  # rule

    def at(*rows):
        return np.array(rows, np.int32).reshape(-1, 1)

    error = pair("uninitialized-read", kernel, at(3, 2), at(2, 4))
    assert "row 4 of src" in error.message


def test_rows_on_both_sides_of_a_wide_dtype_view():
    def kernel(x, numbers, out):
        t = nl.ndarray((2, 4), dtype=nl.int16)
        nisa.dma_copy(dst=t, src=x.view(nl.int16).vector_select(0, load(numbers)))
        nisa.dma_copy(dst=out, src=t)

    x, out = values((5, 2), "int32"), np.zeros((2, 4), np.int16)
    simulate(kernel)(x, np.array([[4], [0]], np.int32), out)
    same_bits(out, x.view(np.int16)[[4, 0]])


# Indices out of bounds.


@pytest.mark.parametrize("bad", [10, -1, BIG])
def test_skipped_rows_leave_the_destination_untouched(bad):
    indices = np.array([3, bad, 0], np.uint32 if bad == BIG else np.int32)
    x = values((10, 7), BF)
    kernel, numbers = rows_of(by_select, indices, OOB.skip, fill=5.0)
    got = simulate(kernel)(x, numbers)
    same_bits(got[[0, 2]], x[[3, 0]])
    assert (got[1] == 5).all()

    def scatter(x, numbers, out):
        nisa.dma_copy(dst=out.vector_select(0, load(numbers)), src=load(x), oob_mode=OOB.skip)

    out = values((10, 7), BF, seed=2)
    expected = out.copy()
    expected[[3, 0]] = x[:3][[0, 2]]
    simulate(scatter)(x[:3].copy(), numbers, out)
    same_bits(out, expected)


def test_skipped_rows_keep_integer_bits_and_stay_unwritten():
    x = values((4, 3), "int32")
    numbers = np.array([[1], [7]], np.int32)
    kernel, _ = rows_of(by_select, [1, 7], OOB.skip, fill=2**31 - 1)
    got = simulate(kernel)(x, numbers)
    np.testing.assert_array_equal(got, [x[1], [2**31 - 1] * 3])

    def unwritten(numbers):
        t = nl.ndarray((2, 4), dtype=nl.float32)
        x = save(tile((4, 4)))
        nisa.dma_copy(dst=t, src=x.vector_select(0, load(numbers)), oob_mode=OOB.skip)
        nisa.tensor_copy(tile((2, 4)), t)  # rule

    pair("uninitialized-read", unwritten, np.array([[1], [3]], np.int32), numbers)


def test_all_rows_skipped():
    kernel, numbers = rows_of(by_select, [9, -1], OOB.skip, fill=1.0)
    assert (simulate(kernel)(values((4, 3)), numbers.astype(np.int32)) == 1).all()


@pytest.mark.parametrize("register", [False, True])
def test_a_skipped_scalar_index_moves_nothing(register):
    def kernel(x, out, n):
        i = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.memset(i, n)
        if register:
            held = i
            i = nisa.register_alloc()
            nisa.register_load(i, held)
        t = load(x)
        nisa.dma_copy(dst=out.select(0, i), src=t[0:1], oob_mode=OOB.skip)
        nisa.dma_copy(dst=t[1:2], src=out.select(0, i), oob_mode=OOB.skip)
        return save(t)

    x, out = values((2, 3)), np.zeros((4, 1, 3), np.float32)
    for n in (4, -1):
        same_bits(simulate(kernel)(x, out, n), x)
        assert not out.any()
    same_bits(simulate(kernel)(x, out, 3), x[[0, 0]])
    same_bits(out[3], x[0:1])


def test_an_index_out_of_bounds_is_an_error_by_default():
    def gather(numbers):
        x = save(tile((10, 4)))
        nisa.dma_copy(dst=tile((3, 4)), src=x.vector_select(0, load(numbers)))  # rule

    def scatter(numbers):
        x = save(tile((10, 4)))
        nisa.dma_copy(dst=x.vector_select(0, load(numbers)), src=tile((3, 4)))  # rule

    good = np.array([[9], [0], [1]], np.int32)
    for kernel in (gather, scatter):
        for wrong in (10, -1):
            bad = np.array([[9], [wrong], [1]], np.int32)
            error = pair("dynamic-out-of-bounds", kernel, good, bad)
            assert f"the index of row 1 of {'src' if kernel is gather else 'dst'} is {wrong}" in (
                error.message
            )


def test_an_access_that_runs_out_of_the_tensor_is_an_error_even_if_skipping():
    def rows(numbers, mode):
        x = save(tile((10, 4)))
        part = x.ap([[4, 2], [1, 4]], offset=2, vector_offset=load(numbers))
        nisa.dma_copy(dst=tile((2, 4)), src=part, oob_mode=mode)  # rule

    def start(n, mode):
        x = save(tile((10, 4)))
        part = x.ap([[4, 2], [1, 4]], scalar_offset=nisa.register_alloc(n))
        nisa.dma_copy(dst=tile((2, 4)), src=part, oob_mode=mode)  # rule

    def at(*numbers):
        return np.array(numbers, np.int32).reshape(-1, 1)

    for mode in (OOB.error, OOB.skip):
        pair("dynamic-out-of-bounds", rows, (at(0, 8), mode), (at(0, 9), mode))
        pair("dynamic-out-of-bounds", start, (8, mode), (9, mode))


def test_rows_written_twice_must_be_equal():
    def kernel(x, numbers):
        out = save(tile((10, 4)))
        nisa.dma_copy(dst=out.vector_select(0, load(numbers)), src=load(x))  # rule

    x = values((3, 4))
    x[2] = x[0]
    same = np.array([[5], [1], [5]], np.int32)
    pair("dma-duplicate-rows", kernel, (x, same), (x, np.array([[5], [5], [1]], np.int32)))


# Modes and operands.


def moved(kind="vector", **options):
    x = save(tile((8, 6)))
    if kind == "vector":
        view = x.vector_select(0, tile((8, 1), nl.int32))
    else:
        view = x.ap([[6, 8], [1, 6]], scalar_offset=nisa.register_alloc(0))
    nisa.dma_copy(dst=tile((8, 6)), src=view, **options)  # rule


@pytest.mark.parametrize(
    "kind, good, bad",
    [
        ("vector", DGE.unknown, DGE.none),
        ("vector", DGE.swdge, DGE.hwdge),
        ("scalar", DGE.swdge, DGE.none),
        ("scalar", DGE.hwdge, DGE.none),
    ],
)
def test_descriptor_modes(kind, good, bad):
    pair("dma-dge-dynamic", lambda mode: moved(kind, dge_mode=mode), good, bad)


def test_skip_needs_a_run_time_address():
    def kernel(dynamic):
        x = save(tile((8, 6)))
        src = x.vector_select(0, tile((8, 1), nl.int32)) if dynamic else x
        nisa.dma_copy(dst=tile((8, 6)), src=src, oob_mode=OOB.skip)  # rule

    pair("dma-oob", kernel, True, False)


def test_gather_and_scatter_need_gen3(on_target):
    simulate(moved)("vector")
    on_target("trn1")
    refused("target", lambda: moved("vector"))
    simulate(moved)("scalar")


def test_one_side_is_static():
    def kernel(src_kind, dst_kind):
        views = []
        for kind in (src_kind, dst_kind):
            x = save(tile((4, 6)))
            if kind == "vector":
                i = nl.ndarray((4, 1), dtype=nl.int32)
                nisa.iota(i, [[1, 1]], channel_multiplier=1)
                x = x.vector_select(0, i)
            elif kind == "scalar":
                x = x.ap([[6, 4], [1, 6]], scalar_offset=nisa.register_alloc(0))
            views.append(x)
        nisa.dma_copy(dst=views[1], src=views[0])  # rule

    pair("dma-one-index", kernel, ("scalar", "scalar"), ("vector", "scalar"))
    pair("dma-one-index", kernel, ("static", "vector"), ("vector", "vector"))


def test_one_index_for_each_row():
    def kernel(count):
        x, i = save(tile((8, 6))), tile((4, 1), nl.int32)
        view = x.ap([[6, count], [1, 6]], vector_offset=i)
        nisa.dma_copy(dst=tile((count, 6)), src=view)  # rule

    pair("dma-index-shape", kernel, 4, 3)

    def columns(width):
        x, i = save(tile((8, 6))), tile((4, width), nl.int32)
        nisa.dma_copy(dst=tile((4, 6)), src=x.ap([[6, 4], [1, 6]], vector_offset=i))  # rule

    pair("dma-index-shape", columns, 1, 2)


def test_the_rules_of_copies_hold():
    def kernel(width, buffer=nl.sbuf):
        x = save(tile((8, 6)))
        dst = tile((2, width), buffer=buffer)
        nisa.dma_copy(dst=dst, src=x.vector_select(0, tile((2, 1), nl.int32)))  # rule

    pair("dma-size", kernel, 6, 5)
    pair("dma-psum", kernel, (6,), (6, nl.psum))


def test_the_trace_names_the_indexed_tensor_and_the_index():
    def kernel(x, numbers):
        i = load(numbers)
        nisa.dma_copy(dst=tile((2, 4)), src=x.vector_select(0, i))

    _, session = record(kernel)(values((6, 4)), np.array([[5], [2]], np.int32))
    session = session[0] if isinstance(session, list) else session
    gathered, index = session.trace[-1].reads
    assert (gathered.dynamic, gathered.shape, gathered.strides) == ("vector", (2, 4), (4, 1))
    assert (index.dtype, index.shape, index.dynamic) == ("int32", (2, 1), "")
    assert session.trace[-1].bytes == 2 * 4 * 4


def test_an_indirect_view_is_no_operand_of_a_dma(on_target):
    on_target("trn3")

    def kernel(indirect):
        t = tile((4, 8))
        view = t.indirect(tile((4, 1), nl.int32)) if indirect else t[:, 0:4]
        nisa.dma_copy(dst=tile((4, 4)), src=view)  # rule

    pair("indirect-operand", kernel, False, True)


# Two cores on the same HBM.


@pytest.mark.parametrize("dtype, as_bytes", [(F, False), (F, True), (BF, True)])
def test_rows_of_two_cores_are_told_apart(dtype, as_bytes):
    def kernel(rows, scatters):
        x = nl.ndarray((8, 6), dtype=dtype, buffer=H)
        me = nl.program_id(axis=0)
        nisa.dma_copy(dst=x[4 * me : 4 * me + 4], src=tile((4, 6), dtype))
        nisa.core_barrier(x, (0, 1))
        i = load(rows[me])
        view = (x.view(nl.uint8) if as_bytes else x).vector_select(0, i)
        t = tile(view.shape, view.dtype)
        if scatters[me]:
            nisa.dma_copy(dst=view, src=t)  # rule
        else:
            nisa.dma_copy(dst=t, src=view)  # rule

    def rows(*numbers):
        return np.array(numbers, np.int32).reshape(2, -1, 1)

    two = nki.jit(kernel)[2]
    apart, common = rows(0, 7, 5, 1), rows(0, 7, 7, 1)
    two(common, (False, False))
    for scatters in ((True, True), (True, False), (False, True)):
        pair("hbm-race", two, (apart, scatters), (common, scatters))


def test_rows_cover_all_bytes_of_their_elements():
    def kernel(byte):
        x = nl.ndarray((4, 8), dtype=nl.uint8, buffer=H)
        me = nl.program_id(axis=0)
        if me == 0:
            i = tile((1, 1), nl.int32, value=1)
            words = x.view(nl.int32)[:, 0:1].vector_select(0, i)
            nisa.dma_copy(dst=words, src=tile((1, 1), nl.int32))
        else:
            nisa.dma_copy(dst=x[1:2, byte : byte + 1], src=tile((1, 1), nl.uint8))  # rule

    for byte in range(4):
        pair("hbm-race", nki.jit(kernel)[2], 4, byte)


# dma_transpose with run-time addresses.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int16"])
@pytest.mark.parametrize(
    "index_shape, count", [((16, 1), 16), ((128, 1), 128), ((48, 1), 32), ((128, 2), 256),
                           ((128, 3), 272)]
)  # fmt: skip
def test_transpose_of_gathered_rows(dtype, index_shape, count):
    def kernel(x, numbers):
        dst = nl.ndarray((20, count), dtype=x.dtype)
        src = x.ap([[20, count], [1, 20]], vector_offset=load(numbers), indirect_dim=0)
        nisa.dma_transpose(dst=dst, src=src, axes=(1, 0), dge_mode=DGE.swdge)
        return save(dst)

    x = values((40, 20), dtype)
    numbers = np.random.default_rng(1).integers(0, 40, index_shape).astype(np.uint32)
    rows = numbers.T.flatten()[:count]
    same_bits(simulate(kernel)(x, numbers), np.ascontiguousarray(x[rows].T))


@pytest.mark.parametrize("sizes", [(1, 6), (6, 1)])
def test_transpose_of_gathered_rows_with_four_dimensions(sizes):
    def kernel(x, numbers):
        _, a, b, c = x.shape
        dst = nl.ndarray((c, a, b, 32), dtype=x.dtype)
        src = x.ap([[a * b * c, 32], [b * c, a], [c, b], [1, c]], vector_offset=load(numbers))
        nisa.dma_transpose(dst=dst, src=src)
        return save(dst)

    x = values((10, *sizes, 8), BF)
    numbers = np.random.default_rng(2).integers(0, 10, (32, 1)).astype(np.uint32)
    expected = x[numbers[:, 0]].transpose(3, 1, 2, 0)
    same_bits(simulate(kernel)(x, numbers), np.ascontiguousarray(expected))


def test_transpose_of_gathered_rows_with_three_dimensions():
    def kernel(x, numbers):
        dst = nl.ndarray((8, 3, 16), dtype=x.dtype)
        nisa.dma_transpose(dst=dst, src=x.vector_select(0, load(numbers)))
        return save(dst)

    x = values((10, 3, 8), BF)
    numbers = np.random.default_rng(3).integers(0, 10, (16, 1)).astype(np.uint32)
    expected = x[numbers[:, 0]].transpose(2, 1, 0)
    same_bits(simulate(kernel)(x, numbers), np.ascontiguousarray(expected))


def test_skipped_rows_of_a_transpose():
    def kernel(x, numbers):
        dst = tile((8, 16), BF, value=3.0)
        src = x.vector_select(0, load(numbers))
        nisa.dma_transpose(dst=dst, src=src, oob_mode=OOB.skip)
        return save(dst)

    x, numbers = values((5, 8), BF), np.arange(16, dtype=np.uint32).reshape(16, 1) % 7
    got = simulate(kernel)(x, numbers)
    for place, row in enumerate(numbers[:, 0]):
        expected = x[row] if row < 5 else np.full(8, 3, ml_dtypes.bfloat16)
        same_bits(np.ascontiguousarray(got[:, place]), np.ascontiguousarray(expected))


def test_transpose_at_a_scalar_index():
    def kernel(x, n):
        dst = nl.ndarray((6, 4), dtype=x.dtype)
        nisa.dma_transpose(dst=dst, src=x.select(0, nisa.register_alloc(n)))
        wide = tile((6, 8), x.dtype)
        where = wide.ap([[8, 6], [1, 4]], scalar_offset=nisa.register_alloc(n), indirect_dim=1)
        nisa.dma_transpose(dst=where, src=x[0])
        nisa.dma_transpose(dst=dst, src=x.select(0, nisa.register_alloc(9)), oob_mode=OOB.skip)
        return save(dst), save(wide)

    x = values((3, 4, 6), BF)
    got, wide = simulate(kernel)(x, 2)
    same_bits(got, np.ascontiguousarray(x[2].T))
    same_bits(np.ascontiguousarray(wide[:, 2:6]), np.ascontiguousarray(x[0].T))


def transposed(
    count=16, width=8, dtype=BF, index=((16, 1), "uint32"), shape=None, mode=DGE.unknown,
    oob_mode=OOB.error, vector=True,
):  # fmt: skip
    shape = (count, width) if shape is None else shape
    x = save(tile(shape, dtype)) if len(shape) == 2 else save(tile((shape[0], *shape[1:]), dtype))
    i = tile(*index)
    src = x
    if vector:
        strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
        src = x.ap([[s, n] for s, n in zip(strides, shape)], vector_offset=i)
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    dst = nl.ndarray(tuple(shape[axis] for axis in order), dtype=dtype)
    nisa.dma_transpose(dst=dst, src=src, dge_mode=mode, oob_mode=oob_mode)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("dma-transpose-indirect", {}, {"dtype": F}),
        ("dma-transpose-indirect", {"count": 32, "index": ((32, 1), "uint32")},
         {"count": 24, "index": ((32, 1), "uint32")}),
        ("dma-transpose-indirect", {"shape": (16, 1, 3, 4)}, {"shape": (16, 2, 3, 4)}),
        ("dma-transpose-index", {}, {"index": ((16, 1), "int32")}),
        ("dma-transpose-index", {"index": ((112, 1), "uint32")},
         {"index": ((120, 1), "uint32")}),
        ("dma-transpose-index", {"index": ((128, 2), "uint32")},
         {"index": ((112, 2), "uint32")}),
        ("dma-transpose-dge", {"mode": DGE.swdge}, {"mode": DGE.hwdge}),
        ("dma-transpose-dge", {"mode": DGE.unknown}, {"mode": DGE.none}),
        ("dma-oob", {"oob_mode": OOB.skip}, {"oob_mode": OOB.skip, "vector": False}),
    ],
)  # fmt: skip
def test_rules_of_transposes_with_indices(rule, good, bad):
    pair(rule, lambda change: transposed(**change), (good,), (bad,))


def test_transposes_with_indices_need_gen3(on_target):
    simulate(transposed)()
    on_target("trn1")
    refused("target", transposed)
