"""`nki.isa`: the instructions, with the names, parameters and defaults of NKI 0.6.

Each function hands its arguments to the engine module that implements it.
"""

from .. import addresses, registers
from ..engines import (
    copies,
    dma,
    dma_sums,
    gathers,
    gpsimd,
    mx,
    positions,
    random_numbers,
    reductions,
    scalar,
    scalar_gen4,
    scans,
    search,
    selects,
    shuffle,
    statistics,
    tensor,
    transposes,
    vector,
    vector_gen4,
)
from ..engines import cores as cores_engine
from ..enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from ..errors import NkiError
from ..errors import NkiValidationError as NkiValidationError
from ..registers import VirtualRegister as VirtualRegister
from ..session import NkiInstruction as NkiInstruction
from ..session import active_session, current_session
from ..targets import selected_target
from .language import equal, maximum

# NKI 0.6 stub, range_select: on_false_value must be the smallest float32.
_FP32_MIN = -3.4028234663852886e38

# Deprecated names of the members of `engine`.
tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


def _run(instruction, implementation, *operands):
    """Run an instruction in the current session; errors get its name and operands."""
    session = active_session()
    if session is None:
        session = current_session(f"nisa.{instruction}")
    try:
        if session.dynamic is not None:
            return addresses.run(session, instruction, implementation, operands)
        return implementation(session, *operands)
    except NkiError as error:
        error.add_instruction(instruction, implementation, operands)
        raise


def get_nc_version():
    """The NeuronCore generation that the kernel runs on."""
    session = active_session()
    target = session.target if session is not None else selected_target()
    return nc_version(target.generation)


def get_nc_sub_version():
    """The silicon revision within the generation: 0, the first."""
    return 0


def dma_copy(
    dst, src, priority=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown,
    engine=engine.unknown, name=None,
):  # fmt: skip
    """Copy between HBM and SBUF, or within one of them: dst = src.

    The element counts are equal; dtypes convert through float32. One side may choose rows of an HBM
    tensor by a (P, 1) tile of indices (gather, scatter), and both may start at a scalar index. An
    index out of bounds is an error, or skips what it would move (``oob_mode.skip``).
    """
    return _run("dma_copy", dma.dma_copy, dst, src, priority, oob_mode, dge_mode, engine, name)


def tensor_copy(dst, src, engine=engine.unknown, name=None):
    """Copy a tile within SBUF and PSUM: dst = src."""
    return _run("tensor_copy", copies.tensor_copy, dst, src, engine, name)


def memset(dst, value, engine=engine.unknown, name=None):
    """Fill a tile with a compile-time constant."""
    return _run("memset", copies.memset, dst, value, engine, name)


def tensor_copy_predicated(dst, src, predicate, reverse_pred=False, name=None):
    """Copy the elements of src where predicate is not zero."""
    return _run(
        "tensor_copy_predicated", selects.tensor_copy_predicated,
        dst, src, predicate, reverse_pred, name,
    )  # fmt: skip


def nc_matmul(
    dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False,
    is_transpose=False, accumulate=None, tile_position=(), tile_size=(),
    perf_mode=matmul_perf_mode.none, name=None,
):  # fmt: skip
    """dst (+)= stationary.T @ moving on the tensor engine, with float32 sums.

    ``stationary`` [K, M] and ``moving`` [K, N] are in SBUF, K and M at most 128, N at most 512
    (gen4: 4096 into a float32 dst, 8192 into bfloat16); free dimensions are flattened. ``dst``
    [M, N] is in PSUM, float32 (gen4: or bfloat16), from partition 0. Dtypes: float32 and tfloat32
    with each other; bfloat16, float16, float8_e4m3, float8_e5m2 (gen4: float8_e4m3fn, not with
    float8_e4m3) with each other. ``accumulate`` False overwrites, True adds, None adds where a
    matmul has written before. ``tile_position`` (row, 0) and ``tile_size`` (rows, 128) select a row
    tile of 32 (gen3), 64 or 128 rows, at which the operands start. ``perf_mode`` double_row (gen3)
    takes float8 operands [K, 2, M] and [K, 2, N] and contracts over both. ``is_transpose`` with the
    identity as ``moving`` copies the bits of stationary (2 or 4 bytes an element) transposed; gen2
    multiplies.
    """
    return _run(
        "nc_matmul", tensor.nc_matmul,
        dst, stationary, moving, is_stationary_onezero, is_moving_onezero, is_transpose,
        accumulate, tile_position, tile_size, perf_mode, name,
    )  # fmt: skip


