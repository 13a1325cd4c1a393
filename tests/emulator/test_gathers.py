"""local_gather and nc_n_gather."""

from .numeric import DTYPES
from .support import (
    NUMPY,
    load,
    nisa,
    nl,
    np,
    pair,
    pytest,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
F, U16, U32 = "float32", "uint16", "uint32"


def gathered(source, index, elements, count):
    """What the stub of local_gather describes, one core, index and partition after the other."""
    source, index = source.reshape(len(source), -1), index.reshape(len(index), -1)
    out = np.empty((len(source), count * elements), source.dtype)
    for core in range(0, len(source), 16):
        flat = [index[core + p, column] for column in range(index.shape[1]) for p in range(16)]
        for number, start in enumerate(flat[:count]):
            for p in range(core, core + 16):
                run = source[p, start : start + elements]
                out[p, number * elements : (number + 1) * elements] = run
    return out


def local(x, index, elements, count, shape=None):
    dst = nl.ndarray(shape or (x.shape[0], count * elements), dtype=x.dtype)
    nisa.local_gather(dst, load(x), load(index), elements, count)
    return save(dst)


@pytest.mark.parametrize("dtype", (*DTYPES, "float8_e8m0fnu"))
def test_local_gather(dtype):
    x = values((32, 40), "int8", low=0, high=100).astype(NUMPY[dtype])
    index = values((32, 3), U16, seed=1, low=0, high=39)
    same_bits(simulate(local)(x, index, 1, 48), gathered(x, index, 1, 48))


@pytest.mark.parametrize("elements", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("count", [1, 15, 37, 64])
def test_local_gather_of_runs(elements, count):
    x = values((16, 8, 12))
    index = values((16, 2, 2), U16, seed=count, low=0, high=96 - elements)
    got = simulate(local)(x, index, elements, count, (16, count, elements))
    same_bits(got.reshape(16, -1), gathered(x, index, elements, count))


def test_local_gather_as_in_the_documentation():
    # 128 partitions of 512 groups of 4, the same 64 indices in every core, scaled by the group.
    x = values((128, 512, 4))
    groups = np.tile(values((16, 4), U16, low=0, high=511), (8, 1))
    got = simulate(local)(x, groups * 4, 4, 64, (128, 64, 4))
    for core in range(0, 128, 16):
        order = groups[core : core + 16].flatten(order="F")
        same_bits(got[core : core + 16], np.take(x[core : core + 16], order, axis=1))


def test_local_gather_of_views():
    def kernel(x, index):
        t, picks = load(x), load(index)
        dst = tile((64, 48))
        nisa.local_gather(dst[32:64, 0:48:2], t[32:64, 1:20:2], picks[32:64, 0:2], 1, 24)
        return save(dst)

    x, index = values((64, 20)), values((64, 3), U16, low=0, high=9)
    expected = np.zeros((64, 48), np.float32)
    expected[32:, ::2] = gathered(x[32:, 1::2], index[32:, :2], 1, 24)
    same_bits(simulate(kernel)(x, index), expected)


def test_gathers_in_place():
    def kernel(x, local_index, index):
        t, u = load(x), load(x)
        nisa.local_gather(t, t, load(local_index), 1, 32)
        nisa.nc_n_gather(u, u, load(index))
        return save(t), save(u)

    x = values((16, 32))
    reverse = np.arange(31, -1, -1)
    index = reverse.reshape(2, 16).T.astype(np.uint16).copy()
    for got in simulate(kernel)(x, index, np.tile(reverse, (16, 1)).astype(np.uint32)):
        same_bits(got, x[:, ::-1])


def by_partition(x, index):
    dst = nl.ndarray(index.shape, dtype=x.dtype)
    nisa.nc_n_gather(dst, load(x), load(index))
    return save(dst)


@pytest.mark.parametrize("dtype", (*DTYPES, "float8_e8m0fnu"))
@pytest.mark.parametrize("shape", [(3, 7), (128, 2, 5)])
def test_nc_n_gather(dtype, shape):
    x = values((shape[0], 4, 6), "int8", low=0, high=100).astype(NUMPY[dtype])
    index = values(shape, U32, low=0, high=23)
    flat = index.reshape(shape[0], -1)
    expected = np.empty(flat.shape, x.dtype)
    for p in range(len(flat)):
        for i in range(flat.shape[1]):
            expected[p, i] = x[p].reshape(-1)[flat[p, i]]
    same_bits(simulate(by_partition)(x, index), expected.reshape(shape))


def test_nc_n_gather_of_views():
    def kernel(x, index):
        t, picks = load(x), load(index)
        dst = tile((64, 2, 6))
        doubled = t[0:32, 0:3].reshape_dim(1, (1, 3)).broadcast(1, 2)
        # A broadcast source, strided indices and a strided destination.
        nisa.nc_n_gather(dst[32:64, 1, :], doubled, picks[32:64, 0:12:2])
        return save(dst)

    x, index = values((64, 4)), values((64, 12), U32, low=0, high=5)
    expected = np.zeros((64, 2, 6), np.float32)
    doubled = np.concatenate([x[:32, :3]] * 2, axis=1)
    expected[32:, 1] = np.take_along_axis(doubled, index[32:, ::2].astype(int), axis=1)
    same_bits(simulate(kernel)(x, index), expected)


def test_only_what_is_gathered_must_have_been_written():
    def local_kernel(count, highest):
        source, index = nl.ndarray((16, 8), dtype=F), nl.ndarray((16, 1), dtype=U16)
        nisa.memset(source[:, 0:5], 1.0)
        nisa.iota(index[0:8, :], [[0, 1]], channel_multiplier=1)
        if highest < 7:
            nisa.memset(index[0:8, :], highest)
        dst = nl.ndarray((16, count), dtype=F)
        nisa.local_gather(dst, source, index, 1, count)  # rule

    pair("uninitialized-read", local_kernel, (5, 7), (6, 7))
    pair("uninitialized-read", local_kernel, (8, 4), (9, 4))

    def kernel(highest):
        source, dst = nl.ndarray((4, 8), dtype=F), nl.ndarray((4, 2), dtype=F)
        nisa.memset(source[:, 0:5], 1.0)
        picks = tile((4, 2), U32, value=highest)
        nisa.nc_n_gather(dst, source, picks)  # rule

    pair("uninitialized-read", kernel, 4, 5)


def run_local(
    dst=((32, 32), F, S), source=((32, 8), F, S), index=((32, 2), U16, S), elements=1, count=32,
    largest=7, start=0,
):  # fmt: skip
    target, data = tile(*dst), tile(*source)
    picks = tile((64,) + index[0][1:], index[1], index[2], value=largest)
    picks = picks[start : start + index[0][0]]
    nisa.local_gather(target, data, picks, elements, count)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-sbuf", {}, {"dst": ((32, 32), F, P)}),
        ("buffer-sbuf", {}, {"source": ((32, 8), F, P)}),
        ("buffer-sbuf", {}, {"index": ((32, 2), U16, P)}),
        ("packed-dtype", {}, {"dst": ((32, 32), "float8_e5m2_x4", S),
                              "source": ((32, 8), "float8_e5m2_x4", S)}),
        ("same-dtype", {}, {"dst": ((32, 32), "bfloat16", S)}),
        ("operand-dtype", {}, {"index": ((32, 2), U32, S)}),
        ("operand-dtype", {}, {"index": ((32, 2), "int16", S)}),
        ("core-partitions", {},
         {"source": ((24, 8), F, S), "dst": ((24, 32), F, S), "index": ((24, 2), U16, S)}),
        ("partition-count", {}, {"index": ((16, 4), U16, S)}),
        ("partition-count", {}, {"dst": ((16, 32), F, S)}),
        ("same-cores", {}, {"start": 32}),
        ("gather-elements", {"elements": 2, "count": 16, "largest": 6},
         {"elements": 3, "count": 16, "largest": 5}),
        ("gather-elements", {}, {"elements": True}),
        ("gather-elements", {}, {"elements": 1.0}),
        ("gather-count", {}, {"count": None}),
        ("gather-count", {}, {"count": 33, "dst": ((32, 33), F, S)}),
        ("gather-count", {"count": 1, "dst": ((32, 1), F, S)}, {"count": 0}),
        ("gather-count",
         {"count": 4096, "dst": ((32, 4096), F, S), "index": ((32, 257), U16, S)},
         {"count": 4097, "dst": ((32, 4097), F, S), "index": ((32, 257), U16, S)}),
        ("gather-shape", {"dst": ((32, 2, 16), F, S)}, {"dst": ((32, 33), F, S)}),
        ("gather-range", {}, {"largest": 8}),
        ("gather-range", {"elements": 2, "count": 16, "largest": 6},
         {"elements": 2, "count": 16, "largest": 7}),
    ],
)  # fmt: skip
def test_local_gather_rules(rule, good, bad):
    pair(rule, lambda change: run_local(**change), (good,), (bad,))


