"""api/nki/isa: the examples and pseudo code in the stubs of instructions."""

import pytest

from .support import (
    load,
    nisa,
    nki,
    nl,
    np,
    pair,
    refused,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

COMMAND = nisa.reduce_cmd


@pytest.mark.parametrize("accumulate", ["explicit", "left out"])
def test_a_matmul_in_steps(accumulate):
    """Stub of nc_matmul, Examples: accumulate=(i > 0), or left to the compiler."""

    @nki.jit
    def kernel(x, y):
        sums = nl.ndarray((x.shape[1], y.shape[1]), dtype=nl.float32, buffer=nl.psum)
        for i in range(x.shape[0] // 128):
            rows = nl.ds(128 * i, 128)
            how = {"accumulate": i > 0} if accumulate == "explicit" else {}
            nisa.nc_matmul(dst=sums, stationary=load(x[rows]), moving=load(y[rows]), **how)
        return save(sums)

    x = values((512, 16), "int8").astype(np.float32)
    y = values((512, 24), "int8", seed=1).astype(np.float32)
    same_bits(kernel(x, y), x.T @ y)


def test_what_a_matmul_may_accumulate_on():
    """Stub of nc_matmul, "Accumulation mode": the first matmul overwrites; not on a memset."""

    def kernel(first, accumulate):
        a = tile((32, 16), value=1.0)
        sums = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
        if first == "matmul":
            nisa.nc_matmul(sums, a, a, accumulate=False)
        elif first == "memset":
            nisa.memset(sums, 1.0)
        nisa.nc_matmul(sums, a, a, accumulate=accumulate)  # rule
        return save(sums)

    pair("psum-accumulate-unwritten", kernel, ("matmul", True), ("nothing", True))
    pair("psum-accumulate-on-other", kernel, ("memset", False), ("memset", True))
    assert (simulate(kernel)("matmul", True) == 64).all()
    assert (simulate(kernel)("matmul", False) == 32).all()
    assert (simulate(kernel)("nothing", None) == 32).all()


@pytest.mark.parametrize("row", [0, 64])
def test_a_row_tile(row):
    """Stub of nc_matmul, "Tiling mode": (64, 0) and (64, 128) are the bottom half of the array."""

    @nki.jit
    def kernel(x, y):
        sums = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.psum)
        half = slice(row, row + 64)
        a, b = load(x)[half], load(y)[half]
        nisa.nc_matmul(sums, a, b, tile_position=(row, 0), tile_size=(64, 128))
        return save(sums)

    x = values((128, 8), "int8").astype(np.float32)
    y = values((128, 12), "int8", seed=1).astype(np.float32)
    half = slice(row, row + 64)
    same_bits(kernel(x, y), x[half].T @ y[half])


def test_a_convolution_accumulates_in_overlapping_places():
    """Release notes 0.6, nc_matmul: overlapping PSUM regions, first write by element."""

    @nki.jit
    def kernel(x):
        one = tile((1, 1), value=1.0)
        sums = nl.ndarray((1, 10), dtype=nl.float32, buffer=nl.psum)
        t = load(x)
        for shift in range(3):
            nisa.nc_matmul(sums[:, shift : shift + 8], one, t)
        return save(sums)

    x = values((1, 8), "int8").astype(np.float32)
    same_bits(kernel(x), np.convolve(x[0], np.ones(3, np.float32))[None].astype(np.float32))


# Vector engine.


def test_engines_of_tensor_tensor():
    """Stub of tensor_tensor: exact 32-bit integers on GpSimd, float32 on the Vector engine."""

    @nki.jit
    def kernel(x, y):
        a, b = load(x), load(y)
        exact, vector = (nl.ndarray(x.shape, dtype=nl.int32) for _ in range(2))
        nisa.tensor_tensor(dst=exact, data1=a, data2=b, op=nl.add)
        nisa.tensor_tensor(dst=vector, data1=a, data2=b, op=nl.add, engine=nisa.engine.vector)
        return save(exact), save(vector)

    x, y = np.array([[2**24, 2**30]], np.int32), np.array([[1, 1]], np.int32)
    exact, vector = kernel(x, y)
    same_bits(exact, x + y)
    same_bits(vector, x)


def test_two_operators_in_order_and_reversed():
    """Stub of tensor_scalar: (data op0 operand0) op1 operand1, each reversible."""

    @nki.jit
    def kernel(x, column):
        t, v = load(x), load(column)
        plain, reversed_ = (nl.ndarray(x.shape, dtype=nl.float32) for _ in range(2))
        nisa.tensor_scalar(plain, t, nl.subtract, v, op1=nl.subtract, operand1=2.0)
        nisa.tensor_scalar(reversed_, t, nl.subtract, v, True, nl.subtract, 2.0, True)
        return save(plain), save(reversed_)

    x, column = values((8, 6)), values((8, 1), seed=1)
    plain, reversed_ = kernel(x, column)
    same_bits(plain, (x - column) - np.float32(2))
    same_bits(reversed_, np.float32(2) - (column - x))


@pytest.mark.parametrize("axis, kept", [((3,), (4, 2, 3)), ((2, 3), (4, 2)), ((1, 2, 3), (4, 1))])
def test_axes_of_a_reduction(axis, kept):
    """Stub of tensor_reduce: the last one, two or three of a 4-D tile, negated for free."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(kept, dtype=nl.float32)
        nisa.tensor_reduce(dst=t, op=nl.maximum, data=load(x), axis=axis, negate=True)
        return save(t)

    x = values((4, 2, 3, 5))
    same_bits(kernel(x), -x.max(axis=axis).reshape(kept))


def test_a_running_sum():
    """Stub of tensor_scalar_cumulative: its pseudo code, with each command."""

    @nki.jit
    def kernel(x):
        t = load(x)
        parts = [nl.ndarray((4, 3), dtype=nl.float32) for _ in range(3)]
        cumulate = nisa.tensor_scalar_cumulative
        cumulate(parts[0], t[:, 0:3], nl.multiply, nl.add, 2.0)
        cumulate(parts[1], t[:, 3:6], nl.multiply, nl.add, 2.0, reduce_cmd=COMMAND.reduce)
        cumulate(
            parts[2], t[:, 6:9], nl.multiply, nl.add, 2.0, imm1=5.0,
            reduce_cmd=COMMAND.load_reduce,
        )  # fmt: skip
        return tuple(save(part) for part in parts)

    x = values((4, 9), "int8").astype(np.float32)
    expected = np.cumsum(2 * x[:, :6], axis=1)
    first, second, third = kernel(x)
    same_bits(first, np.ascontiguousarray(expected[:, :3]))
    same_bits(second, np.ascontiguousarray(expected[:, 3:]))
    same_bits(third, np.cumsum(2 * x[:, 6:], axis=1) + 5)


def test_a_chain_of_reductions_that_is_read_once():
    """Stub of tensor_scalar_reduce: reduce_res=None until the last call of a chain."""

    @nki.jit
    def kernel(x):
        total, t = nl.ndarray((4, 1), dtype=nl.float32), load(x)
        for i in range(3):
            nisa.tensor_scalar_reduce(
                dst=tile((4, 2)), data=t[:, 2 * i : 2 * i + 2], op0=nl.add, operand0=1.0,
                reduce_op=nl.add, reduce_res=total if i == 2 else None,
                reduce_cmd=COMMAND.reduce if i else COMMAND.reset_reduce, reduce_res_negate=i == 2,
            )  # fmt: skip
        return save(total)

    x = values((4, 6), "int8").astype(np.float32)
    same_bits(kernel(x), -(x + 1).sum(axis=1, keepdims=True))


def test_statistics_in_pieces():
    """Stubs of bn_stats and bn_aggr: even and odd elements, then mean and variance of a row."""

    @nki.jit
    def kernel(x):
        t = load(x)
        pieces = nl.ndarray((4, 12), dtype=nl.float32)
        for i in range(2):
            nisa.bn_stats(dst=pieces[:, 6 * i : 6 * i + 6], data=t[:, 512 * i : 512 * i + 512])
        result = nl.ndarray((4, 2), dtype=nl.float32)
        nisa.bn_aggr(dst=result, data=pieces)
        return save(pieces), save(result)

    x = values((4, 1024))
    pieces, result = kernel(x)
    wide = x.astype(np.float64)
    for i in range(2):
        for odd in range(2):
            part = wide[:, 512 * i + odd : 512 * (i + 1) : 2]
            expected = np.stack([np.full(4, 256), part.mean(1), part.var(1) * 256], axis=1)
            got = pieces[:, 6 * i + 3 * odd :][:, :3]
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    expected = np.stack([wide.mean(1), wide.var(1)], axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("initial", ["number", "column"])
def test_a_scan(initial):
    """Stub of tensor_tensor_scan: result[i] = op1(op0(data0[i], result[i - 1]), data1[i])."""

    @nki.jit
    def kernel(x, y, start):
        t = nl.ndarray(x.shape, dtype=nl.float32)
        first = 0.5 if initial == "number" else load(start)
        nisa.tensor_tensor_scan(t, load(x), load(y), first, nl.multiply, nl.add)
        return save(t)

    x, y, start = values((4, 7)), values((4, 7), seed=1), values((4, 1), seed=2)
    expected = np.empty_like(x)
    state = np.full((4,), 0.5, np.float32) if initial == "number" else start[:, 0]
    for i in range(7):
        state = x[:, i] * state + y[:, i]
        expected[:, i] = state
    same_bits(kernel(x, y, start), expected)


def test_a_shuffle():
    """Stub of nc_stream_shuffle: one mask for each quadrant; 255 leaves the destination alone."""

    @nki.jit
    def kernel(x, y):
        t = load(y)
        nisa.nc_stream_shuffle(dst=t, src=load(x), shuffle_mask=[0] * 31 + [255])
        return save(t)

    x, y = values((64, 4)), values((64, 4), seed=1)
    expected = np.repeat(x[[0, 32]], 32, axis=0)
    expected[[31, 63]] = y[[31, 63]]
    same_bits(kernel(x, y), expected)


def test_the_largest_eight_where_they_are_and_what_replaces_them():
    """Stubs of max8, nc_find_index8, nc_match_replace8: the duplicates of their example."""

    @nki.jit
    def kernel(x, vals):
        t, v = load(x), load(vals)
        largest = nl.ndarray((1, 8), dtype=nl.float32)
        nisa.max8(dst=largest, src=t)
        found, matched = (nl.ndarray((1, 8), dtype=nl.uint32) for _ in range(2))
        nisa.nc_find_index8(dst=found, data=t, vals=v)
        replaced = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.nc_match_replace8(dst=replaced, data=t, vals=v, imm=-1.0, dst_idx=matched)
        return save(largest), save(found), save(matched), save(replaced)

    # Five values before seven equal ones; the searched values are one of the five and the seven.
    x = np.array([[5, 6, 7, 1, 2, 9, 9, 9, 9, 9, 9, 9]], np.float32)
    vals = np.array([[7, 9, 9, 9, 9, 9, 9, 9]], np.float32)
    largest, found, matched, replaced = kernel(x, vals)
    same_bits(largest, np.array([[9] * 7 + [7]], np.float32))
    same_bits(found, np.array([[2, 5, 6, 7, 8, 9, 10, 11]], np.uint32))
    same_bits(matched, np.array([[2, 11, 10, 9, 8, 7, 6, 5]], np.uint32))
    same_bits(replaced, np.array([[5, 6, -1, 1, 2] + [-1] * 7], np.float32))


@pytest.mark.parametrize("dtype, sentinel", [("uint32", 2**32 - 1), ("uint16", 2**16 - 1)])
def test_values_that_are_not_there(dtype, sentinel):
    """Stub of nc_find_index8: all ones where a value does not occur."""

    @nki.jit
    def kernel(x, vals):
        found = nl.ndarray((1, 8), dtype=dtype)
        nisa.nc_find_index8(dst=found, data=load(x), vals=load(vals))
        return save(found)

    x = np.arange(8, dtype=np.float32)[None]
    got = kernel(x, np.array([[0, 100, 1, 2, 3, 4, 5, 6]], np.float32))
    assert got.tolist() == [[0, sentinel, 1, 2, 3, 4, 5, 6]]


def test_a_select_by_range():
    """Stub of range_select: its NumPy equivalent, with the maximum of the row."""

    @nki.jit
    def kernel(x, low, high):
        t, largest = nl.ndarray(x.shape, dtype=nl.float32), nl.ndarray((4, 1), dtype=nl.float32)
        nisa.range_select(
            dst=t, on_true_tile=load(x), comp_op0=nl.greater_equal, comp_op1=nl.less,
            bound0=load(low), bound1=load(high), reduce_res=largest, range_start=10,
        )  # fmt: skip
        return save(t), save(largest)

    x = values((4, 8))
    low = np.array([[10], [12], [0], [18]], np.float32)
    high = np.array([[18], [14], [11], [30]], np.float32)
    index = 10 + np.arange(8, dtype=np.float32)
    lowest = np.finfo(np.float32).min
    expected = np.where((index >= low) & (index < high), x, lowest)
    got, largest = kernel(x, low, high)
    same_bits(got, expected)
    same_bits(largest, expected.max(axis=1, keepdims=True))


def test_an_empty_range_is_stable_in_both_ways_that_the_stub_gives():
    """Stub of range_select, "Note on numerical stability": exp gives 1 in fp32, 0 in bf16."""

    @nki.jit
    def kernel(dtype):
        none, x = tile((2, 1), value=100.0), tile((2, 4))
        t, largest = nl.ndarray((2, 4), dtype=dtype), nl.ndarray((2, 1), dtype=nl.float32)
        at_least = nl.greater_equal
        nisa.range_select(t, x, at_least, at_least, none, none, reduce_res=largest)
        nisa.tensor_scalar(largest, largest, nl.multiply, -1.0)
        out = nl.ndarray((2, 4), dtype=nl.float32)
        nisa.activation(dst=out, op=nl.exp, data=t, bias=largest)
        return save(out)

    assert (kernel(nl.float32) == 1).all()
    assert (kernel(nl.bfloat16) == 0).all()


def test_a_select_by_predicate():
    """Stubs of tensor_copy_predicated and select_reduce: copy where true; the other value."""

    @nki.jit
    def kernel(x, y, predicate):
        t, p = load(y), load(predicate)
        nisa.tensor_copy_predicated(dst=t, src=load(x), predicate=p)
        number = load(y)
        nisa.tensor_copy_predicated(dst=number, src=7.0, predicate=p, reverse_pred=True)
        chosen, largest = nl.ndarray(x.shape, dtype=nl.float32), nl.ndarray((4, 1), nl.float32)
        nisa.select_reduce(
            chosen, p, load(x), -1.5, reduce_res=largest, reduce_cmd=COMMAND.reset_reduce
        )
        return save(t), save(number), save(chosen), save(largest)

    x, y = values((4, 6)), values((4, 6), seed=1)
    predicate = values((4, 6), "uint8", seed=2, low=0, high=2)
    true = predicate != 0
    copied, number, chosen, largest = kernel(x, y, predicate)
    same_bits(copied, np.where(true, x, y))
    same_bits(number, np.where(true, y, np.float32(7)))
    expected = np.where(true, x, np.float32(-1.5))
    same_bits(chosen, expected)
    same_bits(largest, expected.max(axis=1, keepdims=True))


# Scalar engine.


def test_accumulation_over_several_activations():
    """Stub of activation: the registers persist; reset, reduce, and one tile at the end."""

    @nki.jit
    def kernel(x):
        t, out = load(x), nl.ndarray((4, 3), dtype=nl.float32)
        total = nl.ndarray((4, 1), dtype=nl.float32)
        keep = {"reduce_op": nl.add, "reduce_cmd": COMMAND.reduce}
        nisa.activation(out, nl.copy, t[:, 0:3], reduce_op=nl.add, reduce_cmd=COMMAND.reset_reduce)
        nisa.activation(out, nl.copy, t[:, 3:6], **keep)
        nisa.activation(out, nl.square, t[:, 0:3])  # idle: the registers stay
        nisa.activation(out, nl.copy, t[:, 6:9], reduce_res=total, **keep)
        return save(total)

    x = values((4, 9), "int8").astype(np.float32)
    same_bits(kernel(x), x.sum(axis=1, keepdims=True))


def test_activate2(on_target):
    """Stub of activate2, Example and Behavior: scale and bias before the function, reversible."""

    @nki.jit
    def kernel(x):
        t, plain, reversed_ = load(x), tile(x.shape), tile(x.shape)
        nisa.activate2(plain, nl.relu, t, imm0=2.0, imm1=0.5, op0=nl.multiply, op1=nl.add)
        nisa.activate2(
            reversed_, nl.prelu, t, 3.0, 0.0, nl.subtract, nl.bypass, relu_param=0.25,
            reverse0=True,
        )  # fmt: skip
        return save(plain), save(reversed_)

    on_target("trn3")
    x = values((4, 8))
    plain, reversed_ = kernel(x)
    same_bits(plain, np.maximum(x * 2 + np.float32(0.5), 0))
    difference = 3 - x
    same_bits(reversed_, np.where(difference > 0, difference, difference * np.float32(0.25)))


# GpSimd engine.


def test_a_pattern_of_numbers():
    """Stub of iota: offset + partition * multiplier + sum of steps."""

    @nki.jit
    def kernel():
        t = nl.ndarray((4, 2, 3), dtype=nl.int32)
        nisa.iota(t, [[100, 2], [10, 3]], offset=7, channel_multiplier=1000)
        return save(t)

    p, w, x = np.ogrid[0:4, 0:2, 0:3]
    same_bits(kernel(), (7 + 1000 * p + 100 * w + 10 * x).astype(np.int32))


def test_a_causal_mask():
    """Stub of affine_select: scores of later keys become the other value."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.affine_select(
            dst=t, pattern=[[-1, 6]], channel_multiplier=1, on_true_tile=load(x),
            on_false_value=-1e9, cmp_op=nl.greater_equal,
        )  # fmt: skip
        return save(t)

    x = values((6, 6))
    same_bits(kernel(x), np.where(np.tri(6, dtype=bool), x, np.float32(-1e9)))