def nc_matmul_mx(
    dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
    accumulate=None, name=None,
):  # fmt: skip
    """dst (+)= stationary.T @ moving of block-scaled MXFP8 or MXFP4 tiles (gen4).

    ``stationary`` [K, M] and ``moving`` [K, N] hold packed x4 elements in SBUF: K is 32, 64, 96 or
    128, M even and at most 128, N at most 4096 (8192 into bfloat16). The contraction runs over K
    and the four floats of an element. ``dst`` [M, N] is in PSUM, float32 or bfloat16. The scales,
    float8_e8m0fnu or uint8, have the free size of their data and lie in the first four partitions
    of each quadrant, as `quantize_mx` writes them. Row tiles as in `nc_matmul`.
    """
    return _run(
        "nc_matmul_mx", mx.nc_matmul_mx,
        dst, stationary, moving, stationary_scale, moving_scale, tile_position, tile_size,
        accumulate, name,
    )  # fmt: skip


def nc_transpose(dst, data, engine=engine.unknown, name=None):
    """Swap the partition axis and the flattened free axis, bit for bit, in one dtype.

    Tensor engine (default for SBUF to PSUM): up to 128 x 128 elements of 2 or 4 bytes; gen2
    multiplies by the identity, so NaN and infinity spread. Vector engine: up to 32 x 32, any dtype.
    """
    return _run("nc_transpose", transposes.nc_transpose, dst, data, engine, name)


def dma_transpose(
    dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error,
    name=None,
):  # fmt: skip
    """dst = src with its dimensions permuted: (1, 0), (2, 1, 0) or (3, 1, 2, 0) by rank.

    dtypes of 2 or 4 bytes, from HBM or SBUF to SBUF. With ``vector_offset`` (2-byte dtypes, uint32
    indices) src is ``src[rows]``, where rows are the indices column by column.
    """
    return _run(
        "dma_transpose", dma.dma_transpose,
        dst, src, axes, priority, dge_mode, oob_mode, name,
    )  # fmt: skip


def tensor_tensor(dst, data1, data2, op, engine=engine.unknown, name=None):
    """dst = data1 <op> data2, element by element."""
    return _run("tensor_tensor", vector.tensor_tensor, dst, data1, data2, op, engine, name)


def tensor_scalar(
    dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False,
    engine=engine.unknown, name=None,
):  # fmt: skip
    """dst = (data <op0> operand0) <op1> operand1 with numbers or (P, 1) columns."""
    return _run(
        "tensor_scalar", vector.tensor_scalar,
        dst, data, op0, operand0, reverse0, op1, operand1, reverse1, engine, name,
    )  # fmt: skip


def tensor_reduce(dst, op, data, axis, negate=False, keepdims=False, name=None):
    """Reduce the last free dimensions."""
    return _run(
        "tensor_reduce", reductions.tensor_reduce, dst, op, data, axis, negate, keepdims, name
    )


def tensor_partition_reduce(dst, op, data, name=None):
    """dst = reduction of data over its partitions, on the GpSimd engine."""
    return _run(
        "tensor_partition_reduce", gpsimd.tensor_partition_reduce, dst, op, data, name
    )


def tensor_scalar_cumulative(
    dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, name=None,
):  # fmt: skip
    """dst = running reduction (op1) of src <op0> imm0 along the flattened free axis.

    src and dst: [P, ...], equal sizes, SBUF or PSUM, float (not tfloat32) or 8/16-bit integer.
    op1: add, subtract, multiply, maximum, minimum. imm0: a number or float32 (P, 1). imm1: the
    start of the accumulator, with reduce_cmd.load_reduce only.
    """
    return _run(
        "tensor_scalar_cumulative", scans.tensor_scalar_cumulative,
        dst, src, op0, op1, imm0, imm1, reduce_cmd, name,
    )  # fmt: skip


def activation(
    dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None,
    reduce_cmd=reduce_cmd.idle, name=None,
):  # fmt: skip
    """dst = op(data * scale + bias), with an optional running sum."""
    return _run(
        "activation", scalar.activation,
        dst, op, data, bias, scale, reduce_op, reduce_res, reduce_cmd, name,
    )  # fmt: skip


def activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None):
    """activation, and the sum of its result in reduce_res."""
    return _run(
        "activation_reduce", scalar.activation_reduce,
        dst, op, data, reduce_op, reduce_res, bias, scale, name,
    )  # fmt: skip


def activate2(
    dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, reverse0=False, reverse1=False,
    reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle, name=None,
):  # fmt: skip
    """dst = op((data <op0> imm0) <op1> imm1), with an optional running reduction (gen4).

    data and dst: [P, ...], equal sizes, SBUF or PSUM, any dtype. (op0, op1): multiply with add,
    subtract or bypass; add, subtract or bypass with bypass. imm0, imm1, relu_param (the slope of
    nl.prelu): numbers or (P, 1) tiles. reduce_op: add, maximum, minimum, abs_max, abs_min;
    reduce_res (P, 1) reads the accumulator.
    """
    return _run(
        "activate2", scalar_gen4.activate2,
        dst, op, data, imm0, imm1, op0, op1, relu_param, reverse0, reverse1, reduce_op,
        reduce_res, reduce_cmd, name,
    )  # fmt: skip


def iota(dst, pattern, offset=0, channel_multiplier=0, name=None):
    """Fill a tile with an affine pattern of integers."""
    return _run("iota", gpsimd.iota, dst, pattern, offset, channel_multiplier, name)


def affine_select(
    dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=equal, offset=0,
    name=None,
):  # fmt: skip
    """Select by comparing an affine pattern with zero."""
    return _run(
        "affine_select", gpsimd.affine_select,
        dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op, offset, name,
    )  # fmt: skip


def local_gather(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None):
    """Gather along the free axis with indices that 16 partitions share."""
    return _run(
        "local_gather", gathers.local_gather,
        dst, src_buffer, index, num_elem_per_idx, num_valid_indices, name,
    )  # fmt: skip


def nc_n_gather(dst, data, indices, name=None):
    """dst[p, i] = data[p, indices[p, i]], free dimensions flattened."""
    return _run("nc_n_gather", gathers.nc_n_gather, dst, data, indices, name)


def bn_stats(dst, data, name=None):
    """Count, mean and variance * count of even and odd elements."""
    return _run("bn_stats", statistics.bn_stats, dst, data, name)


def bn_aggr(dst, data, name=None):
    """Mean and variance from bn_stats tuples."""
    return _run("bn_aggr", statistics.bn_aggr, dst, data, name)


def tensor_tensor_scan(
    dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None,
):  # fmt: skip
    """dst[i] = (data0[i] <op0> dst[i - 1]) <op1> data1[i] along the flattened free axis.

    data0, data1 and dst: [P, ...], equal sizes, any dtype, the inputs not both in PSUM. initial:
    a number or a (P, 1) tile, in the place of dst[-1]. The running value is float32.
    """
    return _run(
        "tensor_tensor_scan", scans.tensor_tensor_scan,
        dst, data0, data1, initial, op0, op1, reverse0, reverse1, name,
    )  # fmt: skip


def nc_stream_shuffle(dst, src, shuffle_mask, name=None):
    """Move partitions within each group of 32: dst[i] = src[shuffle_mask[i]]; 255 keeps dst.

    src and dst: SBUF or PSUM, one dtype, equal elements a partition; they may be the same tile and
    differ in height. shuffle_mask: 32 integers, used for every group.
    """
    return _run("nc_stream_shuffle", shuffle.nc_stream_shuffle, dst, src, shuffle_mask, name)


def rng(dst, engine=engine.vector, name=None):
    """Random bits, as many as the integer dtype of dst has."""
    return _run("rng", random_numbers.rng, dst, engine, name)


def dropout(dst, data, prob, name=None):
    """Zero elements with probability prob; the others are not rescaled."""
    return _run("dropout", random_numbers.dropout, dst, data, prob, name)


def set_rng_seed(src_seeds, name=None):
    """Seed the random number generator of the Vector Engine from one 32-bit value."""
    return _run("set_rng_seed", random_numbers.set_rng_seed, src_seeds, name)


def rand_set_state(src_seeds, engine=engine.gpsimd, name=None):
    """Set an engine's XORWOW states, those of a lane from its partition."""
    return _run("rand_set_state", random_numbers.rand_set_state, src_seeds, engine, name)