def run_gather(
    dst=((8, 6), F, S), data=((8, 4), F, S), indices=((8, 6), U32, S), largest=3,
):  # fmt: skip
    target, source = tile(*dst), tile(*data)
    picks = tile(*indices, value=largest)
    nisa.nc_n_gather(target, source, picks)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("buffer-sbuf", {}, {"dst": ((8, 6), F, P)}),
        ("buffer-sbuf", {}, {"data": ((8, 4), F, P)}),
        ("buffer-sbuf", {}, {"indices": ((8, 6), U32, P)}),
        ("packed-dtype", {}, {"dst": ((8, 6), "float8_e5m2_x4", S),
                              "data": ((8, 4), "float8_e5m2_x4", S)}),
        ("same-dtype", {}, {"dst": ((8, 6), "int32", S)}),
        ("operand-dtype", {}, {"indices": ((8, 6), "int32", S)}),
        ("operand-dtype", {}, {"indices": ((8, 6), U16, S)}),
        ("free-size", {"indices": ((8, 2, 3), U32, S)}, {"indices": ((8, 5), U32, S)}),
        ("partition-count", {}, {"data": ((16, 4), F, S)}),
        ("partition-count", {}, {"indices": ((16, 6), U32, S)}),
        ("gather-range", {}, {"largest": 4}),
    ],
)  # fmt: skip
def test_nc_n_gather_rules(rule, good, bad):
    pair(rule, lambda change: run_gather(**change), (good,), (bad,))
