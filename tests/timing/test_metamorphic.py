"""What must hold between modelled times, whatever the figures are."""

import re

import pytest

import nki_emulator
from bench.validation import attention, matmul, streams

from .kernels import chain, copy_through, load, nl, products, profile, save, work, zeros

KERNELS = {
    "copy": (copy_through, (zeros(128, 4096), 512)),
    "work": (work, (zeros(128, 512), 20)),
    "products": (products, (zeros(128, 512), 12, 2)),
    "matmul": (matmul.loads_inside, (zeros(512, 256), zeros(512, 1024))),
    "matmul, K blocked": (matmul.blocked_k, (zeros(1024, 512), zeros(1024, 1024), 2, 2, 4)),
    "attention": (attention.pipelined, (zeros(128, 512), zeros(128, 512), zeros(512, 128))),
    "norm": (
        streams.rms_norm_projection, (zeros(256, 512), zeros(512, 256), zeros(512), 1e-6),
    ),
}  # fmt: skip


@pytest.fixture(params=sorted(KERNELS))
def modelled(request):
    kernel, arguments = KERNELS[request.param]
    return profile(kernel, *arguments)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", sorted(set(KERNELS) - {"norm"}))
def test_no_estimate_is_under_the_floor(name, target, on_target):
    on_target(target)
    kernel, arguments = KERNELS[name]
    found = profile(kernel, *arguments)
    assert 0 < found.floor <= found.optimistic <= found.total


def test_busy_and_idle_fill_the_time(modelled):
    for engine, busy in modelled.busy.items():
        assert 0 <= busy <= modelled.total, engine
        assert busy + modelled.idle[engine] == pytest.approx(modelled.total)


def test_a_step_starts_after_what_it_reads(modelled):
    """Independent of the scheduler's own bookkeeping: overlapping boxes, in program order."""
    done = []
    for event in modelled.events:
        start = event.issued - 600 if event.transfer else event.start
        for operand in event.step.reads:
            for storage, box, time, tensor in done:
                if storage == operand.storage and _meet(box, operand.box):
                    assert start >= time - 1e-6 or (tensor and event.track == "tensor")
        for operand in event.step.writes:
            done.append((operand.storage, operand.box, event.done, event.track == "tensor"))


def _meet(one, other):
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def test_an_engine_does_one_thing_at_a_time(modelled):
    for queue in {event.track for event in modelled.events}:
        last = 0.0
        for event in modelled.events:
            if event.track == queue:
                assert (event.table[0] if event.table else event.start) >= last - 1e-6
                assert event.table is None or event.table[1] <= event.start + 1e-6
                last = event.end


def test_two_runs_give_the_same_number(modelled):
    name = next(
        key
        for key, (kernel, arguments) in KERNELS.items()
        if profile(kernel, *arguments).total == modelled.total
    )
    kernel, arguments = KERNELS[name]
    again = profile(kernel, *arguments)
    assert (again.total, again.optimistic, again.floor, again.busy) == (
        modelled.total, modelled.optimistic, modelled.floor, modelled.busy,
    )  # fmt: skip


@pytest.mark.parametrize("small, large", [(1024, 2048), (2048, 4096), (4096, 4608)])
def test_more_bytes_never_get_cheaper(small, large):
    times = [profile(copy_through, zeros(128, size), 512).total for size in (small, large)]
    assert times[0] < times[1]


@pytest.mark.parametrize("small, large", [(1, 2), (5, 6), (20, 40)])
def test_more_work_never_gets_cheaper(small, large):
    times = [profile(work, zeros(128, 512), count).total for count in (small, large)]
    assert times[0] < times[1]


def test_wider_rows_are_moved_faster():
    narrow, wide = (profile(copy_through, zeros(128, 4096), width).total for width in (64, 2048))
    assert wide < narrow


@pytest.mark.parametrize("groups", [4, 9, 16])
def test_doubling_the_work_at_most_doubles_the_time(groups):
    once, twice = (profile(products, zeros(128, 512), n, 2).total for n in (groups, 2 * groups))
    assert once < twice <= 2 * once


