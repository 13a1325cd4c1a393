"""`nki.isa`: the instructions, with the names, parameters and defaults of NKI 0.6.

Each function hands its arguments to the engine module that implements it. Instructions that exist
in NKI and not yet here raise :class:`~nki_emulator.errors.NkiNotImplemented`.
"""

from ..engines import copies, dma, gpsimd, scalar, tensor, vector
from ..enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from ..errors import NkiError, NkiNotImplemented
from ..errors import NkiValidationError as NkiValidationError
from ..objects import NKIObject
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


class VirtualRegister(NKIObject):
    """A register of an engine's sequencer; not implemented yet."""

    def __init__(self, state=None, frozen=False):
        raise NkiNotImplemented("nisa.VirtualRegister")


def _run(instruction, implementation, *operands):
    """Run an instruction in the current session; errors get its name and operands."""
    session = active_session()
    if session is None:
        session = current_session(f"nisa.{instruction}")
    try:
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
    """Copy between HBM and SBUF, or within one of them: dst = src."""
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
        "tensor_copy_predicated", copies.tensor_copy_predicated,
        dst, src, predicate, reverse_pred, name,
    )  # fmt: skip


def nc_matmul(
    dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False,
    is_transpose=False, accumulate=None, tile_position=(), tile_size=(),
    perf_mode=matmul_perf_mode.none, name=None,
):  # fmt: skip
    """dst (+)= stationary.T @ moving on the tensor engine."""
    return _run(
        "nc_matmul", tensor.nc_matmul,
        dst, stationary, moving, is_stationary_onezero, is_moving_onezero, is_transpose,
        accumulate, tile_position, tile_size, perf_mode, name,
    )  # fmt: skip


def nc_matmul_mx(
    dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
    accumulate=None, name=None,
):  # fmt: skip
    """MX (block-scaled) matrix multiplication (gen4). Not implemented yet."""
    raise NkiNotImplemented("nisa.nc_matmul_mx")


def nc_transpose(dst, data, engine=engine.unknown, name=None):
    """Swap the partition axis and the flattened free axis."""
    return _run("nc_transpose", tensor.nc_transpose, dst, data, engine, name)


def dma_transpose(
    dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error,
    name=None,
):  # fmt: skip
    """Transpose while moving by DMA."""
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
    return _run("tensor_reduce", vector.tensor_reduce, dst, op, data, axis, negate, keepdims, name)


def tensor_partition_reduce(dst, op, data, name=None):
    """Reduce over partitions on GpSimd. Not implemented yet."""
    raise NkiNotImplemented("nisa.tensor_partition_reduce")


def tensor_scalar_cumulative(
    dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, name=None,
):  # fmt: skip
    """Tensor-scalar operation with a running reduction. Not implemented yet."""
    raise NkiNotImplemented("nisa.tensor_scalar_cumulative")


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
    """Activation with two configurable tensor-scalar stages (gen4). Not implemented yet."""
    raise NkiNotImplemented("nisa.activate2")


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
    """Gather within groups of 16 partitions. Not implemented yet."""
    raise NkiNotImplemented("nisa.local_gather")


def nc_n_gather(dst, data, indices, name=None):
    """Gather within each partition. Not implemented yet."""
    raise NkiNotImplemented("nisa.nc_n_gather")


def bn_stats(dst, data, name=None):
    """Count, mean and variance * count of even and odd elements."""
    return _run("bn_stats", vector.bn_stats, dst, data, name)


def bn_aggr(dst, data, name=None):
    """Mean and variance from bn_stats tuples."""
    return _run("bn_aggr", vector.bn_aggr, dst, data, name)


def tensor_tensor_scan(
    dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None,
):  # fmt: skip
    """Scan of two tiles along the free axis. Not implemented yet."""
    raise NkiNotImplemented("nisa.tensor_tensor_scan")


def nc_stream_shuffle(dst, src, shuffle_mask, name=None):
    """Shuffle partitions within each group of 32. Not implemented yet."""
    raise NkiNotImplemented("nisa.nc_stream_shuffle")


def rng(dst, engine=engine.vector, name=None):
    """Random bits. Not implemented yet."""
    raise NkiNotImplemented("nisa.rng")


def dropout(dst, data, prob, name=None):
    """Zero elements at random, without rescaling. Not implemented yet."""
    raise NkiNotImplemented("nisa.dropout")


