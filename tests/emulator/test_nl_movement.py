"""nki.language that moves tiles: load, store, copy, transpose, broadcast, matmul, where, gather."""

from nki_emulator import record

from .numeric import DTYPES, FLOATS, INTEGERS, converted, f32
from .support import (
    NUMPY,
    load,
    nisa,
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

P, S = nl.psum, nl.sbuf
PLAIN = ("float32", "bfloat16", "int16")


# load and store.


@pytest.mark.parametrize("dtype", DTYPES)
def test_load_and_store(dtype):
    def kernel(x):
        loaded = nl.load(x)
        assert loaded.buffer == nl.sbuf and loaded.shape == x.shape
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        assert nl.store(out, loaded) is None
        return out

    x = values((9, 5, 4), dtype)
    same_bits(simulate(kernel)(x), x)


@pytest.mark.parametrize("source", PLAIN)
@pytest.mark.parametrize("target", PLAIN)
def test_load_converts(source, target):
    def kernel(x):
        return save(nl.load(x, dtype=target))

    x = values((9, 5), source)
    same_bits(simulate(kernel)(x), x if source == target else converted(f32(x), target))


def test_load_and_store_of_views():
    def kernel(x, out):
        part = nl.load(x[4:9, ::2])
        nl.store(out[1:6, 2:5], value=part)
        nl.store(dst=out[0:1, 0:3], value=part[2:3])  # Another partition than 0 is DMA's business.

    x, out = values((12, 6)), np.zeros((8, 6), np.float32)
    expected = out.copy()
    expected[1:6, 2:5] = x[4:9, ::2]
    expected[0, 0:3] = x[6, ::2]
    simulate(kernel)(x, out)
    np.testing.assert_array_equal(out, expected)


def test_load_and_store_where_a_register_says():
    def kernel(x, out, row):
        place = nl.load(row)
        part = nl.load(x.ap([[6, 2], [1, 6]], scalar_offset=place, indirect_dim=0))
        nl.store(out.ap([[6, 2], [1, 6]], scalar_offset=place, indirect_dim=0), part)

    x, out = values((12, 6)), np.zeros((12, 6), np.float32)
    simulate(kernel)(x, out, np.array([[7]], np.int32))
    np.testing.assert_array_equal(out[7:9], x[7:9])
    assert not out[:7].any() and not out[9:].any()


def test_store_needs_as_many_elements():
    def kernel(x, shape):
        nl.store(x, tile(shape))  # rule

    x = values((4, 6))
    pair("dma-size", kernel, (x, (4, 6)), (x, (4, 1)))


def moved(source, stored, x):
    tiles = {"sbuf": tile((4, 4)), "psum": tile((4, 4), buffer=P), "hbm": x, "number": 1.0}
    loaded = nl.load(tiles[source])  # rule
    nl.store(tiles["hbm"], loaded if stored is None else tiles[stored])  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-hbm", ("hbm", None), ("sbuf", None)),
        ("operand-type", ("hbm", None), ("number", None)),
        ("dma-psum", ("hbm", "sbuf"), ("hbm", "psum")),
        ("buffer-on-chip", ("hbm", "sbuf"), ("hbm", "hbm")),
        ("operand-type", ("hbm", "sbuf"), ("hbm", "number")),
    ],
)
def test_load_and_store_rules(rule, good, bad):
    x = values((4, 4))
    pair(rule, moved, (*good, x), (*bad, x))


def test_store_goes_to_hbm():
    def kernel(x, on_chip):
        nl.store(tile((4, 4)) if on_chip else x, tile((4, 4)))  # rule

    x = values((4, 4))
    pair("buffer-hbm", kernel, (x, False), (x, True))


