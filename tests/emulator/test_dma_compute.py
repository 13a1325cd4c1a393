"""dma_compute: sums while data moves, and additions to rows and of rows chosen at run time."""

from .support import (
    NUMPY,
    load,
    nisa,
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

F, BF = "float32", "bfloat16"
OOB = nisa.oob_mode
DTYPES = sorted(set(NUMPY) - {"float8_e8m0fnu", "bool"})


def stored(array, dtype):
    """float32 values in a dtype, as an engine writes them."""
    if "int" in dtype:
        limits = np.iinfo(NUMPY[dtype])
        return np.clip(np.rint(array.astype(np.float64)), limits.min, limits.max).astype(
            NUMPY[dtype]
        )
    return rounded(array, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", [F, BF, "int16"])
def test_two_sources(dtype, target):
    def kernel(x, y):
        dst = nl.ndarray(x.shape, dtype=target)
        nisa.dma_compute(dst, [x, load(y)], nl.add)
        return save(dst)

    x, y = values((5, 7), dtype), values((5, 7), dtype, seed=1)
    total = x.astype(np.float32) + y.astype(np.float32)
    same_bits(simulate(kernel)(x, y), stored(total, target))


@pytest.mark.parametrize("count", [2, 3, 16])
def test_many_sources_add_in_order_in_float32(count):
    def kernel(x, dst):
        nisa.dma_compute(dst, tuple(x[i] for i in range(count)), nl.add, scales=[1.0] * count)

    x = (values((count, 4, 6)) * 1e3).astype(np.float32)
    dst = np.zeros((4, 6), np.float32)
    simulate(kernel)(x, dst)
    expected = x[0]
    for row in x[1:]:
        expected = expected + row
    same_bits(dst, expected)


def test_destination_among_the_sources_shapes_and_views():
    def kernel(x, y):
        t = load(x)
        nisa.dma_compute(t[:, 1:4], [t[:, 1:4], y.permute((1, 0))], nl.add)
        nisa.dma_compute(dst=t, srcs=[t, x.reshape((20,))], reduce_op=nl.add, scales=None)
        return save(t)

    x, y = values((4, 5)), values((3, 4))
    expected = x.copy()
    expected[:, 1:4] += y.T
    same_bits(simulate(kernel)(x, y), expected + x)


# Rows chosen at run time.


def at(*rows):
    return np.array(rows, np.int32).reshape(-1, 1)


@pytest.mark.parametrize("dtype", [F, BF, "int32"])
@pytest.mark.parametrize("rows_first", [False, True])
def test_addition_of_rows(dtype, rows_first):
    def kernel(x, y, numbers):
        t, gathered = load(y), x.vector_select(0, load(numbers))
        nisa.dma_compute(t, [gathered, t] if rows_first else [t, gathered], nl.add)
        return save(t)

    x, y = values((9, 4), dtype), values((3, 4), dtype, seed=1)
    total = y.astype(np.float32) + x[[7, 0, 7]].astype(np.float32)
    same_bits(simulate(kernel)(x, y, at(7, 0, 7)), stored(total, dtype))


@pytest.mark.parametrize("dtype", [F, BF, "int32"])
@pytest.mark.parametrize("rows_first", [False, True])
def test_addition_to_rows(dtype, rows_first):
    def kernel(out, y, numbers):
        i, t = load(numbers), load(y)
        rows = out.ap([[4, 3], [1, 4]], vector_offset=i)
        again = out.ap([[4, 3], [1, 4]], vector_offset=i)
        nisa.dma_compute(rows, [again, t] if rows_first else [t, again], nl.add)

    out, y = values((9, 4), dtype), values((3, 4), dtype, seed=1)
    expected = out.copy()
    total = out[[7, 0, 2]].astype(np.float32) + y.astype(np.float32)
    expected[[7, 0, 2]] = stored(total, dtype)
    simulate(kernel)(out, y, at(7, 0, 2))
    same_bits(out, expected)


def test_skipped_rows():
    def gather(x, y, numbers):
        t = load(y)
        rows = x.vector_select(0, load(numbers))
        nisa.dma_compute(t, [rows, t], nl.add, oob_mode=OOB.skip)
        return save(t)

    def scatter(out, y, numbers):
        rows = out.vector_select(0, load(numbers))
        nisa.dma_compute(rows, [rows, load(y)], nl.add, oob_mode=OOB.skip)

    x, y = values((6, 4)), values((3, 4), seed=1)
    numbers = at(2, 6, -1)
    expected = y.copy()
    expected[0] += x[2]
    same_bits(simulate(gather)(x, y, numbers), expected)
    out, expected = x.copy(), x.copy()
    expected[2] += y[0]
    simulate(scatter)(out, y, numbers)
    same_bits(out, expected)


def test_an_index_out_of_bounds_is_an_error_by_default():
    def kernel(numbers):
        t, rows = tile((2, 4)), save(tile((6, 4))).vector_select(0, load(numbers))
        nisa.dma_compute(t, [rows, t], nl.add)  # rule

    pair("dynamic-out-of-bounds", kernel, at(5, 0), at(6, 0))


def test_rows_that_are_added_to_are_unique():
    def kernel(numbers):
        rows = save(tile((6, 4))).vector_select(0, load(numbers))
        nisa.dma_compute(rows, [rows, tile((2, 4))], nl.add)  # rule

    pair("dma-compute-unique", kernel, at(5, 0), at(5, 5))


# Rules.


def summed(
    dst=((4, 6), F, nl.sbuf), srcs=(((4, 6), F, nl.sbuf),) * 2, op=nl.add, **options
):  # fmt: skip
    sources = [tile(shape, dtype, buffer) for shape, dtype, buffer in srcs]
    nisa.dma_compute(tile(*dst), sources, op, **options)  # rule


ONE = ((4, 6), F, nl.sbuf)


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("dma-compute-sources", {}, {"srcs": (ONE,)}),
        ("dma-compute-sources", {"srcs": (ONE,) * 16}, {"srcs": (ONE,) * 17}),
        ("dma-size", {"srcs": (ONE, ((6, 4), F, nl.sbuf))},
         {"srcs": (ONE, ((4, 5), F, nl.sbuf))}),
        ("dma-psum", {}, {"dst": ((4, 6), F, nl.psum)}),
        ("dma-psum", {}, {"srcs": (ONE, ((4, 6), F, nl.psum))}),
        ("packed-dtype", {}, {"srcs": (ONE, ((4, 6), "float8_e5m2_x4", nl.sbuf))}),
        ("operator-reduce", {}, {"op": nl.maximum}),
        ("operator", {}, {"op": "add"}),
        ("dma-compute-scales", {"scales": (1.0, 1)}, {"scales": (1.0, 2.0)}),
        ("dma-compute-scales", {"scales": (1.0, 1.0)}, {"scales": (1.0,)}),
        ("dma-compute-scales", {"scales": None}, {"scales": 1.0}),
        ("enum", {"oob_mode": OOB.error}, {"oob_mode": 0}),
        ("dma-oob", {"oob_mode": OOB.error}, {"oob_mode": OOB.skip}),
    ],
)  # fmt: skip
def test_rules(rule, good, bad):
    pair(rule, lambda change: summed(**change), (good,), (bad,))