@pytest.mark.parametrize("length", [2, 7, 20])
def test_removing_dependencies_never_slows(length):
    bound = profile(chain, zeros(128, 512), length, True)
    free = profile(chain, zeros(128, 512), length, False)
    assert free.total <= bound.total


def test_a_second_psum_tile_helps():
    single, double = (profile(products, zeros(128, 512), 16, slots) for slots in (1, 2))
    assert double.total < single.total
    assert single.optimistic == pytest.approx(double.optimistic)


def test_the_second_core_helps():
    weights = zeros(128, 32768)
    one = profile(streams.stream, weights, 4096)
    two = nki_emulator.profile(streams.stream[2])(weights, 4096)
    assert one.total / 2 < two.total < one.total
    assert two.launch > one.launch


def test_a_launch_is_kept_apart():
    found = profile(work, zeros(128, 512), 1)
    assert found.total < found.launch


def test_a_switch_of_functions_costs_a_table():
    def kernel(x, functions):
        tile = load(x)
        for function in functions:
            nl_function = {"exp": nl.exp, "gelu": nl.gelu, "square": nl.square}[function]
            nki_activation(tile, nl_function)
        return save(tile)

    def time(*functions):
        return profile(kernel, zeros(128, 512), functions).total

    # While an activation waits for the result of the one before, its table is loaded.
    load_time = 1280 - 190
    assert time("exp", "exp", "gelu", "gelu") == pytest.approx(
        time("exp", "exp", "exp", "exp") + load_time
    )
    assert time("exp", "square", "exp") == pytest.approx(time("exp", "exp", "exp"))
    assert time("exp", "gelu", "exp") == pytest.approx(time("exp", "exp", "exp") + 2 * load_time)


def test_the_first_table_is_loaded_while_the_data_comes():
    def kernel(x):
        tile = load(x)
        nki_activation(tile, nl.exp)
        return save(tile)

    found = profile(kernel, zeros(128, 512))
    (event,) = [event for event in found.events if event.step.op == "activation"]
    assert event.table == (0, 1280) and event.start == pytest.approx(found.events[0].done)
    assert event.work == pytest.approx(1280 + 512 / 1.2) == found.busy["scalar"]
    assert sum(time for *_, op, _, time, _ in found.lines if op == "activation") == event.work


def nki_activation(tile, function):
    import nki.isa as nisa

    nisa.activation(dst=tile, op=function, data=tile)


def row_tiles(x, rounds):
    """``rounds`` times four products that use 32 rows each, so that they work side by side."""
    import nki.isa as nisa

    tile = load(x)
    banks = []
    for _ in range(4):
        banks.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum))
    for step in range(4 * rounds):
        rows = nl.ds(32 * (step % 4), 32)
        nisa.nc_matmul(
            dst=banks[step % 4], stationary=tile[rows, 0:128], moving=tile[rows, :],
            tile_position=(32 * (step % 4), 0), tile_size=(32, 128), accumulate=step >= 4,
        )  # fmt: skip
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=banks[3])
    return save(out)


def test_an_engine_is_busy_once_however_many_row_tiles_work(tmp_path):
    found = profile(row_tiles, zeros(128, 512), 40)
    products = [event for event in found.events if event.track == "tensor"]
    assert sum(event.work for event in products) > found.total
    ends = max(event.end for event in products)
    assert found.busy["tensor"] <= ends - min(event.start for event in products) + 1e-6
    assert all(idle >= 0 for idle in found.idle.values())
    found.to_html(tmp_path / "page.html")
    shares = re.findall(r'class="n">([\d.-]+)%', (tmp_path / "page.html").read_text())
    assert shares and all(0 <= float(share) <= 100 for share in shares)


def test_the_dma_engines_are_busy_for_the_time_of_the_transfers():
    """Two queues take turns, so their spans overlap; the work is the same."""
    found = profile(copy_through, zeros(128, 4096), 512)
    work = sum(event.work for event in found.events if event.transfer)
    assert found.busy["dma"] == pytest.approx(work)
