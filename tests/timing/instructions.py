"""One call of every instruction of nki.isa at a size that can be chosen."""

import nki.isa as nisa
import nki.language as nl

from .kernels import zeros

ROWS = 128


def tile(columns, dtype=nl.float32, rows=ROWS, buffer=nl.sbuf, value=0):
    """A filled tile."""
    made = nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)
    nisa.memset(dst=made, value=value)
    return made


def empty(columns, dtype=nl.float32, rows=ROWS, buffer=nl.sbuf):
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


def hbm(columns, dtype=nl.float32, rows=ROWS):
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.private_hbm)


def _filled(n):
    source = hbm(ROWS, nl.bfloat16, n)
    for start in range(0, n, 32):
        nisa.dma_copy(dst=source[start : start + 32], src=tile(ROWS, nl.bfloat16, 32))
    return source


def _gathered(n):
    source = nl.ndarray((256, n), dtype=nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=source[0:128, :], src=tile(n))
    nisa.dma_copy(dst=source[128:256, :], src=tile(n))
    return source.vector_select(0, tile(1, nl.uint32, value=3))


def _quantized(n):
    data, scale = empty(n, nl.float8_e4m3fn_x4), empty(n, nl.uint8)
    nisa.quantize_mx(dst=data, src=tile(4 * n, nl.bfloat16), dst_scale=scale)
    return data, scale


def _matmul_mx(n):
    (left, left_scale), (right, right_scale) = _quantized(128), _quantized(n)
    nisa.nc_matmul_mx(
        dst=empty(n, buffer=nl.psum), stationary=left, moving=right, stationary_scale=left_scale,
        moving_scale=right_scale,
    )  # fmt: skip


def _matmul(n, dtype=nl.bfloat16):
    nisa.nc_matmul(
        dst=empty(n, buffer=nl.psum), stationary=tile(ROWS, dtype), moving=tile(n, dtype)
    )


def _state(n):
    nisa.rand_set_state(src_seeds=tile(6, nl.uint32, value=7), engine=nisa.engine.gpsimd)


def _get_state(n):
    _state(n)
    nisa.rand_get_state(dst=empty(6, nl.uint32), engine=nisa.engine.gpsimd)


def _registers(n):
    register = nisa.register_alloc(3)
    nisa.register_move(register, 5)
    nisa.register_load(register, tile(1, nl.int32, rows=1))
    nisa.register_store(empty(1, nl.int32, rows=1), register)


