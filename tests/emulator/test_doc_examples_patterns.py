"""deep-dives/nki-aps.rst, get-started/about/indexing-overview.rst and the stub of NkiTensor."""

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
)  # fmt: skip


def looped(flat, pattern, offset=0):
    """The access as loops: deep-dives/nki-aps.rst, "Semantics of the Access Pattern"."""
    steps = [np.arange(count) * step for step, count in pattern]
    index = offset
    for axis, step in enumerate(steps):
        index = index + step.reshape([-1 if i == axis else 1 for i in range(len(steps))])
    return flat.reshape(-1)[index]


@pytest.mark.parametrize(
    "pattern, offset",
    [
        ([[60, 6], [20, 3], [5, 4], [1, 5]], 0),
        ([[60, 4], [1, 5], [20, 3], [10, 2]], 2),  # dimensions in another order
        ([[60, 6], [1, 30]], 30),  # the second half of each partition
        ([[60, 3], [0, 4], [3, 20]], 1),  # the same elements again and again
    ],
)
def test_an_access_pattern_is_a_loop(pattern, offset):
    """Section "Semantics of the Access Pattern", and the shape of the view is the pattern's."""

    def kernel(x):
        view = load(x).ap(pattern=pattern, offset=offset)
        assert view.shape == tuple(count for _, count in pattern)
        return save(view)

    x = values((6, 60))
    same_bits(simulate(kernel)(x), looped(x, pattern, offset))


def test_view_primitives_build_patterns():
    """Section "View Primitives Build APs at Specialization Time"."""

    def kernel():
        t = nl.ndarray((32, 20), dtype=nl.float32, buffer=nl.sbuf)
        sliced = t.slice(dim=1, start=4, end=16)
        assert sliced.get_pattern() == [[20, 32], [1, 12]] and sliced.offset == 4
        same = t.ap(pattern=[[20, 32], [1, 12]], offset=4)
        assert same.get_pattern() == sliced.get_pattern() and same.offset == sliced.offset
        chained = t.slice(0, 0, 32).slice(1, 0, 20, step=2).slice(0, 0, 8).slice(1, 0, 4)
        assert chained.shape == (8, 4) and chained.strides == (20, 2)

    simulate(kernel)()


def test_the_partition_is_not_stepped_over():
    """Section "Restriction on SBUF/PSUM Tensors": the leading step is the free size."""

    def kernel(step):
        tile((16, 8)).ap(pattern=[[step, 8], [1, 8]], offset=0)  # rule

    pair("ap-partition-stride", kernel, 8, 16)

    def free_size(step):
        tile((16, 4, 6)).ap(pattern=[[step, 8], [1, 6]])  # rule

    pair("ap-partition-stride", free_size, 24, 6)


def test_the_outer_pattern_replaces_the_inner_one():
    """Section "Composition and .ap on a view"."""

    def kernel(x):
        t = load(x)
        inner = t.ap(pattern=[[12, 4], [2, 6]])
        return save(inner.ap(pattern=[[12, 4], [1, 3]]))

    x = values((4, 12))
    same_bits(simulate(kernel)(x), np.ascontiguousarray(x[:, :3]))


def test_a_pattern_of_another_dtype_counts_its_own_elements():
    """Section "Reinterpret Cast with ap": int32 as bfloat16 has twice as many; so does view."""

    def kernel(x):
        t = load(x)
        cast = t.ap(pattern=[[16, 4], [1, 16]], offset=0, dtype=nl.bfloat16)
        assert cast.shape == t.view(nl.bfloat16).shape == (4, 16)
        return save(cast), save(t.view(nl.bfloat16))

    x = np.arange(32, dtype=np.int32).reshape(4, 8) * 77777
    first, second = simulate(kernel)(x)
    np.testing.assert_array_equal(first.view(np.uint16), x.view(np.uint16))
    np.testing.assert_array_equal(second.view(np.uint16), x.view(np.uint16))


# Run-time addresses.


@pytest.mark.parametrize("how", ["select", "ap"])
def test_a_batch_chosen_at_run_time(how):
    """Section "Scalar Dynamic Access": select of a batch, or rows from a run-time row on."""

    @nki.jit
    def kernel(batches, which):
        index = load(which)
        out = nl.ndarray((8, 6), dtype=batches.dtype, buffer=nl.shared_hbm)
        if how == "select":
            source = batches.select(0, index)
        else:
            rows = batches.reshape((32, 6))
            source = rows.ap([[6, 8], [1, 6]], offset=0, scalar_offset=index, indirect_dim=0)
        assert source.shape == (8, 6) and source.is_indirect()
        nisa.dma_copy(src=source, dst=out[...])
        return out

    x = values((4, 8, 6))
    for batch in range(4):
        index = np.array([[batch if how == "select" else 8 * batch]], np.int32)
        same_bits(kernel(x, index), x[batch])