def rand_get_state(dst, engine=engine.gpsimd, name=None):
    """Read an engine's XORWOW states, those of a lane into its partition."""
    return _run("rand_get_state", random_numbers.rand_get_state, dst, engine, name)


def rand2(dst, min, max, name=None):
    """Random numbers, uniform between min and max (gen4)."""
    return _run("rand2", random_numbers.rand2, dst, min, max, name)


def exponential(
    dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0,
    name=None,
):  # fmt: skip
    """dst = exp(src - max_value) on the Vector Engine, with an optional running sum (gen4).

    src and dst: up to 4-D, equal sizes, SBUF or PSUM. max_value: a number or float32 (P, 1).
    reduce_res (P, 1, a float type) reads the accumulator; reduce_init is its start, with
    reduce_cmd.load_reduce only.
    """
    return _run(
        "exponential", vector_gen4.exponential,
        dst, src, max_value, reduce_res, reduce_cmd, reduce_init, name,
    )  # fmt: skip


def reciprocal(dst, data, name=None):
    """dst = 1 / data."""
    return _run("reciprocal", vector.reciprocal, dst, data, name)


def max8(dst, src, name=None):
    """The eight largest values of each partition, in descending order.

    src: up to 3-D, 8 to 16384 elements a partition. dst: [P, 8]. NaN is refused.
    """
    return _run("max8", search.max8, dst, src, name)


def sequence_bounds(dst, segment_ids, name=None):
    """First index of the segment that each element is in, and one past its last."""
    return _run("sequence_bounds", positions.sequence_bounds, dst, segment_ids, name)


def scalar_tensor_tensor(
    dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None,
):  # fmt: skip
    """dst = (data <op0> operand0) <op1> operand1 with a tile operand1."""
    return _run(
        "scalar_tensor_tensor", vector.scalar_tensor_tensor,
        dst, data, op0, operand0, op1, operand1, reverse0, reverse1, name,
    )  # fmt: skip


def tensor_scalar_reduce(
    dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False,
    reduce_cmd=reduce_cmd.reset_reduce, reduce_init=None, reduce_res_negate=False, name=None,
):  # fmt: skip
    """dst = data <op0> operand0, and its reduction in reduce_res."""
    return _run(
        "tensor_scalar_reduce", reductions.tensor_scalar_reduce,
        dst, data, op0, operand0, reduce_op, reduce_res, reverse0, reduce_cmd, reduce_init,
        reduce_res_negate, name,
    )  # fmt: skip


def core_barrier(data, cores, engine=engine.gpsimd, name=None):
    """Wait for the other core of an LNC 2 launch (gen3 and newer).

    ``data`` is a tensor in shared HBM that both cores access: what either did to it before the
    barrier comes before what either does to it afterwards. Accesses to other tensors, and to
    elements outside a view that is passed, are not ordered. ``cores`` is (0, 1).
    """
    return _run("core_barrier", cores_engine.core_barrier, data, cores, engine, name)


def dma_compute(
    dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_mode.error, name=None,
):  # fmt: skip
    """dst = srcs[0] + srcs[1] + ..., added in float32 while a DMA moves them.

    All tensors have the same number of elements, in HBM or SBUF, in any dtype that is not packed;
    2 to 16 sources; ``reduce_op`` is nl.add and all scales are 1.0. With a ``vector_offset``:
    ``dst[rows] += tile`` (srcs: dst's view and the tile, rows unique) or ``tile += src[rows]``.
    """
    return _run(
        "dma_compute", dma_sums.dma_compute,
        dst, srcs, reduce_op, scales, unique_indices, oob_mode, name,
    )  # fmt: skip


def quantize_mx(dst, src, dst_scale, name=None):
    """dst, dst_scale = src quantized to MXFP8, groups of 8 partitions x 4 elements (gen4).

    ``src`` [P, F] is float16 or bfloat16 in SBUF, P 32, 64, 96 or 128, F a multiple of 4, every
    number finite. ``dst`` [P, F / 4] is float8_e5m2_x4 or float8_e4m3fn_x4. ``dst_scale`` is
    float8_e8m0fnu or uint8 with F / 4 elements a partition; the scale of partitions
    32q + 8g .. 32q + 8g + 7 is written to its partition 32q + g, the others keep what they hold.
    It covers P - 28 to P partitions and starts 0, 4, 8 or 12 partitions into the quadrant in which
    src starts. The scale is 2 ** (floor(log2(largest)) - Emax + 1), at least 2 ** -127, with Emax 8
    (e4m3fn) or 15 (e5m2).
    """
    return _run("quantize_mx", mx.quantize_mx, dst, src, dst_scale, name)


