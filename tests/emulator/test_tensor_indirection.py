"""Operands made with .indirect: gathered and scattered columns of a tile (gen4)."""

import inspect

from nki_emulator import tensor_indirection
from nki_emulator.kernel import record

from .support import (
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
)

I32 = nl.int32
ENGINE = nisa.engine


@pytest.fixture(autouse=True)
def gen4(on_target):
    on_target("trn3")


def snake(offsets, partitions, group=16):
    """An index tile as NumPy: offset i at [i % group, i // group] of every group of partitions."""
    columns = -(-len(offsets) // group)
    block = np.zeros((group, columns), np.int32)
    for place, offset in enumerate(offsets):
        block[place % group, place // group] = offset
    return np.tile(block, (-(-partitions // group), 1))[:partitions]


@pytest.mark.parametrize("partitions", [16, 32, 128])
@pytest.mark.parametrize("count", [3, 16, 37])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_gathered_columns(partitions, count, dtype):
    offsets = np.random.default_rng(0).integers(0, 50, count)

    def kernel(x, index):
        t = load(x)
        dst = nl.ndarray((partitions, count), dtype=x.dtype)
        view = t.indirect(load(index), num_elem=count)
        assert view.shape == (partitions, count) and view.is_indirect()
        nisa.tensor_copy(dst, view)
        return save(dst)

    x = values((partitions, 50), dtype)
    got = simulate(kernel)(x, snake(offsets, partitions))
    same_bits(got, np.ascontiguousarray(x[:, offsets]))


def test_few_partitions_and_the_default_count():
    def kernel(x, index):
        t = load(x)
        dst = nl.ndarray((4, 4), dtype=x.dtype)
        nisa.tensor_copy(dst, t.indirect(load(index)))
        return save(dst)

    x = values((4, 9))
    got = simulate(kernel)(x, np.array([[8], [0], [3], [3]], np.int32))
    same_bits(got, np.ascontiguousarray(x[:, [8, 0, 3, 3]]))


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_scattered_columns_leave_the_others(buffer):
    def kernel(x, y, index):
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        nisa.tensor_copy(t, load(x))
        nisa.tensor_scalar(t.indirect(load(index), 3), load(y), nl.multiply, 2.0)
        out = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.tensor_copy(out, t)
        return save(out)

    x, y = values((16, 20)), values((16, 3), seed=1)
    expected = x.copy()
    expected[:, [19, 0, 7]] = y * 2
    same_bits(simulate(kernel)(x, y, snake([19, 0, 7], 16)), expected)


def test_gather_and_scatter_in_one_instruction():
    def kernel(x, a, b):
        t = load(x)
        nisa.tensor_copy(t.indirect(load(a), 2), t.indirect(load(b), 2))
        return save(t)

    x, expected = values((16, 20)), values((16, 20))
    expected[:, [1, 2]] = x[:, [2, 1]]
    same_bits(simulate(kernel)(x, snake([1, 2], 16), snake([2, 1], 16)), expected)


def test_predicated_copies_keep_what_is_not_selected():
    def kernel(x, y, mask, index):
        t = load(x)
        i = load(index)
        nisa.tensor_copy_predicated(t.indirect(i, 3), load(y), load(mask).indirect(i, 3))
        return save(t)

    x, y = values((16, 8)), values((16, 3), seed=1)
    mask = values((16, 8), "uint8", low=0, high=1)
    columns = [4, 0, 6]
    expected = x.copy()
    expected[:, columns] = np.where(mask[:, columns] != 0, y, x[:, columns])
    same_bits(simulate(kernel)(x, y, mask, snake(columns, 16)), expected)


def test_scattered_columns_are_written_and_others_are_not():
    def kernel(column, index):
        t = nl.ndarray((16, 8), dtype=nl.float32)
        nisa.tensor_copy(t.indirect(load(index), 2), tile((16, 2), value=1.0))
        nisa.tensor_copy(tile((16, 1)), t[:, column])  # rule

    pair("uninitialized-read", kernel, (5, snake([5, 2], 16)), (4, snake([5, 2], 16)))


def test_gathered_columns_must_be_written():
    def kernel(index):
        t = nl.ndarray((16, 8), dtype=nl.float32)
        nisa.memset(t[:, 2:4], 0.0)
        nisa.tensor_copy(tile((16, 2)), t.indirect(load(index), 2))  # rule

    pair("uninitialized-read", kernel, snake([3, 2], 16), snake([3, 4], 16))


def test_matmul_with_gathered_columns():
    def kernel(x, y, a, b):
        t, u, acc = load(x), load(y), nl.ndarray((5, 6), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, t.indirect(load(a), 5), u.indirect(load(b), 6))
        out = nl.ndarray((5, 6), dtype=nl.float32)
        nisa.tensor_copy(out, acc)
        return save(out)

    x, y = values((64, 40), "bfloat16"), values((64, 50), "bfloat16", seed=1)
    a, b = [39, 1, 1, 5, 33], [0, 49, 33, 34, 2, 3]
    got = simulate(kernel)(x, y, snake(a, 64, 32), snake(b, 64, 32))
    expected = x[:, a].astype(np.float64).T @ y[:, b].astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_matmul_accumulates_in_scattered_columns():
    """The group of an element starts with the first matmul that wrote it, wherever that was."""

    def kernel(x, y, a, b):
        t, u = load(x), load(y)
        acc = nl.ndarray((32, 10), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc[:, 0:4], t, u[:, 0:4])
        nisa.nc_matmul(acc.indirect(load(a), 4), t, u[:, 0:4])
        nisa.nc_matmul(acc.indirect(load(b), 4), t, u[:, 4:8])
        out = nl.ndarray((32, 4), dtype=nl.float32)
        nisa.tensor_copy(out, acc.indirect(load(b[0:32]), 4))
        rest = nl.ndarray((32, 2), dtype=nl.float32)
        nisa.tensor_copy(rest, acc[:, 0:2])
        return save(out), save(rest)

    x, y = values((32, 32), "bfloat16"), values((32, 8), "bfloat16", seed=1)
    columns = [9, 2, 7, 3]
    index = snake(columns, 32, 32)
    # The Vector Engine reads groups of 16: offsets 0..3 of both orders are the same.
    index[16:20] = index[0:4]
    out, rest = simulate(kernel)(x, y, index, index)
    x, y = x.astype(np.float64), y.astype(np.float64)
    expected = x.T @ (y[:, 0:4] + y[:, 4:8])
    expected[:, [1, 3]] += x.T @ y[:, [2, 3]]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(rest, x.T @ y[:, 0:2], rtol=1e-5, atol=1e-4)


def test_accumulating_where_nothing_was_written():
    def kernel(index):
        acc = nl.ndarray((32, 10), dtype=nl.float32, buffer=nl.psum)
        t = tile((32, 32), nl.bfloat16)
        nisa.nc_matmul(acc[:, 0:4], t, t[:, 0:4])
        nisa.nc_matmul(acc.indirect(load(index), 2), t, t[:, 0:2], accumulate=True)  # rule

    pair("psum-accumulate-unwritten", kernel, snake([3, 0], 32, 32), snake([3, 4], 32, 32))


def test_mx_matmul_with_gathered_columns():
    """The same as with the columns copied to tiles first."""
    columns = [7, 0, 5, 4]

    def kernel(data, scale, index, gathers):
        x, s = load(data), load(scale)
        if gathers:
            i = load(index)
            x, s = x.indirect(i, 4), s.indirect(i, 4)
        else:
            picked = [nl.ndarray((32, 4), dtype=t.dtype) for t in (x, s)]
            for place, column in enumerate(columns):
                for to, t in zip(picked, (x, s)):
                    nisa.tensor_copy(to[:, place], t[:, column])
            x, s = picked
        acc = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(acc, x, x, s, s)
        out = nl.ndarray((4, 4), dtype=nl.float32)
        nisa.tensor_copy(out, acc)
        return save(out)

    def quantized(x):
        data = nl.ndarray((32, 8), dtype=nl.float8_e4m3fn_x4)
        scale = nl.ndarray((32, 8), dtype=nl.float8_e8m0fnu)
        nisa.memset(scale, 1.0)
        nisa.quantize_mx(data, load(x), scale)
        wide = nl.ndarray((32, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=wide, src=data.view(nl.uint32))
        return wide, save(scale)

    def both(x, index, gathers):
        data, scale = quantized(x)
        return kernel(data.view(nl.float8_e4m3fn_x4), scale, index, gathers)

    x, index = values((32, 32), "bfloat16"), snake(columns, 32, 32)
    got = simulate(both)(x, index, True)
    assert got.any()
    same_bits(got, simulate(both)(x, index, False))


def test_reductions_and_activations_of_gathered_columns():
    def kernel(x, index):
        t, i = load(x), load(index)
        total = nl.ndarray((16, 1), dtype=nl.float32)
        nisa.tensor_reduce(total, nl.add, t.indirect(i, 4), 1)
        squares = nl.ndarray((16, 4), dtype=nl.bfloat16)
        nisa.activation(squares, nl.square, t.indirect(i, 4))
        both = nl.ndarray((16, 4), dtype=nl.float32)
        nisa.tensor_tensor(both, t.indirect(i, 4), squares, nl.add)
        return save(total), save(squares), save(both)

    x, columns = values((16, 20)), [3, 19, 0, 7]
    total, squares, both = simulate(kernel)(x, snake(columns, 16))
    np.testing.assert_allclose(total[:, 0], x[:, columns].sum(1), rtol=1e-6, atol=1e-6)
    same_bits(squares, rounded(x[:, columns] ** 2, "bfloat16"))
    same_bits(both, x[:, columns] + squares.astype(np.float32))


def test_the_trace_names_the_tile_and_the_index():
    def kernel(x, index):
        t = load(x)
        nisa.tensor_copy(t.indirect(load(index), 2), tile((16, 2)))

    _, session = record(kernel)(values((16, 8)), snake([1, 2], 16))
    session = session[0] if isinstance(session, list) else session
    dst = session.trace[-1].writes[0]
    assert (dst.dynamic, dst.shape) == ("indirect", (16, 2))
    assert dst.storage == session.trace[0].writes[0].storage
    assert session.trace[-1].reads[-1].dtype == "int32"


def test_the_table_names_parameters_of_the_instructions():
    for name, (operands, source, engines) in tensor_indirection.SUPPORT.items():
        parameters = inspect.signature(getattr(nisa, name)).parameters
        assert set(operands) <= set(parameters) and source in parameters
        assert engines is None or "engine" in parameters


# Rules.


def test_needs_gen4(on_target):
    def kernel():
        tile((16, 8)).indirect(tile((16, 1), I32))  # rule

    simulate(kernel)()
    on_target("trn2")
    refused("target", kernel)


def test_construction():
    def of(shape, buffer, change, index, num_elem):
        t = tile(shape, nl.float32, buffer) if buffer is not nl.shared_hbm else save(tile(shape))
        change(t).indirect(tile(*index), num_elem)  # rule

    def same(t):
        return t

    good = ((16, 8), nl.sbuf, same, ((16, 1), I32), 2)
    for bad in (
        ((16, 8), nl.shared_hbm, same, ((16, 1), I32), 2),
        ((16, 8, 1), nl.sbuf, same, ((16, 1), I32), 2),
        ((16, 8), nl.sbuf, lambda t: t[:, ::2], ((16, 1), I32), 2),
    ):
        pair("indirect-tensor", of, good, bad)
    for index in (((16, 1), nl.float32), ((8, 1), I32), ((16, 1), I32, nl.psum), ((16, 1, 1), I32)):
        pair("indirect-index", of, good, (*good[:3], index, 2))
    for count in (0, 17, 1.0):
        pair("indirect-count", of, good, (*good[:4], count))

    def number(index):
        tile((16, 8)).indirect(tile((16, 1), I32) if index else 3)  # rule

    pair("indirect-index", number, True, False)


def test_nothing_is_viewed_again():
    def kernel(change):
        change(tile((16, 8)).indirect(tile((16, 1), I32), 4))  # rule

    for change in (
        lambda v: v[:, 0:2], lambda v: v[0:4], lambda v: v.reshape((16, 2, 2)),
        lambda v: v.permute((0, 1)), lambda v: v.expand_dim(1), lambda v: v.flatten_dims(1, 1),
        lambda v: v.view(I32), lambda v: v.ap([[8, 16], [1, 2]]), lambda v: v.select(1, 0),
        lambda v: v.indirect(tile((16, 1), I32)), lambda v: v.broadcast(1, 2),
        lambda v: v.squeeze_dim(1), lambda v: v.reshape_dim(1, (2, 2)),
    ):  # fmt: skip
        pair("dynamic-view", kernel, lambda v: (v[:, :], v[...]), change, line=change)


def copied(offsets, partitions=16, count=None):
    t = tile((partitions, 8))
    view = t.indirect(load(offsets), count)
    nisa.tensor_copy(tile((partitions, view.shape[1])), view)  # rule


def test_offsets():
    pair("dynamic-out-of-bounds", copied, (snake([7], 16), 16, 1), (snake([8], 16), 16, 1))
    pair("dynamic-out-of-bounds", copied, (snake([0], 16), 16, 1), (snake([-1], 16), 16, 1))
    # 32 partitions with one column: two groups of the same 16 offsets, not 32 offsets.
    pair("indirect-count", copied, (snake([0], 32), 32, 16), (snake([0], 32), 32, 17))
    pair("indirect-count", copied, (snake([0], 32), 32, 16), (snake([0], 32), 32, None))
    pair("indirect-count", copied, (snake([0], 8), 8, 8), (np.zeros((8, 2), np.int32), 8, 9))
    pair("indirect-count", copied, (snake([0], 32), 32, 4), (snake([0], 24), 24, 4))
    different = snake([0, 1], 32)
    different[17] = 5
    pair("indirect-groups", copied, (snake([0, 1], 32), 32, 2), (different, 32, 2))


def test_written_columns_are_unique():
    def kernel(offsets):
        nisa.tensor_copy(tile((16, 8)).indirect(load(offsets), 2), tile((16, 2)))  # rule

    pair("indirect-duplicates", kernel, snake([3, 4], 16), snake([3, 3], 16))


def view_of(dtype=nl.float32, buffer=nl.sbuf, partitions=16, count=4):
    index = nl.ndarray((partitions, 1), dtype=I32)
    numbers = nl.ndarray((partitions, 1), dtype=I32)
    nisa.iota(numbers, [[1, 1]], channel_multiplier=1)
    nisa.tensor_scalar(index, numbers, nl.bitwise_and, 15)
    return tile((partitions, 20), dtype, buffer).indirect(index, count)


def test_which_operands():
    def tensor(which):
        data = [view_of() if name == which else tile((16, 4)) for name in ("dst", "one", "two")]
        nisa.tensor_tensor(*data, nl.add)  # rule

    def column(which):
        bias = tile((16, 20)).indirect(tile((16, 1), I32), 1) if which else tile((16, 1))
        nisa.activation(tile((16, 4)), nl.exp, tile((16, 4)), bias=bias)  # rule

    def other(which):
        nisa.memset(view_of() if which else tile((16, 4)), 1.0)  # rule

    pair("indirect-operand", tensor, "dst", "two")
    pair("indirect-operand", tensor, "one", "two")
    pair("indirect-operand", column, False, True)
    pair("indirect-operand", other, False, True)


def test_which_engines():
    def copy(engine):
        nisa.tensor_copy(tile((16, 4)), view_of(), engine=engine)  # rule

    def binary(engine):
        nisa.tensor_tensor(tile((16, 4)), view_of(), tile((16, 4)), nl.add, engine=engine)  # rule

    pair("indirect-engine", copy, ENGINE.scalar, ENGINE.gpsimd)
    pair("indirect-engine", binary, ENGINE.gpsimd, ENGINE.scalar)


def test_the_scalar_engine_does_not_scatter_to_psum():
    def activation(buffer):
        nisa.activation(view_of(buffer=buffer), nl.exp, tile((16, 4)))  # rule

    def copy(engine):
        nisa.tensor_copy(view_of(buffer=nl.psum), tile((16, 4)), engine=engine)  # rule

    pair("indirect-scalar-psum", activation, nl.sbuf, nl.psum)
    pair("indirect-scalar-psum", copy, ENGINE.vector, ENGINE.scalar)


def test_tensor_scalar_on_integers():
    def kernel(dtype):
        view = view_of(dtype)
        nisa.tensor_scalar(tile((16, 4), dtype), view, nl.add, 1)  # rule

    pair("indirect-integer", kernel, nl.int16, nl.int32)


def test_matmul_rules():
    def multiply(dtype=nl.bfloat16, transpose=False, **options):
        acc = nl.ndarray((4, 4), dtype=nl.bfloat16 if transpose else nl.float32, buffer=nl.psum)
        view = view_of(dtype, partitions=32)
        if transpose:
            eye = tile((32, 4), dtype)
            first, second = (eye, view) if transpose == "moving" else (view, eye)
        else:
            first = second = view
        nisa.nc_matmul(acc, first, second, is_transpose=bool(transpose), **options)  # rule

    pair("indirect-dtype", multiply, (nl.bfloat16,), (nl.float32,))

    def tiled(position):
        multiply(tile_position=position, tile_size=(32, 128) if position else ())

    pair("indirect-tiling", tiled, ((),), ((32, 0),))
    refused("indirect-transpose", lambda: multiply(transpose="moving"))


def test_mx_operands_come_in_pairs():
    def kernel(which):
        index = tile((32, 1), I32)
        data = tile((32, 8), "float8_e4m3fn_x4")
        scale = tile((32, 8), "float8_e8m0fnu", value=1.0)
        other = tile((32, 1), I32)
        indirect_scale = scale.indirect(other if which == "another index" else index, 4)
        acc = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(
            acc,
            data[:, 0:4],
            data.indirect(index, 4),
            scale[:, 0:4],
            scale[:, 0:4] if which == "static scale" else indirect_scale,
        )  # rule

    for bad in ("static scale", "another index"):
        refused("indirect-mx-pair", kernel, bad)


def placed(shape, partition, byte, dtype=nl.float32, buffer=nl.sbuf):
    made = nl.ndarray(shape, dtype=dtype, buffer=buffer, address=(partition, byte))
    nisa.memset(made, 0)
    return made


def test_start_partitions():
    def index_at(partition):
        index = nl.ndarray((128, 1), dtype=I32, address=(0, 0))
        nisa.memset(index, 0)
        t = nl.ndarray((128, 8), dtype=nl.float32, address=(0, 64))
        nisa.memset(t, 0.0)
        rows = slice(partition, partition + 16)
        nisa.tensor_copy(tile((16, 1)), t[rows].indirect(index[rows], 1))  # rule

    pair("indirect-partition", index_at, 32, 16)

    def operand_at(partition):
        t, index = placed((16, 8), partition, 64, nl.int16), placed((16, 1), 32, 0, I32)
        dst = placed((16, 1), 32, 128, nl.int16)
        nisa.tensor_copy(dst, t.indirect(index, 1))  # rule

    pair("indirect-partition", operand_at, 32, 64)

    def source_at(partition):
        t, index = placed((16, 8), 32, 64, nl.int16), placed((16, 1), 32, 0, I32)
        src = placed((16, 1), partition, 128, nl.int16)
        nisa.tensor_copy(t.indirect(index, 1), src)  # rule

    pair("indirect-partition", source_at, 32, 0)

    def psum_source(partition):
        t, index = placed((16, 8), 32, 64, nl.int16), placed((16, 1), 32, 0, I32)
        other = placed((16, 1), partition, 128, I32)
        src = placed((16, 8), partition, 0, nl.int16, nl.psum)
        nisa.tensor_copy(t.indirect(index, 1), src.indirect(other, 1))  # rule

    pair("indirect-partition", psum_source, 32, 64)
