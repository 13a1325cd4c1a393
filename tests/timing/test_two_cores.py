"""A launch on two cores: they run side by side and wait for each other where they meet."""

import nki.isa as nisa
import pytest

import nki_emulator

from .kernels import load, nl, save, zeros


def busy(x, slow_core, meet):
    """One core does much more than the other; then, perhaps, they meet."""
    core = nl.program_id(0)
    shared = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = load(x)
    if core == slow_core:
        for _ in range(50):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.5)
    nisa.dma_copy(dst=shared[core], src=tile)
    if meet:
        nisa.core_barrier(data=shared, cores=(0, 1))
        other = load(shared[1 - core])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
    out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[core], src=tile)
    return out


def profile(slow_core, meet):
    kernel = nki_emulator.jit(busy)[2]
    return nki_emulator.profile(kernel)(zeros(128, 512), slow_core, meet)


def last(found, core):
    return max(event.done for event in found.events if event.step.core == core)


@pytest.mark.parametrize("slow", [0, 1])
def test_cores_run_side_by_side(slow):
    found = profile(slow, False)
    assert found.cores == 2
    assert last(found, slow) == found.total > 1.5 * last(found, 1 - slow)


@pytest.mark.parametrize("slow", [0, 1])
def test_cores_wait_where_they_meet(slow):
    found = profile(slow, True)
    barriers = [event for event in found.events if event.step.op == "core_barrier"]
    assert len(barriers) == 2 and barriers[0].start == barriers[1].start
    stores = [
        event
        for event in found.events
        if event.track.endswith("dma store") and event.done <= barriers[0].start
    ]
    assert {event.step.core for event in stores} == {0, 1}, "both stores are complete before it"
    for core in (0, 1):
        after = [
            event for event in found.events
            if event.step.core == core and event.step.op == "dma_copy" and event.step.reads
            and not event.step.reads[0].on_chip
        ]  # fmt: skip
        assert after[-1].start > barriers[0].end
    assert last(found, 1 - slow) > last(profile(slow, False), 1 - slow)


def test_tracks_name_their_core():
    found = profile(0, True)
    assert {event.track.split()[1] for event in found.events} == {"0", "1"}


def test_exchange():
    def exchange(x):
        core = nl.program_id(0)
        mine = load(x)
        if core == 0:
            for _ in range(50):
                nisa.tensor_scalar(dst=mine, data=mine, op0=nl.multiply, operand0=1.5)
        theirs = nl.ndarray(mine.shape, dtype=mine.dtype, buffer=nl.sbuf)
        nisa.sendrecv(
            src=mine, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0
        )
        out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[core], src=theirs)
        return out

    found = nki_emulator.profile(nki_emulator.jit(exchange)[2])(zeros(128, 512))
    first, second = [event for event in found.events if event.step.op == "sendrecv"]
    assert first.start == second.start
    slow = [e for e in found.events if e.step.core == 0 and e.step.op == "tensor_scalar"]
    assert first.start > slow[-1].done


def test_one_core_has_plain_tracks():
    def kernel(x):
        return save(load(x))

    found = nki_emulator.profile(kernel)(zeros(128, 512))
    assert {event.track for event in found.events} == {"dma load", "dma store"}