def test_a_tile_has_at_most_128_partitions_and_two_dimensions():
    def kernel(x):
        nl.load(x)  # rule

    pair("partitions", kernel, (values((128, 2)),), (values((129, 2)),))
    refused("rank", kernel, values((128,)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint16"])
@pytest.mark.parametrize("shape", [(7, 128), (300, 9)])
def test_load_transpose2d(dtype, shape):
    def kernel(x):
        return save(nl.load_transpose2d(x)), save(nl.load_transpose2d(x, dtype=nl.float32))

    x = values(shape, dtype)
    same, wide = simulate(kernel)(x)
    same_bits(same, x.T)
    same_bits(wide, f32(x).T)


def test_load_transpose2d_rules():
    def kernel(x, on_chip):
        nl.load_transpose2d(load(x) if on_chip else x)  # rule

    pair("two-dims", kernel, (values((4, 6)), False), (values((4, 6, 2)), False))
    pair("buffer-hbm", kernel, (values((4, 6)), False), (values((4, 6)), True))
    pair("partitions", kernel, (values((4, 128)), False), (values((4, 129)), False))
    pair("dma-transpose-dtype", kernel, (values((4, 6)), False), (values((4, 6), "int8"), False))


# copy.


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", ["float32", "bfloat16", "int8", "float8_e4m3", "bool"])
def test_copy(source, target):
    def kernel(x):
        result = nl.copy(load(x), dtype=target)
        assert result.dtype == target and result.buffer == nl.sbuf
        return save(result)

    x = values((5, 8), source)
    same_bits(simulate(kernel)(x), x if source == target else converted(f32(x), target))


def test_a_copy_has_memory_of_its_own():
    def kernel(x):
        loaded = load(x)
        copied = nl.copy(loaded[:, 1:3])
        nisa.memset(dst=loaded, value=0.0)
        return save(copied)

    x = values((5, 8))
    same_bits(simulate(kernel)(x), np.ascontiguousarray(x[:, 1:3]))


def test_wrappers_of_gathered_tiles(on_target):
    """What the instruction below takes as an indirect view, the wrapper takes."""

    def kernel(x, index):
        gathered = load(x).indirect(load(index))
        return save(nl.copy(gathered)), save(nl.logical_and(gathered, 1)), save(nl.sum(gathered, 1))

    on_target("trn3")
    x = (values((16, 10)) > 0).astype(np.float32)
    index = np.zeros((16, 2), np.uint32)
    index[:, 0], index[:, 1] = 3, 7
    copied, both, total = simulate(kernel)(x, index)
    same_bits(copied, np.repeat(x[:, [3, 7]], 16, axis=1))
    same_bits(both, copied)
    same_bits(total, copied.sum(1, keepdims=True))


# transpose and expand_dims.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint16"])
@pytest.mark.parametrize("shape", [(128, 128), (64, 5), (9, 128)])
def test_transpose(dtype, shape):
    def kernel(x):
        result = nl.transpose(load(x))
        assert result.buffer == nl.psum and result.dtype == dtype
        return save(result)

    x = values(shape, dtype)
    same_bits(simulate(kernel)(x), x.T)


def test_transpose_of_a_view_into_another_dtype():
    def kernel(x):
        return save(nl.transpose(load(x)[:9, ::2], dtype=nl.bfloat16))

    x = values((20, 30))
    same_bits(simulate(kernel)(x), converted(x[:9, ::2].T, "bfloat16"))


def transposed(shape=(8, 6), buffer=S, dtype="float32"):
    nl.transpose(tile(shape, dtype, buffer))  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("two-dims", {}, {"shape": (8, 3, 2)}),
        ("buffer-sbuf", {}, {"buffer": P}),
        ("transpose-8-bit", {"dtype": "uint16"}, {"dtype": "uint8"}),
    ],
)
def test_transpose_rules(rule, good, bad):
    pair(rule, lambda change: transposed(**change), (good,), (bad,))


def test_transpose_takes_128_by_128():
    def kernel(width):
        nl.transpose(tile((128, width)))  # rule

    pair("partitions", kernel, 128, 129)