def test_gathers_in_a_partition_and_in_a_core():
    """Stubs of nc_n_gather and local_gather: indices of each partition, or of sixteen of them."""

    @nki.jit
    def kernel(x, own, shared):
        each = nl.ndarray((32, 3), dtype=nl.float32)
        nisa.nc_n_gather(dst=each, data=load(x), indices=load(own))
        pairs = nl.ndarray((32, 40), dtype=nl.float32)
        nisa.local_gather(pairs, load(x), load(shared), num_elem_per_idx=2, num_valid_indices=20)
        return save(each), save(pairs)

    x = values((32, 10))
    own = values((32, 3), "uint32", low=0, high=9)
    shared = values((32, 2), "uint16", low=0, high=8)
    each, pairs = kernel(x, own, shared)
    same_bits(each, np.take_along_axis(x, own.astype(np.int64), axis=1))
    for core in range(2):
        rows = slice(16 * core, 16 * core + 16)
        indices = shared[rows].T.reshape(-1)[:20].astype(np.int64)
        columns = (indices[:, None] + np.arange(2)).reshape(-1)
        same_bits(pairs[rows], x[rows][:, columns])


def test_bounds_of_sequences():
    """Stub of sequence_bounds: start and end of each segment; padding gets n and -1."""

    @nki.jit
    def kernel(ids):
        t = nl.ndarray((1, 2, ids.shape[1]), dtype=nl.int32)
        nisa.sequence_bounds(dst=t, segment_ids=load(ids))
        return save(t)

    ids = np.array([[0, 3, 3, 4, 4, 4, 0]], np.int32)
    expected = [[7, 1, 1, 3, 3, 3, 7], [-1, 3, 3, 6, 6, 6, -1]]
    assert kernel(ids).tolist() == [expected]