# By instruction: a function that issues it on n columns. Names after a space are variants.
ISSUE = {
    "tensor_copy": lambda n: nisa.tensor_copy(dst=empty(n), src=tile(n)),
    "tensor_copy scalar": lambda n: nisa.tensor_copy(
        dst=empty(n), src=tile(n), engine=nisa.engine.scalar
    ),
    "tensor_copy gpsimd": lambda n: nisa.tensor_copy(
        dst=empty(n), src=tile(n), engine=nisa.engine.gpsimd
    ),
    "memset": lambda n: tile(n),
    "memset gpsimd": lambda n: nisa.memset(
        dst=empty(n), value=0, engine=nisa.engine.gpsimd
    ),
    "tensor_copy_predicated": lambda n: nisa.tensor_copy_predicated(
        dst=tile(n), src=tile(n), predicate=tile(n, nl.uint8)
    ),
    "select_reduce": lambda n: nisa.select_reduce(
        dst=empty(n), predicate=tile(n, nl.uint8), on_true=tile(n), on_false=0.0
    ),
    "range_select": lambda n: nisa.range_select(
        dst=empty(n), on_true_tile=tile(n), comp_op0=nl.greater_equal, comp_op1=nl.less,
        bound0=tile(1), bound1=tile(1),
    ),
    "tensor_tensor": lambda n: nisa.tensor_tensor(
        dst=empty(n), data1=tile(n), data2=tile(n), op=nl.add
    ),
    "tensor_tensor gpsimd": lambda n: nisa.tensor_tensor(
        dst=empty(n), data1=tile(n), data2=tile(n), op=nl.power
    ),
    "tensor_scalar": lambda n: nisa.tensor_scalar(
        dst=empty(n), data=tile(n), op0=nl.multiply, operand0=2.0
    ),
    "tensor_scalar scalar": lambda n: nisa.tensor_scalar(
        dst=empty(n), data=tile(n), op0=nl.multiply, operand0=2.0, engine=nisa.engine.scalar
    ),
    "tensor_scalar gpsimd": lambda n: nisa.tensor_scalar(
        dst=empty(n), data=tile(n, value=1), op0=nl.rsqrt, operand0=0.0
    ),
    "scalar_tensor_tensor": lambda n: nisa.scalar_tensor_tensor(
        dst=empty(n), data=tile(n), op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=tile(n)
    ),
    "tensor_reduce": lambda n: nisa.tensor_reduce(
        dst=empty(1), op=nl.add, data=tile(n), axis=1
    ),
    "tensor_scalar_reduce": lambda n: nisa.tensor_scalar_reduce(
        dst=empty(n), data=tile(n), op0=nl.multiply, operand0=2.0, reduce_op=nl.add,
        reduce_res=empty(1),
    ),
    "tensor_tensor_scan": lambda n: nisa.tensor_tensor_scan(
        dst=empty(n), data0=tile(n), data1=tile(n), initial=0.0, op0=nl.multiply, op1=nl.add
    ),
    "tensor_scalar_cumulative": lambda n: nisa.tensor_scalar_cumulative(
        dst=empty(n), src=tile(n), op0=nl.multiply, op1=nl.add, imm0=1.0,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    ),
    "bn_stats": lambda n: nisa.bn_stats(dst=empty(6), data=tile(n)),
    "bn_aggr": lambda n: nisa.bn_aggr(dst=empty(2), data=tile(n // 6 * 6, value=1)),
    "reciprocal": lambda n: nisa.reciprocal(dst=empty(n), data=tile(n, value=1)),
    "max8": lambda n: nisa.max8(dst=empty(8), src=tile(n)),
    "nc_find_index8": lambda n: nisa.nc_find_index8(
        dst=empty(8, nl.uint32), data=tile(n), vals=tile(8)
    ),
    "nc_match_replace8": lambda n: nisa.nc_match_replace8(
        dst=empty(n), data=tile(n), vals=tile(8), imm=1.0
    ),
    "nc_stream_shuffle": lambda n: nisa.nc_stream_shuffle(
        dst=empty(n), src=tile(n), shuffle_mask=list(range(32))
    ),
    "nc_transpose": lambda n: nisa.nc_transpose(
        dst=empty(n, nl.bfloat16, 128, nl.psum), data=tile(128, nl.bfloat16, n)
    ),
    "nc_transpose vector": lambda n: nisa.nc_transpose(
        dst=empty(32, rows=32), data=tile(32, rows=32), engine=nisa.engine.vector
    ),
    "dropout": lambda n: nisa.dropout(dst=empty(n), data=tile(n), prob=0.5),
    "rng": lambda n: nisa.rng(dst=empty(n, nl.uint32), engine=nisa.engine.vector),
    "rng gpsimd": lambda n: nisa.rng(dst=empty(n, nl.uint32), engine=nisa.engine.gpsimd),
    "rand2": lambda n: nisa.rand2(dst=empty(n), min=0.0, max=1.0),
    "set_rng_seed": lambda n: nisa.set_rng_seed(src_seeds=tile(1, nl.uint32, 1)),
    "rand_set_state": _state,
    "rand_get_state": _get_state,
    "exponential": lambda n: nisa.exponential(dst=empty(n), src=tile(n)),
    "quantize_mx": _quantized,
    "activation": lambda n: nisa.activation(dst=empty(n), op=nl.exp, data=tile(n)),
    "activation_reduce": lambda n: nisa.activation_reduce(
        dst=empty(n), op=nl.square, data=tile(n), reduce_op=nl.add, reduce_res=empty(1)
    ),
    "activate2": lambda n: nisa.activate2(
        dst=empty(n), op=nl.copy, data=tile(n), imm0=2.0, imm1=0.0, op0=nl.multiply, op1=nl.add
    ),
    "affine_select": lambda n: nisa.affine_select(
        dst=empty(n), pattern=[[1, n]], channel_multiplier=1, on_true_tile=tile(n),
        on_false_value=0.0,
    ),
    "iota": lambda n: nisa.iota(dst=empty(n, nl.int32), pattern=[[1, n]], offset=0),
    "local_gather": lambda n: nisa.local_gather(
        dst=empty(n), src_buffer=tile(n), index=tile(n // 16, nl.uint16), num_valid_indices=n
    ),
    "nc_n_gather": lambda n: nisa.nc_n_gather(
        dst=empty(n), data=tile(16), indices=tile(n, nl.uint32)
    ),
    "topk": lambda n: nisa.topk(
        val_dst=empty(8, nl.bfloat16, 16), idx_dst=empty(8, nl.uint32, 16),
        src=tile(n // 16, nl.bfloat16, 16), n=n,
    ),
    "tensor_partition_reduce": lambda n: nisa.tensor_partition_reduce(
        dst=empty(n, rows=1), op=nl.add, data=tile(n)
    ),
    "sequence_bounds": lambda n: nisa.sequence_bounds(
        dst=nl.ndarray((1, 2, n), dtype=nl.float32, buffer=nl.sbuf), segment_ids=tile(n, rows=1)
    ),
    "nonzero_with_count": lambda n: nisa.nonzero_with_count(
        dst=empty(n + 1, nl.int32), src=tile(n, nl.int32)
    ),
    "nc_matmul": _matmul,
    "nc_matmul_mx": _matmul_mx,
    "dma_copy": lambda n: nisa.dma_copy(dst=hbm(n), src=tile(n)),
    "dma_copy gather": lambda n: nisa.dma_copy(dst=empty(n), src=_gathered(n)),
    "dma_transpose": lambda n: nisa.dma_transpose(
        dst=empty(n, nl.bfloat16, 128), src=_filled(n)
    ),
    "dma_compute": lambda n: nisa.dma_compute(
        dst=hbm(n), srcs=[tile(n), tile(n)], scales=[1.0, 1.0], reduce_op=nl.add
    ),
    "register_move": _registers,
    "register_load": _registers,
    "register_store": _registers,
}  # fmt: skip

# On two cores, both as a function of n.
PAIRED = {
    "core_barrier": lambda n, shared: nisa.core_barrier(data=shared, cores=(0, 1)),
    "sendrecv": lambda n, shared: nisa.sendrecv(
        src=tile(n), dst=empty(n), send_to_rank=1 - nl.program_id(0),
        recv_from_rank=1 - nl.program_id(0), pipe_id=0,
    ),
    "sendrecv gpsimd": lambda n, shared: nisa.sendrecv(
        src=tile(n), dst=empty(n), send_to_rank=1 - nl.program_id(0),
        recv_from_rank=1 - nl.program_id(0), pipe_id=0, dma_engine=nisa.dma_engine.gpsimd_dma,
    ),
}  # fmt: skip

# Instructions whose cost does not depend on a size, and functions that are no instructions.
FIXED = (
    "rand_set_state", "rand_get_state", "set_rng_seed", "register_move", "register_load",
    "register_store", "core_barrier", "nc_transpose vector",
)  # fmt: skip
QUERIES = ("get_nc_version", "get_nc_sub_version", "register_alloc")
FOURTH_GENERATION = (
    "activate2", "exponential", "quantize_mx", "nc_matmul_mx", "rand2",
)  # fmt: skip


def traced(name, n):
    """The events of the instruction ``name`` on n columns."""
    import nki_emulator

    op = name.split()[0]
    if name in PAIRED:

        def kernel(x):
            shared = nl.ndarray((2, 128, n), dtype=x.dtype, buffer=nl.shared_hbm)
            PAIRED[name](n, shared)

        kernel = nki_emulator.jit(kernel)[2]
    else:

        def kernel(x):
            ISSUE[name](n)

    found = nki_emulator.profile(kernel)(zeros(1, 1))
    return [event for event in found.events if event.step.op == op]
