"""sequence_bounds, nonzero_with_count and topk."""

from .support import (
    load,
    ml_dtypes,
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
F, I32, U32, B16 = "float32", "int32", "uint32", "bfloat16"
PAIRS = [(F, F), (I32, I32), (F, I32), (I32, F)]


# sequence_bounds.


def bounds(x, dtype):
    dst = nl.ndarray((1, 2, x.shape[1]), dtype=dtype)
    nisa.sequence_bounds(dst, load(x))
    return save(dst)


@pytest.mark.parametrize("source, dtype", PAIRS)
@pytest.mark.parametrize(
    "ids, starts, ends",
    [
        ([0, 1, 1, 2, 2, 2, 0, 3, 3], [9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]),
        ([5], [0], [1]),
        ([0, 0], [2, 2], [-1, -1]),
        # A segment is a run: an id that comes back begins another one.
        ([4, 4, 9, 4], [0, 0, 2, 3], [2, 2, 3, 4]),
        ([7, 0, 7], [0, 3, 2], [1, -1, 3]),
    ],
)
def test_sequence_bounds(source, dtype, ids, starts, ends):
    got = simulate(bounds)(np.array([ids], source), dtype)
    same_bits(got, np.array([[starts, ends]], dtype))


def test_sequence_bounds_of_a_long_row():
    def one_by_one(row):
        starts, ends = [], []
        for i, one in enumerate(row):
            first, last = i, i + 1
            while first > 0 and row[first - 1] == one:
                first -= 1
            while last < len(row) and row[last] == one:
                last += 1
            starts.append(first if one else len(row))
            ends.append(last if one else -1)
        return [starts, ends]

    ids = np.sort(values((1, 512), I32, low=0, high=40), axis=1)
    same_bits(simulate(bounds)(ids, I32), np.array([one_by_one(list(ids[0]))], np.int32))


def test_sequence_bounds_of_a_strided_view():
    def kernel(x):
        whole = tile((1, 2, 16), I32, value=5)
        nisa.sequence_bounds(whole[:, :, 8:16], load(x)[0:1, 0:16:2])
        return save(whole)

    x = np.array([[1, 9, 1, 9, 2, 9, 0, 9, 3, 9, 3, 9, 3, 9, 4, 9]], np.int32)
    expected = np.full((1, 2, 16), 5, np.int32)
    expected[0, :, 8:] = [[0, 0, 2, 8, 4, 4, 4, 7], [2, 2, 3, -1, 7, 7, 7, 8]]
    same_bits(simulate(kernel)(x), expected)


def run_bounds(dst=((1, 2, 6), I32, S), ids=((1, 6), F, S), value=1):
    target, source = tile(*dst), tile(*ids, value=value)
    nisa.sequence_bounds(target, source)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-sbuf", {}, {"dst": ((1, 2, 6), I32, P)}),
        ("buffer-sbuf", {}, {"ids": ((1, 6), F, P)}),
        ("operand-dtype", {}, {"dst": ((1, 2, 6), B16, S)}),
        ("operand-dtype", {}, {"ids": ((1, 6), "int16", S)}),
        ("sequence-shape", {}, {"dst": ((1, 12), I32, S)}),
        ("sequence-shape", {}, {"ids": ((1, 1, 6), F, S)}),
        ("sequence-shape", {}, {"ids": ((2, 6), F, S), "dst": ((2, 2, 6), F, S)}),
        ("segment-ids", {"value": 0}, {"value": -1}),
        ("segment-ids", {"value": 2.0}, {"value": 1.5}),
        ("segment-ids", {"value": 2.0}, {"value": np.inf}),
        ("segment-ids", {"value": 2.0}, {"value": np.nan}),
    ],
)
def test_sequence_bounds_rules(rule, good, bad):
    pair(rule, lambda change: run_bounds(**change), (good,), (bad,))


# nonzero_with_count.


