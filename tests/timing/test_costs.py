"""Costs of single instructions, from the documented formulas, on each generation."""

import pytest

from nki_emulator.hardware import HARDWARE
from nki_emulator.timing.costs import CostModel, transfer

from .kernels import load, nl, np, profile, save, zeros


def events(kernel, *arguments):
    return profile(kernel, *arguments).events


def only(found, op):
    (event,) = [event for event in found if event.step.op == op]
    return event


def cycles(event, clock):
    return (event.end - event.start) * clock


VECTOR, SCALAR, TENSOR = 0.96, 1.2, 2.4  # GHz, trn2


def vector_kernel(x, issue, dtype=nl.bfloat16, buffer=nl.sbuf):
    """One instruction ``issue(dst, data)`` on a tile like x."""
    import nki.isa as nisa

    tile = load(x)
    source = nl.ndarray(tile.shape, dtype=dtype, buffer=buffer)
    nisa.tensor_copy(dst=source, src=tile, engine=nisa.engine.scalar)
    out = nl.ndarray(tile.shape, dtype=dtype, buffer=nl.sbuf)
    issue(nisa, out, source)
    return save(out)


def tensor_scalar(nisa, dst, data):
    nisa.tensor_scalar(dst=dst, data=data, op0=nl.multiply, operand0=2.0)


def tensor_tensor(nisa, dst, data):
    nisa.tensor_tensor(dst=dst, data1=data, data2=data, op=nl.add)


def reciprocal(nisa, dst, data):
    nisa.reciprocal(dst=dst, data=data)


def exp(nisa, dst, data):
    nisa.activation(dst=dst, op=nl.exp, data=data)


def strided(nisa, dst, data):
    nisa.tensor_scalar(dst=dst[:, ::2], data=data[:, ::2], op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(dst=dst[:, 1::2], data=data[:, 1::2], op0=nl.multiply, operand0=2.0)


@pytest.mark.parametrize(
    "issue, op, dtype, buffer, clock, expected",
    [
        # Four elements a cycle in 16-bit SBUF, two in float32, one from PSUM.
        (tensor_scalar, "tensor_scalar", nl.bfloat16, nl.sbuf, VECTOR, 512 / 4),
        (tensor_scalar, "tensor_scalar", nl.float32, nl.sbuf, VECTOR, 512 / 2),
        (tensor_scalar, "tensor_scalar", nl.float32, nl.psum, VECTOR, 512),
        (tensor_tensor, "tensor_tensor", nl.bfloat16, nl.sbuf, VECTOR, 512 / 2),
        (tensor_tensor, "tensor_tensor", nl.float32, nl.sbuf, VECTOR, 512),
        (reciprocal, "reciprocal", nl.float32, nl.sbuf, VECTOR, 8 * 512),
        (exp, "activation", nl.bfloat16, nl.sbuf, SCALAR, 512),
    ],
)
def test_an_instruction_of_512_elements(issue, op, dtype, buffer, clock, expected):
    found = only(events(vector_kernel, zeros(128, 512), issue, dtype, buffer), op)
    assert cycles(found, clock) == pytest.approx(expected)


def test_strided_operands_lose_half_of_the_fast_mode():
    found = events(vector_kernel, zeros(128, 512), strided)
    scalar = [event for event in found if event.step.op == "tensor_scalar"]
    assert [cycles(event, VECTOR) for event in scalar] == pytest.approx([128, 128])


def test_a_small_instruction_takes_the_minimum():
    found = only(events(vector_kernel, zeros(128, 4), tensor_scalar), "tensor_scalar")
    assert cycles(found, VECTOR) == pytest.approx(64)


def test_generations_differ(on_target):
    times = {}
    for name in ("trn1", "trn2", "trn3"):
        on_target(name)

        def kernel(x):
            import nki.isa as nisa

            tile = load(x)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            return save(tile)

        event = only(events(kernel, zeros(128, 512)), "tensor_scalar")
        times[name] = event.end - event.start
    assert times["trn1"] == pytest.approx(512 / 1.12)
    assert times["trn2"] == pytest.approx(128 / 0.96)
    assert times["trn3"] == pytest.approx(128 / 1.2)


def matmul_kernel(x, columns, dtype, repeats):
    import nki.isa as nisa

    tile = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    psum = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum)
    for _ in range(repeats):
        nisa.nc_matmul(dst=psum, stationary=tile[:, 0:128], moving=tile[:, 0:columns])
    out = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=out, src=psum)
    return save(out)


