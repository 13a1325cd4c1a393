"""What holds between modelled times of random small kernels.

Loads and stores share the DMA engines, and an activation table stays loaded: a store that comes
earlier can slow down a load that others wait for, and an early activation can bring a table that a
later one finds. Both happen on a chip. So kernels are compared exactly where only one DMA queue has
work, within a few per cent where both have, and without functions that need a table.
"""

import hypothesis
import hypothesis.strategies as st
import nki.isa as nisa
import nki.language as nl
import pytest

from .kernels import profile, zeros

TILES, MORE_TILES = 4, 8
TARGETS = ("trn1", "trn2", "trn3")
COMPUTE = ("vector", "add", "square", "gpsimd", "product", "evacuate")
ANY = (*COMPUTE, "load", "store", "exp", "gelu", "transpose")
# Instructions, and how much of the time loads and stores can lose to each other.
COMPARED = st.sampled_from([(COMPUTE, 1e-9), ((*COMPUTE, "load", "store"), 0.05)])

place = st.integers(0, TILES - 1)


def programs(names, most=20):
    """Random instructions: (name, tile written, tile read, another tile read)."""
    return st.lists(st.tuples(st.sampled_from(names), place, place, place), max_size=most)


def run(program, columns=256, tiles=TILES):
    """The profile of a program over ``tiles`` SBUF tiles and two PSUM tiles."""

    def kernel(x):
        out = nl.ndarray((128, columns * 64), dtype=x.dtype, buffer=nl.private_hbm)
        sbuf, psum = [], []
        for number in range(tiles + 2):
            memory = nl.sbuf if number < tiles else nl.psum
            dtype = x.dtype if number < tiles else nl.float32
            tile = nl.ndarray((128, columns), dtype=dtype, buffer=memory)
            (sbuf if number < tiles else psum).append(tile)
        for tile in reversed(sbuf + psum):  # the last SBUF tile is there before the others
            nisa.memset(dst=tile, value=0.0)
        for number, (name, target, source, other) in enumerate(program):
            columns_of = nl.ds(number % 64 * columns, columns)
            _issue(name, sbuf, psum, target, source, other, out[:, columns_of], x)
        for number in range(tiles):
            nisa.dma_copy(dst=out[:, nl.ds(number * columns, columns)], src=sbuf[number])

    return profile(kernel, zeros(128, columns))


def _issue(name, sbuf, psum, target, source, other, out, x):
    to, data, second = sbuf[target], sbuf[source], sbuf[other]
    if name == "load":
        nisa.dma_copy(dst=to, src=x)
    elif name == "store":
        nisa.dma_copy(dst=out, src=data)
    elif name == "vector":
        nisa.tensor_scalar(dst=to, data=data, op0=nl.multiply, operand0=2.0)
    elif name == "add":
        nisa.tensor_tensor(dst=to, data1=data, data2=second, op=nl.add)
    elif name == "gpsimd":
        nisa.tensor_copy(dst=to, src=data, engine=nisa.engine.gpsimd)
    elif name == "product":
        nisa.nc_matmul(
            dst=psum[target % 2], stationary=data[:, 0:128], moving=second, accumulate=False
        )
    elif name == "evacuate":
        nisa.tensor_copy(dst=to, src=psum[source % 2])
    elif name == "transpose":
        nisa.nc_transpose(
            dst=nl.ndarray((128, 128), dtype=to.dtype, buffer=nl.psum), data=data[:, 0:128]
        )
    else:
        nisa.activation(
            dst=to, op={"exp": nl.exp, "gelu": nl.gelu, "square": nl.square}[name], data=data
        )


many = hypothesis.settings(
    max_examples=80, deadline=None, derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)  # fmt: skip


@many
@hypothesis.given(programs(ANY), st.sampled_from(TARGETS), st.sampled_from([128, 256, 512]))
def test_bounds_stand_in_order(on_target, program, target, columns):
    on_target(target)
    found = run(program, columns)
    assert 0 < found.floor <= found.optimistic <= found.total
    assert max(found.busy.values()) <= found.total
    again = run(program, columns)
    assert (again.total, again.optimistic, again.busy) == (
        found.total, found.optimistic, found.busy
    )  # fmt: skip


