"""nc_stream_shuffle: masks, quadrants, unequal heights, and the rules."""

from .numeric import DTYPES
from .support import (
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
F = "float32"
ROTATE = [(i - 1) % 32 for i in range(32)]
FIRST = [0] * 32
KEEP = 255


def shuffled(x, dst, mask):
    """Each quadrant on its own; 255 keeps what dst holds."""
    out = dst.copy()
    for row in range(len(dst)):
        entry = mask[row % 32]
        if entry != KEEP:
            out[row] = x[row - row % 32 + entry]
    return out


@pytest.mark.parametrize("height", [32, 64, 96, 128])
@pytest.mark.parametrize("buffer", [S, P])
def test_rotation_of_every_quadrant(height, buffer):
    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=F, buffer=buffer)
        nisa.nc_stream_shuffle(dst, load(x), ROTATE)
        return save(dst)

    x = values((height, 5))
    same_bits(simulate(kernel)(x), shuffled(x, np.empty_like(x), ROTATE))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_move_unchanged_in_every_dtype(dtype):
    def kernel(x):
        t = load(x)
        nisa.nc_stream_shuffle(t, t, ROTATE[::-1])
        return save(t)

    x = values((64, 4), dtype)
    if dtype == F:
        x[3] = np.nan
        x[5] = -0.0
    same_bits(simulate(kernel)(x), shuffled(x, np.empty_like(x), ROTATE[::-1]))


@pytest.mark.parametrize("height", [1, 7, 32])
def test_one_partition_broadcasts_within_a_quadrant(height):
    def kernel(x):
        dst = nl.ndarray((height, 6), dtype=F)
        nisa.nc_stream_shuffle(dst, load(x), FIRST)
        return save(dst)

    x = values((1, 6))
    same_bits(simulate(kernel)(x), np.repeat(x, height, axis=0))


def test_a_partial_last_quadrant():
    def kernel(x):
        dst = nl.ndarray((40, 6), dtype=F)
        nisa.nc_stream_shuffle(dst, load(x), FIRST)
        return save(dst)

    x = values((33, 6))
    same_bits(simulate(kernel)(x), np.concatenate([x[:1]] * 32 + [x[32:]] * 8))


@pytest.mark.parametrize("buffer", [S, P])
def test_255_keeps_the_destination(buffer):
    def kernel(x, y):
        dst = nl.ndarray(y.shape, dtype=F, buffer=buffer)
        nisa.tensor_copy(dst, load(y))
        nisa.nc_stream_shuffle(dst, load(x), mask)
        return save(dst)

    mask = [KEEP if i % 3 else 31 - i for i in range(32)]
    x, y = values((64, 3), seed=1), values((64, 3), seed=2)
    same_bits(simulate(kernel)(x, y), shuffled(x, y, mask))


def test_255_leaves_unwritten_partitions_unwritten():
    def kernel(mask):
        dst = nl.ndarray((32, 4), dtype=F)
        nisa.nc_stream_shuffle(dst, tile((32, 4)), mask)
        save(dst)

    error = pair(
        "uninitialized-read", kernel, (tuple(FIRST),), (tuple([0] * 5 + [KEEP] * 27),),
        line="nisa.dma_copy(dst=out",
    )  # fmt: skip
    assert "at [5, 0]" in str(error)


def test_a_shuffle_of_nothing_changes_nothing():
    def kernel(x):
        t = load(x)
        nisa.nc_stream_shuffle(t, t, [KEEP] * 32)
        return save(t)

    x = values((32, 4))
    same_bits(simulate(kernel)(x), x)


def test_only_the_partitions_that_move_are_read():
    def kernel(entry):
        src = nl.ndarray((32, 4), dtype=F)
        nisa.memset(src[0:3], 1.0)
        nisa.nc_stream_shuffle(tile((32, 4)), src, [entry] * 32)  # rule

    pair("uninitialized-read", kernel, 2, 3)


def test_between_quadrants_and_of_views():
    def kernel(x):
        src, dst = load(x), tile((128, 3, 4))
        nisa.nc_stream_shuffle(dst[64:96, :, ::2], src[32:64, 1:7], ROTATE)
        return save(dst)

    x = values((128, 8))
    got = simulate(kernel)(x)
    expected = np.zeros((128, 3, 4), np.float32)
    expected[64:96, :, ::2] = x[32:64, 1:7][ROTATE].reshape(32, 3, 2)
    same_bits(got, expected)


def test_a_repeated_source():
    def kernel(x):
        dst = nl.ndarray((32, 6), dtype=F)
        nisa.nc_stream_shuffle(dst, load(x).broadcast(1, 6), ROTATE)
        return save(dst)

    x = values((32, 1))
    same_bits(simulate(kernel)(x), np.repeat(x[ROTATE], 6, axis=1))


def moved(dst=((32, 4), F, S), src=((32, 4), F, S), mask=FIRST, at=(0, 0)):
    made, source = tile((128, *dst[0][1:]), *dst[1:]), tile((128, *src[0][1:]), *src[1:])
    views = (
        whole[first : first + shape[0][0]]
        for whole, first, shape in zip((made, source), at, (dst, src))
    )
    nisa.nc_stream_shuffle(*views, mask)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("same-dtype", {}, {"src": ((32, 4), "bfloat16", S)}),
        ("free-size", {"src": ((32, 2, 2), F, P)}, {"src": ((32, 5), F, S)}),
        ("shuffle-mask", {"mask": (31,) * 32}, {"mask": [32] + [0] * 31}),
        ("shuffle-mask", {"mask": [KEEP] * 32}, {"mask": [254] * 32}),
        ("shuffle-mask", {}, {"mask": [0] * 31}),
        ("shuffle-mask", {}, {"mask": [0.0] * 32}),
        ("shuffle-mask", {}, {"mask": [-1] + [0] * 31}),
        ("shuffle-mask", {}, {"mask": 0}),
        ("shuffle-source", {"src": ((2, 4), F, S), "mask": [1] * 32},
         {"src": ((2, 4), F, S), "mask": [2] * 32}),
        # Alone, one partition may start at 96; beside a destination of 64 it may not.
        ("start-partition", {"src": ((1, 4), F, S), "at": (0, 96)},
         {"src": ((1, 4), F, S), "dst": ((64, 4), F, S), "at": (0, 96)}),
        ("start-partition", {"dst": ((33, 4), F, S), "src": ((33, 4), F, S), "at": (64, 0)},
         {"dst": ((33, 4), F, S), "src": ((65, 4), F, S), "at": (64, 0)}),
        ("start-partition", {"at": (96, 32)}, {"at": (16, 32)}),
        ("packed-dtype", {},
         {"dst": ((32, 4), "float8_e5m2_x4", S), "src": ((32, 4), "float8_e5m2_x4", S)}),
    ],
)  # fmt: skip
def test_shuffle_rules(rule, good, bad):
    # Through a closure: some of the changes are lists, which a kernel does not take.
    pair(rule, lambda broken: moved(**(bad if broken else good)), False, True)