def nonzero(x, offset, padding):
    dst = tile((x.shape[0], x.size // x.shape[0] + 1), I32, value=77)
    nisa.nonzero_with_count(dst, load(x), offset, padding)
    return save(dst)


@pytest.mark.parametrize("dtype", [F, I32])
@pytest.mark.parametrize("partitions", [1, 16, 40, 128])
def test_nonzero_with_count(dtype, partitions):
    x = values((partitions, 3, 5), "int8", low=-1, high=1).astype(dtype)
    expected = np.full((partitions, 16), 77, np.int32)
    for p in range(0, partitions, 16):
        row = x[p].reshape(-1)
        found = [i + 100 for i in range(15) if row[i] != 0]
        expected[p] = found + [-3] * (15 - len(found)) + [len(found)]
    same_bits(simulate(nonzero)(x, 100, -3), expected)


def test_nonzero_with_count_as_in_the_documentation():
    x = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32)
    same_bits(
        simulate(nonzero)(x, 16, -1), np.array([[17, 18, 21, -1, -1, -1, -1, -1, 3]], np.int32)
    )


def test_nonzero_sees_everything_but_zero():
    x = np.array([[0.0, -0.0, np.nan, np.inf, 1e-45, -2.0]], np.float32)
    same_bits(simulate(nonzero)(x, 0, -1), np.array([[2, 3, 4, 5, -1, -1, 4]], np.int32))


def test_nonzero_reads_and_writes_one_partition_in_sixteen():
    def kernel(written):
        src, dst = nl.ndarray((32, 4), dtype=F), nl.ndarray((32, 5), dtype=I32)
        nisa.memset(src[0:1, :], 1.0)
        if written:
            nisa.memset(src, 1.0)
        nisa.nonzero_with_count(dst, src)  # rule
        return save(dst[0:1, :])

    pair("uninitialized-read", kernel, True, False)

    def written(partition):
        dst = nl.ndarray((32, 5), dtype=I32)
        nisa.nonzero_with_count(dst, tile((32, 4)))
        # Partition 16 is no legal start of an engine's access; a DMA reaches it.
        out = nl.ndarray((1, 5), dtype=I32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, dst[partition : partition + 1, :])  # rule
        return out

    pair("uninitialized-read", written, 16, 31)
    same_bits(simulate(written)(16), np.array([[-1, -1, -1, -1, 0]], np.int32))


def run_nonzero(
    dst=((16, 5), I32, S), src=((16, 4), F, S), start=0, index_offset=0, padding_val=-1
):
    target = tile(*dst)
    source = tile((64,) + src[0][1:], src[1], src[2])[start : start + src[0][0]]
    nisa.nonzero_with_count(target, source, index_offset, padding_val)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-sbuf", {}, {"dst": ((16, 5), I32, P)}),
        ("buffer-sbuf", {}, {"src": ((16, 4), F, P)}),
        ("operand-dtype", {}, {"dst": ((16, 5), U32, S)}),
        ("operand-dtype", {}, {"src": ((16, 4), B16, S)}),
        ("partition-count", {}, {"src": ((8, 4), F, S)}),
        ("same-cores", {}, {"start": 32}),
        ("nonzero-shape", {"dst": ((16, 1, 5), I32, S)}, {"dst": ((16, 4), I32, S)}),
        ("operand-type", {"index_offset": np.int32(2)}, {"index_offset": 2.0}),
        ("operand-type", {}, {"padding_val": None}),
        ("int32-range", {"index_offset": 2**31 - 4}, {"index_offset": 2**31 - 3}),
        ("int32-range", {"padding_val": -(2**31)}, {"padding_val": 2**31}),
    ],
)
def test_nonzero_rules(rule, good, bad):
    pair(rule, lambda change: run_nonzero(**change), (good,), (bad,))


def test_nonzero_needs_v3(on_target):
    simulate(run_nonzero)()
    on_target("trn1")
    refused("target", run_nonzero)


# topk.


def largest(x, n, k):
    """Values and indices of each core, in order, read from where topk puts them."""
    val = tile((x.shape[0], k), B16, value=-5.0)
    idx = tile((x.shape[0], k), U32, value=5)
    nisa.topk(val, idx, load(x), n)
    return save(val), save(idx)