def test_elements_that_are_not_zero():
    """Stub of nonzero_with_count: its example, in the first partition of each core only."""

    @nki.jit
    def kernel(x):
        t = tile((32, 9), nl.int32, value=-7)
        nisa.nonzero_with_count(dst=t, src=load(x), index_offset=16, padding_val=-1)
        return save(t)

    x = np.zeros((32, 8), np.int32)
    x[0, [1, 2, 5]] = x[16, [0, 7]] = 1
    got = kernel(x)
    assert got[0].tolist() == [17, 18, 21, -1, -1, -1, -1, -1, 3]
    assert got[16].tolist() == [16, 23, -1, -1, -1, -1, -1, -1, 2]
    assert (np.delete(got, [0, 16], axis=0) == -7).all()


def test_the_largest_of_a_snake():
    """Stub of topk: n elements over 16 partitions column by column, results in ascending order."""

    @nki.jit
    def kernel(x):
        largest, where = nl.ndarray((16, 16), nl.bfloat16), nl.ndarray((16, 16), nl.uint32)
        nisa.topk(val_dst=largest, idx_dst=where, src=load(x), n=42)
        return save(largest[:, 0:1]), save(where[:, 0:1])

    flat = rounded(np.random.default_rng(0).permutation(48) - 20.0, "bfloat16")
    largest, where = kernel(np.ascontiguousarray(flat.reshape(3, 16).T))
    order = np.argsort(flat[:42].astype(np.float32))[-16:]
    same_bits(largest[:, 0], flat[order])
    same_bits(where[:, 0], order.astype(np.uint32))