def compared(most=20):
    """(program, slack)."""
    return COMPARED.flatmap(lambda kind: st.tuples(programs(kind[0], most), st.just(kind[1])))


@many
@hypothesis.given(compared(), st.sampled_from(COMPUTE), place, place, st.integers(0, 20))
def test_one_more_instruction_never_makes_it_cheaper(drawn, name, source, other, where):
    """Its result goes to a tile that nothing else uses: an overwritten one could cut a wait."""
    program, slack = drawn
    hypothesis.assume(name != "product")
    longer = program[:where] + [(name, TILES, source, other)] + program[where:]
    before, after = run(program, tiles=TILES + 1), run(longer, tiles=TILES + 1)
    assert after.total >= before.total * (1 - slack)
    assert after.optimistic >= before.optimistic * (1 - slack)
    assert after.floor >= before.floor * (1 - 1e-9)


@many
@hypothesis.given(compared(), st.integers(0, 19))
def test_a_dependency_less_never_slows(drawn, where):
    """One instruction reads a tile that is there from the start, instead of what it read."""
    program, slack = drawn
    # Another stationary tile may have to be loaded for a product.
    hypothesis.assume(
        where < len(program) and program[where][0] not in ("load", "evacuate", "product")
    )
    name, target, _, _ = program[where]
    free = program[:where] + [(name, target, TILES, TILES)] + program[where + 1 :]
    bound, freed = run(program, tiles=TILES + 1), run(free, tiles=TILES + 1)
    assert freed.total <= bound.total * (1 + slack)


@many
@hypothesis.given(programs(ANY), st.sampled_from(TARGETS))
def test_twice_the_program_takes_at_most_twice_the_time(on_target, program, target):
    on_target(target)
    once, twice = run(program), run(program + program)
    assert once.total - 1e-6 <= twice.total <= 2 * once.total


@many
@hypothesis.given(compared())
def test_wider_tiles_never_get_cheaper(drawn):
    program, slack = drawn
    narrow, middle, wide = (run(program, columns).total for columns in (128, 256, 512))
    assert narrow * (1 - slack) <= middle and middle * (1 - slack) <= wide


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_tiles_placed_over_each_other_wait_for_each_other(buffers):
    """Four tiles at ``buffers`` addresses take as long as ``buffers`` tiles."""

    def kernel(x, tiles, explicit):
        held = []
        for number in range(tiles):
            address = dict(address=(0, number % buffers * 1024)) if explicit else {}
            held.append(nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, **address))
        out = nl.ndarray((128, 512 * 12), dtype=x.dtype, buffer=nl.private_hbm)
        for number in range(12):
            tile = held[number % tiles]
            nisa.dma_copy(dst=tile, src=x)
            nisa.activation(dst=tile, op=nl.square, data=tile)
            nisa.dma_copy(dst=out[:, nl.ds(512 * number, 512)], src=tile)

    placed = profile(kernel, zeros(128, 512), 4 if buffers != 3 else 3, True)
    plain = profile(kernel, zeros(128, 512), buffers, False)
    assert placed.total == pytest.approx(plain.total)
    assert placed.optimistic == pytest.approx(plain.optimistic)


def test_a_dynamic_loop_costs_what_the_same_iterations_cost():
    def body(x, out, number):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out.select(0, number), src=tile)

    def unrolled(x, count):
        out = nl.ndarray((8, 128, 512), dtype=x.dtype, buffer=nl.private_hbm)
        for number in range(count):
            body(x, out, number)

    def looped(x, count):
        out = nl.ndarray((8, 128, 512), dtype=x.dtype, buffer=nl.private_hbm)
        for number in nl.dynamic_range(count):
            body(x, out, number)

    for count in (2, 8):
        one, other = (profile(kernel, zeros(128, 512), count) for kernel in (unrolled, looped))
        assert other.total == pytest.approx(one.total, rel=0.02)