def set_rng_seed(src_seeds, name=None):
    """Seed the random number generator. Not implemented yet."""
    raise NkiNotImplemented("nisa.set_rng_seed")


def rand_set_state(src_seeds, engine=engine.gpsimd, name=None):
    """Set the random generator's state. Not implemented yet."""
    raise NkiNotImplemented("nisa.rand_set_state")


def rand_get_state(dst, engine=engine.gpsimd, name=None):
    """Read the random generator's state. Not implemented yet."""
    raise NkiNotImplemented("nisa.rand_get_state")


def rand2(dst, min, max, name=None):
    """Uniform random numbers (gen4). Not implemented yet."""
    raise NkiNotImplemented("nisa.rand2")


def exponential(
    dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0,
    name=None,
):  # fmt: skip
    """exp(src - max_value) on the Vector Engine (gen4). Not implemented yet."""
    raise NkiNotImplemented("nisa.exponential")


def reciprocal(dst, data, name=None):
    """dst = 1 / data."""
    return _run("reciprocal", vector.reciprocal, dst, data, name)


def max8(dst, src, name=None):
    """The eight largest values of each partition. Not implemented yet."""
    raise NkiNotImplemented("nisa.max8")


def sequence_bounds(dst, segment_ids, name=None):
    """Start and end of the segment each element is in. Not implemented yet."""
    raise NkiNotImplemented("nisa.sequence_bounds")


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
        "tensor_scalar_reduce", vector.tensor_scalar_reduce,
        dst, data, op0, operand0, reduce_op, reduce_res, reverse0, reduce_cmd, reduce_init,
        reduce_res_negate, name,
    )  # fmt: skip


def core_barrier(data, cores, engine=engine.gpsimd, name=None):
    """Wait for the other core of an LNC 2 launch. Not implemented yet."""
    raise NkiNotImplemented("nisa.core_barrier")


def dma_compute(
    dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_mode.error, name=None,
):  # fmt: skip
    """Add tensors while a DMA moves them. Not implemented yet."""
    raise NkiNotImplemented("nisa.dma_compute")


def quantize_mx(dst, src, dst_scale, name=None):
    """Quantize to an MX format (gen4). Not implemented yet."""
    raise NkiNotImplemented("nisa.quantize_mx")


def range_select(
    dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce,
    reduce_res=None, reduce_op=maximum, range_start=0, on_false_value=_FP32_MIN, name=None,
):  # fmt: skip
    """Select by column index, with an optional row maximum. Not implemented yet."""
    raise NkiNotImplemented("nisa.range_select")


def select_reduce(
    dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle,
    reduce_op=maximum, reverse_pred=False, name=None,
):  # fmt: skip
    """Select by predicate, with an optional row maximum."""
    return _run(
        "select_reduce", copies.select_reduce,
        dst, predicate, on_true, on_false, reduce_res, reduce_cmd, reduce_op, reverse_pred,
        name,
    )  # fmt: skip


def sendrecv(src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=dma_engine.dma, name=None):
    """Exchange tiles between the two cores of an LNC 2 launch. Not implemented yet."""
    raise NkiNotImplemented("nisa.sendrecv")


def register_alloc(x=None):
    """Allocate a register. Not implemented yet."""
    raise NkiNotImplemented("nisa.register_alloc")


def register_move(dst, src):
    """Move a value into a register. Not implemented yet."""
    raise NkiNotImplemented("nisa.register_move")


def register_load(dst, src):
    """Load a register from memory. Not implemented yet."""
    raise NkiNotImplemented("nisa.register_load")


def register_store(dst, src):
    """Store a register to memory. Not implemented yet."""
    raise NkiNotImplemented("nisa.register_store")


def nc_find_index8(dst, data, vals, name=None):
    """Indices of eight values in each partition. Not implemented yet."""
    raise NkiNotImplemented("nisa.nc_find_index8")


def nc_match_replace8(dst, data, vals, imm, dst_idx=None, name=None):
    """Replace eight values in each partition. Not implemented yet."""
    raise NkiNotImplemented("nisa.nc_match_replace8")


def nonzero_with_count(dst, src, index_offset=0, padding_val=-1, name=None):
    """Indices of non-zero elements and their count. Not implemented yet."""
    raise NkiNotImplemented("nisa.nonzero_with_count")


def topk(val_dst, idx_dst, src, n, name=None):
    """The n largest values of a tile and their indices. Not implemented yet."""
    raise NkiNotImplemented("nisa.topk")