def test_random_bits_and_their_seed():
    """Stubs of set_rng_seed and rng: the same seed, the same bits; 16 of them over 2^16 - 1."""

    @nki.jit
    def kernel(seed):
        results = []
        for _ in range(2):
            nisa.set_rng_seed(load(seed))
            bits = nl.ndarray((8, 32), dtype=nl.uint16)
            nisa.rng(dst=bits)
            uniform = nl.ndarray((8, 32), dtype=nl.float32)
            nisa.tensor_scalar(uniform, bits, nl.multiply, 1.0 / (2**16 - 1))
            results.append(save(uniform))
        return tuple(results)

    first, again = kernel(np.array([[42]], np.uint32))
    same_bits(first, again)
    assert (first >= 0).all() and (first <= 1).all() and np.unique(first).size > 200
    other, _ = kernel(np.array([[43]], np.uint32))
    assert (first != other).any()


@pytest.mark.parametrize("probability, kept", [(0.0, 1), (1.0, 0)])
def test_dropout_of_nothing_and_of_everything(probability, kept):
    """Stub of dropout: 0.0 keeps all elements, 1.0 replaces all of them."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.dropout(dst=t, data=load(x), prob=probability)
        return save(t)

    x = values((4, 6), "bfloat16")
    same_bits(kernel(x), x if kept else np.zeros_like(x))


def test_memset_of_a_packed_type(on_target):
    """Stub of memset, note: only zero for x4 types."""
    on_target("trn3")

    def kernel(value):
        nisa.memset(nl.ndarray((4, 4), dtype=nl.float8_e4m3fn_x4), value)  # rule

    pair("memset-packed", kernel, 0, 1)


def test_reserved_engines():
    """Stubs of tensor_copy and memset: the engines that they name."""

    def kernel(engine):
        t = tile((4, 4))
        nisa.memset(t, 1.0, engine=engine)  # rule

    for good in (nisa.engine.vector, nisa.engine.gpsimd):
        pair("enum", kernel, good, nisa.engine.scalar)
    refused("enum", kernel, nisa.engine.tensor)
