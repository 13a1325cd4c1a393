"""The grid's part for two cores: `sendrecv` in every dtype and layout; `core_barrier` orders it."""

import nki
import pytest

from nki_emulator.access import write_raw

from .grid_layouts import COLUMNS, CORNER, CUBE_PERMUTED, FOUR_PERMUTED, PLAIN, SOLID
from .grid_values import ALL, bits, raw
from .support import nisa, nl, np

WIDTH = 24


def _content(seed, program, dtype, shape):
    """What a program sends; the other one can compute it too."""
    return bits(np.random.default_rng((seed, program)), dtype, shape)


def _placed(layout, partitions, dtype, content=None):
    tile = nl.ndarray(layout.tile(partitions, WIDTH), dtype=dtype, buffer=nl.sbuf)
    if content is not None:
        write_raw(tile, content)
    return tile, layout.nki(tile, partitions, WIDTH)


def _exchange(source, destination, partitions, dtype, seed, engine):
    me = nl.program_id(0)
    shape = source.tile(partitions, WIDTH)
    mine, theirs = (_content(seed, program, dtype, shape) for program in (me, 1 - me))
    src_tile, src = _placed(source, partitions, dtype, mine)
    before = _content(seed, 2, dtype, destination.tile(partitions, WIDTH))
    dst_tile, dst = _placed(destination, partitions, dtype, before)
    nisa.sendrecv(src, dst, 1 - me, 1 - me, seed, engine)
    expected = raw(before).copy()
    part = destination.numpy(expected, partitions, WIDTH)
    part[...] = source.numpy(raw(theirs), partitions, WIDTH).reshape(part.shape)
    np.testing.assert_array_equal(raw(dst_tile.array), expected)
    np.testing.assert_array_equal(raw(src_tile.array), raw(mine))


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("engine", list(nisa.dma_engine))
def test_sendrecv_dtypes(target, engine, on_target):
    on_target(target)

    def kernel():
        for seed, dtype in enumerate(ALL):
            _exchange(COLUMNS, CORNER, 7, dtype, seed, engine)

    nki.jit(kernel)[2]()


@pytest.mark.parametrize("partitions", [7, 33, 100, 128])
def test_sendrecv_layouts(partitions):
    flat = [place for place in SOLID if place.rank == 2 and place.fits(partitions, WIDTH)]
    alike = [CUBE_PERMUTED, FOUR_PERMUTED]

    def kernel():
        pairs = [(a, b) for a in flat for b in flat] + [(place, place) for place in alike]
        for seed, (source, destination) in enumerate(pairs):
            dtype = ALL[seed % len(ALL)]
            _exchange(source, destination, partitions, dtype, seed, nisa.dma_engine.dma)

    nki.jit(kernel)[2]()


@pytest.mark.parametrize("dtype", ALL)
def test_both_halves_after_a_barrier(dtype):
    """Each core writes half of a tensor in shared HBM; after the barrier both read all of it."""
    halves = [_content(0, program, dtype, (7, WIDTH)) for program in (0, 1)]

    def kernel():
        me = nl.program_id(0)
        shared = nl.ndarray((14, WIDTH), dtype=dtype, buffer=nl.shared_hbm)
        _, mine = _placed(PLAIN, 7, dtype, halves[me])
        nisa.dma_copy(dst=shared[7 * me : 7 * me + 7, :], src=mine)
        nisa.core_barrier(shared, (0, 1))
        whole = nl.ndarray((14, WIDTH), dtype=dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=whole, src=shared)
        np.testing.assert_array_equal(raw(whole.array), raw(np.concatenate(halves)))

    nki.jit(kernel)[2]()