def snake(x, core, count):
    return np.array([x[core + i % 16, i // 16] for i in range(count)])


@pytest.mark.parametrize("partitions, columns", [(16, 1), (32, 4), (128, 9)])
@pytest.mark.parametrize("k", [1, 7, 16, 40])
def test_topk(partitions, columns, k):
    n = max(8, columns * 16 - 5)
    k = min(k, n)
    generator = np.random.default_rng(k)
    # Whole numbers of at most 256, all different within a core, are exact in bfloat16.
    x = np.stack([generator.permutation(256)[: columns * 16] for _ in range(partitions // 16)])
    x = x.reshape(-1, columns, 16).transpose(0, 2, 1).reshape(partitions, columns)
    x = (x - 128).astype(ml_dtypes.bfloat16)
    val, idx = simulate(largest)(x, n, k)
    for core in range(0, partitions, 16):
        source = snake(x, core, n).astype(np.float32)
        order = sorted(range(n), key=lambda i: source[i])[-k:]
        np.testing.assert_array_equal(snake(val, core, k).astype(np.float32), source[order])
        np.testing.assert_array_equal(snake(idx, core, k), order)
    # The rest of both tiles stays as it was.
    places = np.arange(16)[:, None] + 16 * np.arange(k)[None, :] >= k
    untouched = np.tile(places, (partitions // 16, 1))
    assert (val.astype(np.float32)[untouched] == -5).all() and (idx[untouched] == 5).all()


def test_topk_of_equal_and_infinite_elements():
    x = np.zeros((16, 2), np.float32)
    x[3, 0], x[4, 1], x[0, 0] = np.inf, 2.0, -np.inf
    val, idx = simulate(largest)(x.astype(ml_dtypes.bfloat16), 32, 5)
    np.testing.assert_array_equal(snake(val, 0, 5).astype(np.float32), [0, 0, 0, 2, np.inf])
    found = snake(idx, 0, 5)
    assert list(found[3:]) == [20, 3] and len(set(found)) == 5


def test_topk_of_views():
    def kernel(x):
        val, idx = tile((64, 10), B16), tile((64, 4), U32)
        nisa.topk(val[32:64, 1:9:2], idx[32:64, :], load(x)[32:64, 0:4:2], 32)
        return save(val), save(idx)

    x = values((64, 4), B16)
    val, idx = simulate(kernel)(x)
    for core in (32, 48):
        source = snake(x[:, ::2], core, 32).astype(np.float32)
        order = np.argsort(source, kind="stable")[-4:]
        np.testing.assert_array_equal(snake(val[:, 1:9:2], core, 4).astype(np.float32),
                                      source[order])  # fmt: skip
        np.testing.assert_array_equal(source[snake(idx, core, 4)], source[order])
    assert (val[:32].astype(np.float32) == 0).all() and (val[:, 0::2] == 0).all()


def test_topk_reads_and_writes_what_counts_only():
    def reads(n):
        src = nl.ndarray((16, 2), dtype=B16)
        nisa.memset(src[:, 0:1], 1.0)
        nisa.memset(src[0:4, 1:2], 1.0)
        val, idx = nl.ndarray((16, 2), dtype=B16), nl.ndarray((16, 2), dtype=U32)
        nisa.topk(val, idx, src, n)  # rule

    pair("uninitialized-read", reads, 20, 21)

    def writes(columns):
        val, idx = nl.ndarray((16, 32), dtype=B16), nl.ndarray((16, 32), dtype=U32)
        nisa.topk(val, idx, tile((16, 4), B16), 64)
        nisa.tensor_copy(nl.ndarray((16, columns), dtype=B16), val[:, 0:columns])  # rule

    pair("uninitialized-read", writes, 2, 3)


def run_topk(val=((32, 8), B16, S), idx=((32, 8), U32, S), src=((32, 4), B16, S), n=64, value=1.0):
    values_, indices, source = tile(*val), tile(*idx), tile(*src, value=value)
    nisa.topk(values_, indices, source, n)  # rule


def shaped(k):
    return {"val": ((16, k), B16, S), "idx": ((16, k), U32, S), "src": ((16, 2100), B16, S)}


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-sbuf", {}, {"val": ((32, 8), B16, P)}),
        ("buffer-sbuf", {}, {"idx": ((32, 8), U32, P)}),
        ("buffer-sbuf", {}, {"src": ((32, 4), B16, P)}),
        ("operand-dtype", {}, {"val": ((32, 8), F, S)}),
        ("operand-dtype", {}, {"idx": ((32, 8), I32, S)}),
        ("operand-dtype", {}, {"src": ((32, 4), "float16", S)}),
        ("topk-shape", {}, {"src": ((32, 2, 2), B16, S)}),
        ("topk-shape", {}, {"idx": ((32, 9), U32, S)}),
        ("partition-count", {}, {"val": ((16, 8), B16, S)}),
        ("core-partitions", {},
         {"val": ((24, 8), B16, S), "idx": ((24, 8), U32, S), "src": ((24, 4), B16, S)}),
        ("topk-n", {"n": 8}, {"n": 7}),
        ("topk-n", {"n": np.int64(9)}, {"n": 9.0}),
        ("topk-n", {"n": 64}, {"n": 65}),
        ("topk-n", {"n": 65535, "src": ((32, 4096), B16, S)},
         {"n": 65536, "src": ((32, 4096), B16, S)}),
        ("topk-k", {"n": 8}, {"n": 8, "val": ((32, 9), B16, S), "idx": ((32, 9), U32, S)}),
        ("topk-k", {"n": 32768, **shaped(32767)}, {"n": 32768, **shaped(32768)}),
        ("nan-order", {}, {"value": np.nan}),
    ],
)  # fmt: skip
def test_topk_rules(rule, good, bad):
    pair(rule, lambda change: run_topk(**change), (good,), (bad,))
