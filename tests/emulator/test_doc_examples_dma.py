"""deep-dives/nki-dge.rst, about/nki-dma-overview.rst and the stubs of the DMA instructions."""

from .support import (
    load,
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

DGE = nisa.dge_mode


@pytest.mark.parametrize("mode", list(DGE))
def test_every_mode_makes_a_static_copy(mode):
    """nki-dge.rst, "DGE Modes": a copy with static addresses works in any of them, by name too."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x, dge_mode=mode, name="load")
        return save(t)

    x = values((8, 16))
    same_bits(kernel(x), x)


def test_the_engine_that_triggers_hardware_dge():
    """nki-dge.rst, "hwdge": engine.scalar or engine.sync, with hwdge only."""

    def kernel(mode, engine):
        t = nl.ndarray((4, 4), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=tile((4, 4)), dge_mode=mode, engine=engine)  # rule

    for engine in (nisa.engine.scalar, nisa.engine.sync):
        pair("dma-engine", kernel, (DGE.hwdge, engine), (DGE.swdge, engine))
    pair("enum", kernel, (DGE.hwdge, nisa.engine.sync), (DGE.hwdge, nisa.engine.vector))


def test_hardware_dge_needs_neuroncore_v3(on_target):
    """nki-dge.rst, "Mode Selection Summary"."""

    def kernel(mode):
        nisa.dma_copy(dst=nl.ndarray((4, 4), dtype=nl.float32), src=tile((4, 4)), dge_mode=mode)

    simulate(kernel)(DGE.hwdge)
    on_target("trn1")
    simulate(kernel)(DGE.swdge)
    refused("target", kernel, DGE.hwdge, line="nisa.dma_copy")


def gathered(x, rows, mode):
    source = x.ap([[x.shape[1], 4], [1, x.shape[1]]], vector_offset=load(rows), indirect_dim=0)
    t = nl.ndarray((4, x.shape[1]), dtype=x.dtype)
    nisa.dma_copy(dst=t, src=source, dge_mode=mode)  # rule
    return save(t)


def test_only_software_dge_gathers():
    """nki-dge.rst, "How .ap() Affects DGE Mode": vector_offset needs unknown or swdge."""
    x, rows = values((8, 3)), np.array([[5], [0], [5], [7]], np.int32)
    for good in (DGE.unknown, DGE.swdge):
        for bad in (DGE.none, DGE.hwdge):
            pair("dma-dge-dynamic", gathered, (x, rows, good), (x, rows, bad))
    same_bits(simulate(gathered)(x, rows, DGE.unknown), x[rows[:, 0]])


def test_descriptors_from_the_host_know_no_run_time_address():
    """nki-dge.rst, "none": it cannot handle dynamic addresses."""

    def kernel(x, mode):
        t = nl.ndarray((2, 3), dtype=x.dtype)
        source = x.ap([[3, 2], [1, 3]], scalar_offset=nisa.register_alloc(4))
        nisa.dma_copy(dst=t, src=source, dge_mode=mode)  # rule
        return save(t)

    x = values((8, 3))
    for mode in (DGE.unknown, DGE.swdge, DGE.hwdge):
        pair("dma-dge-dynamic", kernel, (x, mode), (x, DGE.none))
        same_bits(simulate(kernel)(x, mode), x[4:6])


# The stub of dma_copy.


def test_gather_and_scatter():
    """Stub of dma_copy: indirect gather on src, indirect scatter on dst."""

    @nki.jit
    def gather(x, rows):
        count, width = rows.shape[0], x.shape[1]
        t = nl.ndarray((count, width), dtype=x.dtype, buffer=nl.sbuf)
        pattern = [[width, count], [1, width]]
        nisa.dma_copy(dst=t, src=x.ap(pattern, vector_offset=load(rows), indirect_dim=0))
        return save(t)

    @nki.jit
    def scatter(x, rows, out):
        count, width = x.shape
        pattern = [[width, count], [1, width]]
        target = out.ap(pattern, vector_offset=load(rows), indirect_dim=0)
        nisa.dma_copy(dst=target, src=load(x))
        return out

    x = values((6, 5))
    rows = np.array([[4], [1], [3]], np.uint32)
    same_bits(gather(x, rows), x[rows[:, 0]])
    out = np.zeros_like(x)
    scatter(x[:3], rows, out)
    expected = np.zeros_like(x)
    expected[rows[:, 0]] = x[:3]
    same_bits(out, expected)


def test_indices_out_of_bounds():
    """Stub of dma_copy, oob_mode: an error, or the transfer is skipped and dst stays."""

    def kernel(x, rows, mode):
        t = tile((3, 4), nl.int32, value=-1)
        source = x.ap([[4, 3], [1, 4]], vector_offset=load(rows), indirect_dim=0)
        nisa.dma_copy(dst=t, src=source, oob_mode=mode)  # rule
        return save(t)

    error, skip = nisa.oob_mode.error, nisa.oob_mode.skip
    x = values((5, 4), "int32") + 2**24
    inside, outside = np.array([[0], [4], [2]], np.int32), np.array([[0], [5], [2]], np.int32)
    pair("dynamic-out-of-bounds", kernel, (x, inside, error), (x, outside, error))
    got = simulate(kernel)(x, outside, skip)
    same_bits(got, np.stack([x[0], np.full(4, -1, np.int32), x[2]]))

    def static(mode):
        nisa.dma_copy(dst=tile((2, 2)), src=tile((2, 2)), oob_mode=mode)  # rule

    pair("dma-oob", static, error, skip)


@pytest.mark.parametrize("source, target", [("float32", "bfloat16"), ("bfloat16", "float16")])
def test_a_copy_converts_through_float32(source, target):
    """Stub of dma_copy, "Data types"; nki-dma-overview.rst, "Basic DMA Capabilities"."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=target)
        nisa.dma_copy(dst=t, src=x)
        return save(t)

    x = values((4, 6), source)
    same_bits(kernel(x), rounded(x, target))


def test_a_copy_of_integers_beyond_float32():
    """nki-dma-overview.rst: the cast goes through float32, worth considering for integers."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=nl.uint32)
        nisa.dma_copy(dst=t, src=x)
        return save(t)

    assert kernel(np.array([[2**24 + 1]], np.int32)).item() == 2**24


def test_elements_are_counted_and_shapes_may_differ():
    """Stub of dma_copy, "Tile size"."""

    def kernel(shape):
        t = nl.ndarray(shape, dtype=nl.float32)
        nisa.dma_copy(dst=t, src=tile((4, 6)))  # rule

    pair("dma-size", kernel, ((2, 12),), ((2, 11),))


def test_directions():
    """nki-dma-overview.rst: HBM to SBUF and back, within HBM, within SBUF."""

    @nki.jit
    def kernel(x):
        first = load(x)
        second = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.dma_copy(dst=second, src=first)
        private = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=private, src=second)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=private)
        return out

    x = values((4, 4096), "bfloat16")
    same_bits(kernel(x), x)


# The stub of dma_transpose.


@pytest.mark.parametrize(
    "shape, axes", [((16, 8), (1, 0)), ((4, 3, 8), (2, 1, 0)), ((4, 3, 2, 8), (3, 1, 2, 0))]
)
@pytest.mark.parametrize("place", ["hbm", "sbuf"])
def test_transposes_by_rank(shape, axes, place):
    """Stub of dma_transpose: the permutation follows from the rank."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(tuple(x.shape[axis] for axis in axes), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=t, src=load(x) if place == "sbuf" else x)
        return save(t)

    x = values(shape, "bfloat16")
    same_bits(kernel(x), np.ascontiguousarray(x.transpose(axes)))


def test_a_hardware_transpose():
    """Stub of dma_transpose, "DMA Direct Transpose Constraints"."""

    def kernel(shape, dtype):
        x = nl.ndarray(shape, dtype=dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=x, src=tile(shape, dtype))
        axes = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]
        t = nl.ndarray(tuple(shape[axis] for axis in axes), dtype=dtype)
        nisa.dma_transpose(dst=t, src=x, dge_mode=DGE.hwdge)  # rule

    rule, half = "dma-transpose-hwdge", nl.bfloat16
    pair(rule, kernel, ((16, 128), half), ((32, 128), half))
    pair(rule, kernel, ((16, 128), half), ((16, 128), nl.float32))
    pair(rule, kernel, ((4, 4, 64), half), ((4, 3, 64), half))
    pair(rule, kernel, ((8, 3, 2, 128), half), ((8, 3, 1, 128), half))
    pair(rule, kernel, ((1, 1, 16, 128), half), ((3, 1, 16, 128), half))


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("rank", [2, 4])
def test_a_gather_that_transposes(columns, rank):
    """Stub of dma_transpose, indirect examples: ``src[indices.T.flatten()].T``."""
    count, inner = 128 * columns, (2, 1, 6) if rank == 4 else (6,)

    @nki.jit
    def kernel(x, indices):
        width = int(np.prod(inner))
        pattern = [[width, count], *[[width // int(np.prod(inner[: i + 1])), n] for i, n in
                                     enumerate(inner)]]  # fmt: skip
        source = x.ap(pattern, vector_offset=nl.load(indices), indirect_dim=0)
        axes = (3, 1, 2, 0) if rank == 4 else (1, 0)
        t = nl.ndarray(tuple(source.shape[axis] for axis in axes), dtype=x.dtype)
        nisa.dma_transpose(dst=t, src=source, axes=axes, dge_mode=DGE.swdge)
        return save(t)

    x = values((300, *inner), "float16")
    indices = np.random.default_rng(0).permutation(300)[:count].astype(np.uint32)
    indices = indices.reshape(128, columns)
    rows = x[indices.T.flatten()]
    expected = rows.transpose((3, 1, 2, 0) if rank == 4 else (1, 0))
    same_bits(kernel(x, indices), np.ascontiguousarray(expected))


# The stub of dma_compute, and the migration guide on dma_copy(dst_rmw_op=...).


def test_sums_of_many_sources():
    """Stub of dma_compute: the sum in float32, cast at the end; at most 16 sources."""

    @nki.jit
    def kernel(x):
        sources = [x[i] for i in range(x.shape[0])]
        t = nl.ndarray(x.shape[1:], dtype=x.dtype)
        nisa.dma_compute(t, sources, reduce_op=nl.add, scales=[1.0] * x.shape[0])  # rule
        return save(t)

    x = values((16, 4, 6), "bfloat16")
    total = x[0].astype(np.float32)
    for part in x[1:]:
        total = total + part.astype(np.float32)
    same_bits(kernel(x), rounded(total, "bfloat16"))
    pair("dma-compute-sources", kernel.function, x, values((17, 4, 6), "bfloat16"))


def test_rows_added_up():
    """Migration guide, "dst_rmw_op and unique_indices removed": a copy, then additions."""

    @nki.jit
    def kernel(x, rows):
        total = nl.ndarray((4, 5), dtype=nl.float32)
        for k in range(rows.shape[1]):
            chosen = load(rows[:, k : k + 1])
            source = x.ap([[5, 4], [1, 5]], vector_offset=chosen, indirect_dim=0)
            if k == 0:
                nisa.dma_copy(dst=total, src=source)
            else:
                nisa.dma_compute(dst=total, srcs=[source, total], reduce_op=nl.add)
        return save(total)

    x = values((9, 5))
    rows = np.array([[0, 8, 4], [1, 7, 4], [2, 6, 4], [3, 5, 3]], np.int32)
    expected = x[rows[:, 0]]
    for k in (1, 2):
        expected = x[rows[:, k]] + expected
    same_bits(kernel(x, rows), expected)


def test_adding_to_rows():
    """Stub of dma_compute, "Scatter RMW": dst in HBM, once as dst and once as a source."""

    @nki.jit
    def kernel(out, x, rows):
        target = out.ap([[5, 3], [1, 5]], vector_offset=load(rows), indirect_dim=0)
        nisa.dma_compute(dst=target, srcs=[target, load(x)], reduce_op=nl.add)
        return out

    out, x = values((6, 5)), values((3, 5), seed=1)
    rows = np.array([[5], [0], [2]], np.int32)
    expected = out.copy()
    expected[rows[:, 0]] += x
    same_bits(kernel(out.copy(), x, rows), expected)