@pytest.mark.parametrize("axis, shape", [(1, (9, 1, 4, 6)), (3, (9, 4, 6, 1)), (-1, (9, 4, 6, 1)),
                                         (-2, (9, 4, 1, 6))])  # fmt: skip
def test_expand_dims(axis, shape):
    def kernel(x):
        loaded = load(x)
        view = nl.expand_dims(loaded, axis)
        nisa.tensor_scalar(view, view, nl.multiply, 2.0)
        return save(view), save(loaded)

    x = values((9, 4, 6))
    expanded, changed = simulate(kernel)(x)
    same_bits(expanded, 2 * x.reshape(shape))
    same_bits(changed, 2 * x)


def test_expand_dims_keeps_the_partition():
    def kernel(axis):
        nl.expand_dims(tile((8, 6)), axis)  # rule

    pair("partition-dim", kernel, 1, 0)
    pair("partition-dim", kernel, -1, -3)
    pair("dim", kernel, 2, 3)


# broadcast_to.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("buffer", [S, P])
def test_broadcast_over_free_dimensions(dtype, buffer):
    def kernel(x):
        moved_ = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        nisa.tensor_copy(dst=moved_, src=load(x))
        result = nl.broadcast_to(moved_, (9, 3, 5))
        assert result.buffer == nl.sbuf and result.dtype == dtype
        return save(result), save(nl.broadcast_to(moved_[:4], (4, 3, 5), nl.float32))

    x = values((9, 1, 5), dtype)
    same, wide = simulate(kernel)(x)
    same_bits(same, np.broadcast_to(x, (9, 3, 5)).copy())
    same_bits(wide, f32(np.broadcast_to(x[:4], (4, 3, 5))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("buffer", [S, P])
def test_broadcast_over_partitions(dtype, buffer):
    """Of a strided view of partition 32."""

    def kernel(x):
        moved_ = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        nisa.tensor_copy(dst=moved_, src=load(x))
        return save(nl.broadcast_to(moved_[32:33, ::2], (100, 4)))

    x = values((40, 8), dtype, seed=3)
    same_bits(simulate(kernel)(x), np.broadcast_to(x[32, ::2], (100, 4)).copy())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_broadcast_of_more_than_a_psum_bank(dtype):
    def kernel(x):
        return save(nl.broadcast_to(load(x), (3, 700)))

    x = values((1, 700), dtype)
    same_bits(simulate(kernel)(x), np.broadcast_to(x, (3, 700)).copy())


def test_broadcast_of_integers_is_exact():
    def kernel(x):
        return save(nl.broadcast_to(load(x), (5, 4, 2)))

    x = np.array([[[2**31 - 1], [-(2**31)], [2**24 + 1], [-5]]], np.int32)
    same_bits(simulate(kernel)(x), np.broadcast_to(x, (5, 4, 2)).copy())


def test_broadcast_to_the_same_shape():
    def kernel(x):
        loaded = load(x)
        assert nl.broadcast_to(loaded, x.shape) is loaded
        assert nl.broadcast_to(loaded, list(x.shape), nl.float32) is loaded
        return save(nl.broadcast_to(loaded, x.shape, dtype=nl.int32))

    x = 10 * values((5, 4))
    same_bits(simulate(kernel)(x), np.rint(x).astype(np.int32))


def test_broadcast_rules():
    def kernel(shape):
        nl.broadcast_to(tile((8, 1, 6)), shape)  # rule

    pair("broadcast-shape", kernel, ((8, 4, 6),), ((8, 4, 7),))
    refused("broadcast-shape", kernel, (8, 6))
    refused("broadcast-shape", kernel, (16, 1, 6))
    refused("broadcast-shape", kernel, (1, 1, 6))


# matmul.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(128, 128, 512), (64, 9, 33), (1, 1, 1)])
def test_matmul(dtype, shape):
    def kernel(x, y):
        result = nl.matmul(load(x), load(y), transpose_x=True)
        assert result.buffer == nl.psum and result.dtype == nl.float32
        return save(result)

    depth, rows, columns = shape
    x = values((depth, rows), "int8", 1, -3, 3).astype(NUMPY[dtype])
    y = values((depth, columns), "int8", 2, -3, 3).astype(NUMPY[dtype])
    np.testing.assert_array_equal(simulate(kernel)(x, y), f32(x).T @ f32(y))


def multiplied(x=((8, 6), "float32", S), y=((8, 5), "float32", S), transpose_x=True):
    nl.matmul(tile(*x), tile(*y), transpose_x)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("matmul-transpose-x", {}, {"transpose_x": False}),
        ("matmul-transpose-x", {}, {"transpose_x": 1}),
        ("nl-matmul-shape", {"x": ((8, 128), "float32", S)}, {"x": ((8, 129), "float32", S)}),
        ("nl-matmul-shape", {"y": ((8, 512), "float32", S)}, {"y": ((8, 513), "float32", S)}),
        ("nl-matmul-shape", {}, {"x": ((8, 2, 3), "float32", S)}),
        ("matmul-contraction", {}, {"y": ((9, 5), "float32", S)}),
        ("buffer-sbuf", {}, {"x": ((8, 6), "float32", P)}),
        ("matmul-dtype", {}, {"x": ((8, 6), "int8", S)}),
    ],
)
def test_matmul_rules(rule, good, bad):
    pair(rule, lambda change: multiplied(**change), (good,), (bad,))