def test_sources_are_a_list_of_tensors():
    def kernel(source):
        t = tile((4, 6))
        nisa.dma_compute(t, [t, source or t], nl.add)  # rule

    def alone(listed):
        t = tile((4, 6))
        nisa.dma_compute(t, [t, t] if listed else t, nl.add)  # rule

    pair("operand-type", kernel, None, 1.0)
    pair("dma-compute-sources", alone, True, False)


def updated(form, unique=True, scalar=False):
    """The two documented forms of an update, and near misses."""
    x, t, other = save(tile((6, 4))), tile((2, 4)), tile((2, 4))
    i, j = tile((2, 1), nl.int32), tile((2, 1), nl.int32)
    nisa.iota(i, [[1, 1]], channel_multiplier=1)
    nisa.iota(j, [[1, 1]], channel_multiplier=1)
    rows = x.vector_select(0, i)
    if scalar:
        rows = x.ap([[4, 2], [1, 4]], scalar_offset=nisa.register_alloc(0))
    dst, srcs = {
        "gather": (t, [rows, t]),
        "scatter": (rows, [rows, t]),
        "three sources": (t, [rows, t, t]),
        "another destination": (other, [rows, t]),
        "another index": (rows, [x.vector_select(0, j), t]),
        "source in hbm": (rows, [rows, save(t)]),
        "rows twice": (rows, [rows, rows]),
        "destination in hbm": (x[0:2], [rows, x[0:2]]),
        "rows of another tensor": (rows, [save(tile((6, 4))).vector_select(0, i), t]),
    }[form]
    nisa.dma_compute(dst, srcs, nl.add, unique_indices=unique)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("dma-compute-match", ("gather",), ("another destination",)),
        ("dma-compute-match", ("gather",), ("destination in hbm",)),
        ("dma-compute-match", ("scatter",), ("another index",)),
        ("dma-compute-match", ("scatter",), ("source in hbm",)),
        ("dma-compute-match", ("scatter",), ("rows twice",)),
        ("dma-compute-match", ("scatter",), ("rows of another tensor",)),
        ("dma-compute-rows", ("gather",), ("three sources",)),
        ("dma-compute-rows", ("scatter", True), ("scatter", False)),
        ("dma-compute-address", ("gather",), ("gather", True, True)),
    ],
)
def test_rules_of_updates(rule, good, bad):
    pair(rule, updated, good, bad)


def test_updates_need_gen3(on_target):
    simulate(updated)("gather")
    on_target("trn1")
    refused("target", lambda: updated("gather"))
    simulate(summed)()