def range_select(
    dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce,
    reduce_res=None, reduce_op=maximum, range_start=0, on_false_value=_FP32_MIN, name=None,
):  # fmt: skip
    """Keep the columns within bounds, fill the others, with an optional running maximum.

    dst = on_true_tile where comp_op0(i, bound0) and comp_op1(i, bound1), i = range_start + column,
    else the smallest float32 (-inf in a narrower dst). on_true_tile: [P, ...], float. Bounds:
    float32 (P, 1). reduce_res (P, 1) reads the accumulator. gen3 and newer.
    """
    return _run(
        "range_select", selects.range_select,
        dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd, reduce_res, reduce_op,
        range_start, on_false_value, name,
    )  # fmt: skip


def select_reduce(
    dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle,
    reduce_op=maximum, reverse_pred=False, name=None,
):  # fmt: skip
    """Select by predicate, with an optional row maximum."""
    return _run(
        "select_reduce", selects.select_reduce,
        dst, predicate, on_true, on_false, reduce_res, reduce_cmd, reduce_op, reverse_pred,
        name,
    )  # fmt: skip


def sendrecv(src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=dma_engine.dma, name=None):
    """Exchange tiles with the other core of an LNC 2 launch (gen3 and newer).

    ``src`` and ``dst`` are in SBUF, of one shape and dtype, the same on both cores; the other core
    receives ``src`` in its ``dst``. Both ranks are the other core's. Exchanges with one ``pipe_id``
    (an integer, not negative) wait for each other. ``dma_engine.gpsimd_dma`` moves at most 1024,
    512 or 256 bytes a partition of dtypes of 4, 2 and 1 bytes.
    """
    return _run(
        "sendrecv", cores_engine.sendrecv,
        src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine, name,
    )  # fmt: skip


def register_alloc(x=None):
    """A new register, uninitialised or holding the integer ``x`` (32 bits)."""
    session = current_session("nisa.register_alloc")
    return registers.register_alloc(session, x)


def register_move(dst, src):
    """dst = src, an integer or another register."""
    return _run("register_move", registers.register_move, dst, src)


def register_load(dst, src):
    """dst = the only element of ``src``.

    ``src`` is in SBUF or HBM, of shape (1,) or (1, 1); integers up to 32 bits, or float32.
    """
    return _run("register_load", registers.register_load, dst, src)


def register_store(dst, src):
    """The only element of ``dst`` = src, a register.

    ``dst`` is in SBUF or HBM, of shape (1,) or (1, 1); of an integer dtype that can hold the value,
    or float32 for a register that was loaded from float32.
    """
    return _run("register_store", registers.register_store, dst, src)


def nc_find_index8(dst, data, vals, name=None):
    """Index of the first occurrence of each of eight values; all ones if there is none.

    data: up to 3-D, 8 to 16384 elements a partition. vals: eight a partition. dst: [P, 8], uint16
    or uint32. A value given several times takes successive occurrences, in ascending order.
    """
    return _run("nc_find_index8", search.nc_find_index8, dst, data, vals, name)


def nc_match_replace8(dst, data, vals, imm, dst_idx=None, name=None):
    """dst = data with the first occurrence of each of eight values replaced by imm.

    Shapes as in nc_find_index8; dst has the size of data. dst_idx ([P, 8], uint16 or uint32) gets
    the indices; a value given several times fills its slots from the last to the first.
    """
    return _run("nc_match_replace8", search.nc_match_replace8, dst, data, vals, imm, dst_idx, name)


def nonzero_with_count(dst, src, index_offset=0, padding_val=-1, name=None):
    """Indices of the non-zero elements, padding, and their count (partitions 0, 16, ...)."""
    return _run(
        "nonzero_with_count", positions.nonzero_with_count,
        dst, src, index_offset, padding_val, name,
    )  # fmt: skip


def topk(val_dst, idx_dst, src, n, name=None):
    """The K largest of the n elements of each 16 partitions, ascending, and their indices."""
    return _run("topk", positions.topk, val_dst, idx_dst, src, n, name)