def test_matmul_has_its_limits_on_gen4_too(on_target):
    on_target("trn3")
    pair(
        "nl-matmul-shape", lambda change: multiplied(**change),
        ({"y": ((8, 512), "float32", S)},), ({"y": ((8, 513), "float32", S)},),
    )  # fmt: skip


# where.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("condition", ["float32", "bfloat16"])
def test_where(dtype, condition):
    def kernel(c, x, y):
        result = nl.where(load(c), load(x), load(y))
        assert result.dtype == dtype and result.buffer == nl.sbuf
        return save(result)

    x, y = values((9, 8), dtype, 1), values((9, 8), dtype, 2)
    c = (values((9, 8), seed=3) > 0).astype(NUMPY[condition])
    same_bits(simulate(kernel)(c, x, y), np.where(c != 0, x, y))


def test_where_does_not_mix_in_what_it_leaves_out():
    def kernel(c, x, y):
        return save(nl.where(load(c), load(x), load(y)))

    c = np.array([[1.0, 0.0]], np.float32)
    x, y = np.array([[1, np.nan]], np.float32), np.array([[np.inf, 2]], np.float32)
    np.testing.assert_array_equal(simulate(kernel)(c, x, y), [[1, 2]])


def test_where_of_views_and_dtypes():
    def kernel(c, x, y):
        first = nl.ndarray(x.shape, dtype=x.dtype, buffer=P)
        nisa.tensor_copy(dst=first, src=load(x))
        return save(nl.where(load(c)[:4, ::2], first[:4, 3:], load(y), dtype=nl.float16))

    c = (values((9, 6), seed=3) > 0).astype(np.float32)
    x, y = values((9, 6), seed=1), values((4, 3), "bfloat16", seed=2)
    expected = np.where(c[:4, ::2] != 0, x[:4, 3:], f32(y))
    same_bits(simulate(kernel)(c, x, y), converted(expected, "float16"))


def test_where_with_a_comparison():
    def kernel(x):
        loaded = load(x)
        positive = nl.greater(loaded, 0, dtype=nl.float32)
        return save(nl.where(positive, loaded, nl.zeros(x.shape, nl.int32)))

    x = values((5, 6), "int32")
    same_bits(simulate(kernel)(x), np.where(x > 0, x, 0).astype(np.int32))