def test_the_offset_is_scaled_by_the_tensor_and_not_by_the_pattern():
    """Section "Scalar Dynamic Access": offset + index * product of the sizes to the right."""

    @nki.jit
    def kernel(x, which):
        register = nisa.register_alloc()
        nisa.register_load(register, which)
        return save(
            _loaded(x.ap([[2, 3], [1, 2]], offset=1, scalar_offset=register, indirect_dim=1))
        )

    def _loaded(view):
        t = nl.ndarray(view.shape, dtype=view.dtype)
        nisa.dma_copy(dst=t, src=view)
        return t

    x = values((2, 5, 4))
    expected = x.reshape(-1)[1 + 3 * 4 :][:6].reshape(3, 2)
    same_bits(kernel(x, np.array([3], np.int32)), expected)


def test_one_run_time_index_a_view_and_never_of_the_partition():
    """Section "Scalar Dynamic Access": no chaining, and not dimension 0 on the chip."""

    def chained(again):
        h = nl.ndarray((4, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        index = tile((1, 1), nl.int32)
        h.select(0, index).select(0, index if again else 1)  # rule

    pair("dynamic-view", chained, False, True)

    def on_chip(dim):
        tile((4, 4, 8)).select(dim, tile((1, 1), nl.int32))  # rule

    pair("dynamic-select", on_chip, 1, 0)


@pytest.mark.parametrize("how", ["vector_select", "ap", "ap with a stride that is ignored"])
def test_rows_chosen_at_run_time(how):
    """Section "Vector Dynamic Access": partition p reads row index[p]."""

    @nki.jit
    def gather(x):
        rows = nl.ndarray((6, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(rows, [[1, 1]], 0, 2)
        out = nl.ndarray((6, 5), dtype=x.dtype, buffer=nl.shared_hbm)
        if how == "vector_select":
            source = x.vector_select(0, rows)
        else:
            pattern = [[5 if how == "ap" else 3, 6], [1, 5]]
            source = x.ap(pattern, 0, vector_offset=rows, indirect_dim=0)
        assert source.shape == (6, 5)
        nisa.dma_copy(src=source, dst=out[...], name="gather")
        return out

    x = values((12, 5))
    same_bits(gather(x), np.ascontiguousarray(x[::2]))


def test_vector_indices_are_of_the_first_dimension_in_hbm():
    """Section "Vector Dynamic Access": indirect_dim 0 only, and the tensor in HBM."""

    def kernel(dim):
        h = nl.ndarray((8, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        rows = tile((2, 1), nl.int32)
        h.ap([[4, 2], [1, 1]], vector_offset=rows, indirect_dim=dim)  # rule

    pair("ap-vector-offset", kernel, 0, 1)

    def place(buffer):
        t = nl.ndarray((8, 4), dtype=nl.float32, buffer=buffer)
        t.vector_select(0, tile((2, 1), nl.int32))  # rule

    pair("vector-buffer", place, nl.shared_hbm, nl.sbuf)


# get-started/about/indexing-overview.rst.


def test_basic_indexing_of_hbm_tensors():
    """indexing-overview.rst, "Basic Tensor Indexing"."""

    def kernel(x):
        assert x[1].shape == x[1, :, :].shape == (6, 8)
        assert x[1, :, 0:4].shape == (6, 4)
        assert x[:, 1, 0:2].shape == (2, 2)
        return save(load(x[:, 1, 0:2]))

    x = values((2, 6, 8))
    same_bits(simulate(kernel)(x), np.ascontiguousarray(x[:, 1, 0:2]))


def test_even_and_odd_columns():
    """indexing-overview.rst, case 1: two results from strided slices of one tile."""

    @nki.jit
    def split(x):
        width = x.shape[1]
        even = nl.ndarray((x.shape[0], width - width // 2), dtype=x.dtype, buffer=nl.shared_hbm)
        odd = nl.ndarray((x.shape[0], width // 2), dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.store(even, value=t[:, 0:width:2])
        nl.store(odd, value=t[:, 1:width:2])
        return even, odd

    x = values((4, 5), "bfloat16")
    even, odd = split(x)
    same_bits(even, np.ascontiguousarray(x[:, ::2]))
    same_bits(odd, np.ascontiguousarray(x[:, 1::2]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [2, 3])
def test_pooling(dtype, size):
    """indexing-overview.rst, case 3: a pattern of five dimensions, reduced over the last two."""

    @nki.jit
    def pool(x, size):
        channels, height, width = x.shape
        rows, columns = height // size, width // size
        out = nl.ndarray((channels, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
        windows = nl.load(x).ap(
            [
                [height * width, channels], [size * width, rows], [size, columns], [width, size],
                [1, size],
            ]
        )  # fmt: skip
        nl.store(out, value=nl.max(windows, axis=[3, 4]))
        return out

    x = values((3, 6, 12), dtype)
    windows = x.reshape(3, 6 // size, size, 12 // size, size)
    same_bits(pool(x, size), windows.astype(np.float32).max(axis=(2, 4)).astype(x.dtype))


# The examples of the view methods, api/nki/language: NkiTensor.

VIEWS = [
    ((16, 8), lambda t: t.slice(1, 2, 6, 1), (16, 4)),
    ((16, 8), lambda t: t.slice(1, 0, 8, 2), (16, 4)),
    ((16, 8), lambda t: t[..., 0], (16, 1)),
    ((16, 8), lambda t: t[nl.ds(2, 8), :], (8, 8)),
    ((16, 4, 8), lambda t: t.select(1, 3), (16, 8)),
    ((16, 4, 8), lambda t: t.permute((0, 2, 1)), (16, 8, 4)),
    ((16, 1, 8), lambda t: t.broadcast(1, 4), (16, 4, 8)),
    ((16, 8), lambda t: t.expand_dim(1), (16, 1, 8)),
    ((16, 1, 8), lambda t: t.squeeze_dim(1), (16, 8)),
    ((16, 24), lambda t: t.reshape_dim(1, (4, 6)), (16, 4, 6)),
    ((16, 24), lambda t: t.reshape_dim(1, (4, -1)), (16, 4, 6)),
    ((16, 2, 3, 4), lambda t: t.flatten_dims(1, 2), (16, 6, 4)),
    ((16, 4, 6), lambda t: t.reshape((16, 2, 12)), (16, 2, 12)),
    ((16, 24), lambda t: t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}), (16, 6, 4)),
    ((16, 8), lambda t: t.view(nl.uint8), (16, 32)),
    ((16, 8), lambda t: t.view(nl.int32), (16, 8)),
    ((16, 8), lambda t: t.reinterpret_cast(nl.float16), (16, 16)),
]


@pytest.mark.parametrize("shape, view, expected", VIEWS)
def test_view_methods(shape, view, expected):
    """The example in the docstring of each view method."""

    def kernel(x):
        t = view(load(x))
        assert t.shape == expected
        return save(t)

    assert simulate(kernel)(values(shape)).shape == expected


def test_a_wider_view_of_bytes():
    """NkiTensor.view: 32 bytes are 8 float32 elements."""

    def kernel(x):
        t = load(x).view(nl.float32)
        assert t.shape == (16, 8)
        return save(t)

    x = values((16, 8))
    same_bits(simulate(kernel)(x.view(np.uint8)), x)


CONSTRAINTS = [
    ("permute", lambda t: t.permute((0, 1, 1))),
    ("partition-dim", lambda t: t.permute((1, 0, 2))),
    ("broadcast", lambda t: t.broadcast(1, 2)),
    ("partition-dim", lambda t: t[0:1].broadcast(0, 2)),
    ("partition-dim", lambda t: t.expand_dim(0)),
    ("squeeze", lambda t: t.squeeze_dim(1)),
    ("reshape", lambda t: t.reshape_dim(1, (3, 2))),
    ("partition-dim", lambda t: t.reshape_dim(0, (2, 4))),
    ("reshape-layout", lambda t: t.permute((0, 2, 1)).flatten_dims(1, 2)),
    ("partition-dim", lambda t: t.flatten_dims(0, 1)),
    ("reshape", lambda t: t.reshape((8, 4, 5))),
    ("partition-dim", lambda t: t.reshape((4, 8, 6))),
    ("out-of-bounds", lambda t: t.slice(1, 0, 5)),
    ("out-of-bounds", lambda t: t.slice(1, 2, 2)),
    ("slice-step", lambda t: t.slice(1, 0, 4, 0)),
    ("out-of-bounds", lambda t: t.select(1, 4)),
    ("view-dtype", lambda t: t.permute((0, 2, 1)).view(nl.uint8)),
    ("view-dtype", lambda t: t[:, :, 0:5].view(nl.uint8).slice(2, 0, 18).view(nl.float32)),
]


@pytest.mark.parametrize("rule, view", CONSTRAINTS)
def test_constraints_of_view_methods(rule, view):
    """The constraints in the docstring of each view method."""

    def kernel():
        view(tile((8, 4, 6)))

    refused(rule, kernel, line="lambda t")