@pytest.mark.parametrize(
    "columns, dtype, expected",
    [
        (512, nl.bfloat16, 512), (64, nl.bfloat16, 64), (32, nl.bfloat16, 64),
        (512, nl.float32, 2048),
    ],
)  # fmt: skip
def test_matmul(columns, dtype, expected):
    """The first one also loads the stationary tile, 32 cycles; the second finds it there."""
    found = events(matmul_kernel, zeros(128, 512), columns, dtype, 2)
    first, second = [event for event in found if event.step.op == "nc_matmul"]
    assert cycles(first, TENSOR) == pytest.approx(expected + 32)
    assert cycles(second, TENSOR) == pytest.approx(expected)
    assert second.start == pytest.approx(first.end), "a group streams through the array"


def test_multiply_adds_and_utilisation():
    found = profile(matmul_kernel, zeros(128, 512), 512, nl.bfloat16, 100)
    assert found.multiply_adds == 100 * 128 * 128 * 512
    share = found.multiply_adds / (128 * 128 * 2.4) / found.total
    assert found.matmul_utilisation == pytest.approx(share)
    assert 0.5 < share < 1


def test_row_tiles_run_side_by_side():
    def kernel(x, tiled):
        import nki.isa as nisa

        tile = load(x)
        banks = []
        for _ in range(2):
            banks.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum))
        for half in range(2):
            rows = nl.ds(64 * half if tiled else 0, 64)
            position = dict(tile_position=(64 * half, 0), tile_size=(64, 128)) if tiled else {}
            nisa.nc_matmul(
                dst=banks[half], stationary=tile[rows, 0:128], moving=tile[rows, :], **position
            )
        out = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=out, data1=tile, data2=banks[0], op=nl.add)
        nisa.tensor_tensor(dst=out, data1=out, data2=banks[1], op=nl.add)
        return save(out)

    def starts(tiled):
        found = events(kernel, zeros(128, 512), tiled)
        return [event.start for event in found if event.step.op == "nc_matmul"]

    first, second = starts(True)
    assert first == second
    first, second = starts(False)
    assert second > first


def test_dma_takes_issue_first_byte_bytes_and_notice():
    def kernel(x):
        return save(load(x))

    found = events(kernel, zeros(128, 4096))
    first = found[0]
    assert first.issued == pytest.approx(600)
    assert first.start == pytest.approx(600 + 750)
    assert first.end - first.start == pytest.approx(128 * 8192 / 368)
    assert first.done == pytest.approx(first.end + 300)


@pytest.mark.parametrize("width, rows, expected", [(128, 128, 8 * 58), (4096, 128, None)])
def test_short_rows_cost_their_descriptors(width, rows, expected):
    def kernel(x):
        return save(load(x))

    first = events(kernel, zeros(rows, width))[0]
    bytes_time = rows * width * 2 / 368
    assert first.end - first.start == pytest.approx(expected or bytes_time)


def test_single_elements_are_dear():
    """A transposing dma_copy moves two bytes a descriptor."""

    def kernel(x):
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        import nki.isa as nisa

        nisa.dma_copy(dst=tile, src=x.permute((1, 0)))
        return save(tile)

    first = events(kernel, zeros(64, 128))[0]
    assert first.end - first.start == pytest.approx(128 * 64 * 58 / 16)


@pytest.mark.parametrize("generation", sorted(HARDWARE))
def test_optimistic_costs_are_never_above_literal_ones(generation):
    hardware = HARDWARE[generation]
    for kernel, arguments in (
        (vector_kernel, (zeros(128, 512), tensor_scalar)),
        (vector_kernel, (zeros(128, 512), tensor_scalar, nl.float32, nl.psum)),
        (matmul_kernel, (zeros(128, 512), 512, nl.bfloat16, 3)),
    ):
        literal, optimistic = CostModel(hardware), CostModel(hardware, optimistic=True)
        for event in events(kernel, *arguments):
            if event.transfer is None:
                first, second = literal.compute(event.step), optimistic.compute(event.step)
                assert second.occupancy <= first.occupancy
            else:
                slow = transfer(event.step, hardware, hardware.dma_rate)
                fast = transfer(event.step, hardware, hardware.dma_peak_rate)
                assert fast.time <= slow.time


def test_hbm_bytes_are_counted_once_each():
    def kernel(x):
        return save(load(x))

    found = profile(kernel, np.zeros((128, 64), np.float32))
    assert (found.hbm_read, found.hbm_written) == (128 * 64 * 4, 128 * 64 * 4)