def chosen(condition=((8, 6), "float32"), x=((8, 6), "float32"), y=((8, 6), "float32"), dtype=None):
    nl.where(tile(*condition), tile(*x), tile(*y), dtype)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("where-condition", {"condition": ((8, 6), "bfloat16")}, {"condition": ((8, 6), "uint8")}),
        ("implicit-broadcast", {}, {"condition": ((8, 1), "float32")}),
        ("implicit-broadcast", {}, {"y": ((8, 1), "float32")}),
        ("implicit-broadcast", {}, {"x": ((8, 2, 3), "float32")}),
        ("result-dtype", {"y": ((8, 6), "bfloat16"), "dtype": nl.float32},
         {"y": ((8, 6), "bfloat16")}),
    ],
)  # fmt: skip
def test_where_rules(rule, good, bad):
    pair(rule, lambda change: chosen(**change), (good,), (bad,))


def test_where_takes_tiles():
    def kernel(y):
        condition, x = tile((4, 4)), tile((4, 4))
        nl.where(condition, x, x if y is None else y)  # rule

    pair("operand-type", kernel, (None,), (0.0,))


# dropout.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_dropout(dtype):
    def kernel(x, column):
        loaded = load(x)
        return (
            save(nl.dropout(loaded, 0.0)), save(nl.dropout(loaded, 1.0)),
            save(nl.dropout(loaded, 0.25)), save(nl.dropout(loaded, load(column))),
            save(nl.dropout(loaded, 0.0, dtype=nl.float32)),
        )  # fmt: skip

    x = np.abs(values((64, 400), dtype, 1)).clip(1, 9).astype(NUMPY[dtype])
    rates = np.array([[0], [1]] * 32, np.float32)
    none, every, some, by_row, wide = simulate(kernel)(x, rates)
    same_bits(none, x)
    assert not f32(every).any()
    kept = f32(some) != 0
    np.testing.assert_array_equal(some[kept], x[kept])  # Not rescaled.
    assert 0.74 < kept.mean() < 0.76
    same_bits(by_row[::2], x[::2])
    assert not f32(by_row[1::2]).any()
    same_bits(wide, f32(x))


# gather_flattened.


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_gather_flattened(dtype):
    def kernel(data, indices):
        result = nl.gather_flattened(load(data), load(indices))
        assert result.dtype == dtype and result.shape == (9, 2, 7)
        return save(result), save(nl.gather_flattened(load(data), load(indices), 0, nl.float32))

    data = values((9, 4, 6), dtype, 1)
    indices = np.random.default_rng(2).integers(0, 24, (9, 2, 7), dtype=np.uint32)
    expected = np.take_along_axis(data.reshape(9, 24), indices.reshape(9, 14), 1)
    same, wide = simulate(kernel)(data, indices)
    same_bits(same, expected.reshape(9, 2, 7))
    same_bits(wide, f32(expected).reshape(9, 2, 7))


def test_gather_flattened_rules():
    def kernel(change):
        given = {"axis": 0, "dtype": "uint32", "partitions": 8, "buffer": S} | change
        data = tile((8, 6), buffer=given["buffer"])
        indices = tile((given["partitions"], 4), given["dtype"])
        nl.gather_flattened(data, indices, given["axis"])  # rule

    pair("gather-axis", kernel, ({},), ({"axis": 1},))
    refused("buffer-sbuf", kernel, {"buffer": P})
    refused("partition-count", kernel, {"partitions": 4})
    assert "uint32" in str(refused("operand-dtype", kernel, {"dtype": "int32"}))


def test_temporary_tiles_are_given_back():
    def kernel(x):
        loaded = nl.load(x)
        for _ in range(20):
            nl.where(loaded, loaded, loaded)
            nl.broadcast_to(loaded[:1], (128, 512))

    _, session = record(kernel)(np.ones((128, 512), np.float32))
    assert session.sbuf.peak < 6 * 2048 and session.psum.peak <= 2048
