"""release-notes/components/nki.rst, 0.3 to 0.6: behaviour that its lists of changes describe."""

from dataclasses import dataclass

import pytest
import torch

from .support import (
    load,
    nisa,
    nki,
    nl,
    np,
    pair,
    refused,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip


@pytest.mark.parametrize(
    "dtype, values_in, expected",
    [
        ("int8", [0.5, 1.5, 2.5, -0.5, -1.5, 300, -300], [0, 2, 2, 0, -2, 127, -128]),
        ("uint8", [0.5, 3.5, -1, 255.4, 255.5, 1e9], [0, 4, 0, 255, 255, 255]),
        ("int32", [2.5, 1e20, -1e20], [2, 2**31 - 1, -(2**31)]),
    ],
)
def test_floats_become_integers(dtype, values_in, expected):
    """0.6, Bug Fixes: to the nearest, ties to even, saturating."""

    @nki.jit
    def kernel(x):
        return save(nl.copy(load(x), dtype=dtype))

    assert kernel(np.array([values_in], np.float32)).tolist() == [expected]


def test_a_sum_that_lands_in_the_result():
    """0.6, Bug Fixes: reduce_res may be the same tile as dst; the sum is what remains."""

    @nki.jit
    def kernel(x):
        t = tile((4, 1))
        nisa.activation(
            dst=t, op=nl.copy, data=load(x), reduce_op=nl.add, reduce_res=t,
            reduce_cmd=nisa.reduce_cmd.reset_reduce, scale=3.0,
        )  # fmt: skip
        return save(t)

    x = values((4, 1))
    same_bits(kernel(x), x * np.float32(3))


def test_operands_of_different_ranks():
    """0.6, Bug Fixes: tensor_copy_predicated and select_reduce match elements, not ranks."""

    @nki.jit
    def kernel(x, predicate):
        t, chosen = tile((4, 2, 3, 2)), tile((4, 2, 6))
        p = load(predicate)
        nisa.tensor_copy_predicated(dst=t, src=load(x), predicate=p.reshape((4, 3, 4)))
        nisa.select_reduce(chosen, p.reshape((4, 4, 3)), load(x), 0.0)
        return save(t), save(chosen)

    x, predicate = values((4, 12)), values((4, 12), "uint8", low=0, high=1)
    copied, chosen = kernel(x, predicate)
    expected = np.where(predicate != 0, x, np.float32(0))
    same_bits(copied.reshape(4, 12), expected)
    same_bits(chosen.reshape(4, 12), expected)


def test_python_floats_as_the_other_value():
    """0.6, Bug Fixes: range_select and affine_select take float(np.finfo(np.float32).min)."""
    lowest = float(np.finfo(np.float32).min)

    @nki.jit
    def kernel(x):
        t, bound = load(x), tile((4, 1), value=2.0)
        ranged, affine = tile(x.shape), tile(x.shape)
        nisa.range_select(ranged, t, nl.less, nl.less, bound, bound, on_false_value=lowest)
        nisa.affine_select(affine, [[1, 4]], 0, t, lowest, cmp_op=nl.less, offset=-2)
        return save(ranged), save(affine)

    x = values((4, 4))
    expected = np.where(np.arange(4) < 2, x, np.float32(lowest))
    for got in kernel(x):
        same_bits(got, expected)


def test_more_than_128_partitions():
    """0.6, Improvements: operands of more than 128 partitions are refused, in views too."""

    def kernel(rows):
        nl.ndarray((rows, 4), dtype=nl.float32, buffer=nl.psum)  # rule

    pair("partitions", kernel, 128, 129)


def test_an_index_of_a_local_gather_in_a_view():
    """0.4, Bug Fixes: the destination of local_gather may be a sub-view or an .ap pattern."""

    @nki.jit
    def kernel(x, index):
        t = tile((16, 40), value=-1.0)
        view = t.ap([[40, 16], [2, 16]], offset=1)
        nisa.local_gather(view, load(x), load(index), num_elem_per_idx=1, num_valid_indices=16)
        return save(t)

    x, index = values((16, 10)), values((16, 1), "uint16", low=0, high=9)
    expected = np.full((16, 40), -1, np.float32)
    expected[:, 1:33:2] = x[:, index[:, 0]]
    same_bits(kernel(x, index), expected)


def test_both_arguments_of_a_local_gather():
    """0.6, Known Issues: num_valid_indices has to be passed, and to fit dst."""

    def kernel(count):
        index = tile((16, 1), nl.uint16)
        nisa.local_gather(tile((16, 16)), tile((16, 4)), index, 1, count)  # rule

    pair("gather-count", kernel, (16,), (None,))
    pair("gather-shape", kernel, (16,), (8,))


def test_offsets_in_registers():
    """0.4, Bug Fixes: iota and affine_select take dynamic register offsets."""

    @nki.jit
    def kernel(start):
        register = nisa.register_alloc()
        nisa.register_load(register, start)
        numbers, mask = nl.ndarray((2, 4), nl.int32), nl.ndarray((2, 4), nl.float32)
        nisa.iota(numbers, [[1, 4]], offset=register)
        nisa.affine_select(mask, [[1, 4]], 0, tile((2, 4), value=1.0), 0.0, offset=register)
        return save(numbers), save(mask)

    numbers, mask = kernel(np.array([[-2]], np.int32))
    same_bits(numbers, np.tile(np.arange(-2, 2, dtype=np.int32), (2, 1)))
    same_bits(mask, np.tile(np.array([0, 0, 1, 0], np.float32), (2, 1)))


def test_operands_of_three_dimensions():
    """0.4, Bug Fixes: nc_matmul uses all free dimensions of its operands."""

    @nki.jit
    def kernel(x, y):
        sums = nl.ndarray((6, 2, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(sums, load(x), load(y))
        return save(sums)

    x = values((16, 2, 3), "int8").astype(np.float32)
    y = values((16, 2, 4), "int8", seed=1).astype(np.float32)
    same_bits(kernel(x, y), (x.reshape(16, 6).T @ y.reshape(16, 8)).reshape(6, 2, 4))


def test_the_engine_of_a_transpose():
    """0.4, Bug Fixes: engine is honoured; by default the destination's buffer decides."""

    def kernel(engine, buffer, size):
        t = nl.ndarray((size, 8), dtype=nl.float32, buffer=buffer)
        nisa.nc_transpose(t, tile((8, size)), engine=engine)  # rule

    engines = nisa.engine
    simulate(kernel)(engines.unknown, nl.psum, 64)
    pair("transpose-size", kernel, (engines.unknown, nl.sbuf, 32), (engines.unknown, nl.sbuf, 64))
    pair("transpose-size", kernel, (engines.vector, nl.psum, 32), (engines.vector, nl.psum, 64))
    pair("matmul-dst-buffer", kernel, (engines.tensor, nl.psum, 8), (engines.tensor, nl.sbuf, 8))


@dataclass(frozen=True)
class Frozen(nl.NKIObject):
    scale: float = 1.0


def test_frozen_objects_and_absent_arguments():
    """0.4, Bug Fixes: frozen dataclasses can be constructed; None is an argument like others."""

    @nki.jit
    def kernel(x, bias, config):
        assert Frozen(4.0).scale == 4.0
        t = nl.multiply(load(x), config.scale)
        return save(t if bias == None else nl.add(t, load(bias)))  # noqa: E711

    x = values((2, 3))
    same_bits(kernel(x, None, Frozen(2.0)), 2 * x)
    same_bits(kernel(x, x, Frozen(2.0)), 2 * x + x)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_boolean_results(make):
    """0.4, Bug Fixes: bool outputs stay bool."""

    @nki.jit
    def kernel(x):
        return save(load(x))

    x = make([[True, False], [False, True]])
    got = kernel(x)
    assert got.dtype == x.dtype and got.tolist() == x.tolist()


def test_printing_tensors_of_any_rank(capsys):
    """0.4, Bug Fixes: device_print works on a 1-D tensor in HBM."""
    simulate(lambda x: nl.device_print("row", x))(np.arange(3, dtype=np.int32))
    assert "row" in capsys.readouterr().out


def test_operators_of_the_fourth_generation(on_target):
    """0.4, New Features: square, relu, abs_max and abs_min as op0 of tensor_scalar on trn3."""

    def kernel(op, operand):
        t = tile((2, 2), value=-3.0)
        nisa.tensor_scalar(dst=t, data=t, op0=op, operand0=operand)  # rule
        return save(t)

    cases = ((nl.square, 0.0, 9), (nl.relu, 0.0, 0), (nl.abs_max, 2.0, -3), (nl.abs_min, 2.0, 2))
    for op, operand, _ in cases:
        refused("operator-target", kernel, op, operand)
    on_target("trn3")
    for op, operand, expected in cases:
        assert (simulate(kernel)(op, operand) == expected).all()


def test_formats_that_do_not_mix(on_target):
    """0.4, New Features: OCP float8_e4m3fn on trn3, never with the legacy float8_e4m3."""

    def kernel(stationary, moving):
        sums = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(sums, tile((32, 4), stationary), tile((32, 4), moving))  # rule

    new, old = nl.float8_e4m3fn, nl.float8_e4m3
    refused("matmul-dtype", kernel, new, new)
    on_target("trn3")
    pair("matmul-dtype-mix", kernel, (new, new), (new, old))


def test_names_of_tile_size():
    """0.4 and 0.5, New Features: capacities in elements and in bytes, and the banks of PSUM."""

    def kernel():
        size = nl.tile_size
        assert size.sbuf_fmax * 4 == size.sbuf_fmax_bytes
        assert size.psum_bank_fmax * 4 == size.psum_bank_fmax_bytes == 2048
        assert size.sbuf_size_bytes >= 128 * size.sbuf_fmax_bytes
        assert size.psum_num_banks == 8

    simulate(kernel)()


def test_a_wide_result_of_a_matmul(on_target):
    """0.5, New Features: 8192 bfloat16 or 4096 float32 elements a partition, the whole PSUM."""
    on_target("trn3")

    def kernel(dtype, width):
        sums = nl.ndarray((4, width), dtype=dtype, buffer=nl.psum)
        nisa.nc_matmul(sums, tile((32, 4), nl.bfloat16), tile((32, width), nl.bfloat16))  # rule

    simulate(kernel)(nl.bfloat16, 8192)
    simulate(kernel)(nl.float32, 4096)
    refused("psum-full", kernel, nl.bfloat16, 8193, line="sums = nl.ndarray")
    refused("psum-full", kernel, nl.float32, 4097, line="sums = nl.ndarray")


def test_skipped_rows_of_a_transpose():
    """0.5, New Features and Bug Fixes: dma_transpose skips; what is skipped stays in dst."""

    @nki.jit
    def kernel(x, rows):
        t = tile((8, 16), nl.bfloat16, value=-1.0)
        source = x.ap([[8, 16], [1, 8]], vector_offset=load(rows), indirect_dim=0)
        nisa.dma_transpose(dst=t, src=source, oob_mode=nisa.oob_mode.skip)
        return save(t)

    x = values((20, 8), "bfloat16")
    rows = np.arange(16, dtype=np.uint32)[:, None]
    rows[3], rows[7] = 20, 99
    expected = x[np.minimum(rows[:, 0], 19)].T.copy()
    expected[:, [3, 7]] = -1
    same_bits(kernel(x, rows), np.ascontiguousarray(expected))


def test_a_scaled_exponent_of_two(on_target):
    """0.5, Improvements: the block scale of quantize_mx is twice that of the OCP's sample."""
    on_target("trn3")

    @nki.jit
    def kernel(x):
        data = nl.ndarray((32, 1), dtype=nl.float8_e4m3fn_x4)
        scale = nl.ndarray((4, 1), dtype=nl.uint8)
        nisa.quantize_mx(data, load(x), scale)
        return save(scale)

    x = np.full((32, 4), 256.0, np.float16)
    # The sample conversion gives 2^(8 - 8), so the byte 127; this is one more.
    assert (kernel(x) == 128).all()
