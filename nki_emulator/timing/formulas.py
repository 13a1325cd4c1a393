"""Engine cycles of every instruction of the vector, scalar and gpsimd engines, with their sources.

A formula gives the cycles of N elements a partition; the engine's minimum and the reading of the
accumulator come on top (see `costs`). `isa226`, `arch2`, `voyager` and the like are explained in
`nki_emulator.hardware`. Where neither document nor measurement knows an instruction, its source
says which one it is treated like.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..regions import MemoryRegion

PSUM = MemoryRegion.psum
HALF = ("bfloat16", "float16")
# From the fourth generation on the fast modes take these as well (arch3, compute engine table).
NARROW = (*HALF, "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
# Partitions that one processor of the gpsimd engine serves (isa stub, local_gather).
GPSIMD_PARTITIONS = 16


@dataclass(frozen=True)
class Formula:
    """``cycles`` (step, hardware, optimistic), and ``source``, where it is from."""

    cycles: Callable
    source: str


def _narrow(operands, hardware):
    names = NARROW if hardware.generation >= 4 else HALF
    return all(operand.dtype in names for operand in operands)


def _in_psum(operands):
    return any(operand.buffer is PSUM for operand in operands)


def _tiles(step):
    """The inputs that are as large as the instruction, without columns of scalars."""
    return [one for one in step.reads if one.elements == step.elements * one.shape[0]]


def _times(factor):
    return lambda step, hardware, optimistic: step.elements * factor


def _fast(step, hardware, optimistic):
    """Copies, fills and tensor-scalar operations of the vector engine."""
    operands = step.writes + step.reads[:1]
    narrow = _narrow(operands, hardware)
    if not hardware.vector_fast_modes:
        return step.elements / (2 if narrow and step.op == "memset" else 1)
    if _in_psum(operands):
        # arch2 says 2 an element with one side in PSUM; voyager measured 1.
        return step.elements / (2 if narrow and optimistic else 1)
    if narrow and all(operand.dense for operand in operands):
        return step.elements / 4
    # arch2 gives 2 to 16-bit types that are not dense; voyager also measured 2 in float32.
    return step.elements / 2


def _two_tiles(step, hardware, optimistic):
    if hardware.vector_fast_modes:
        fast = _narrow(step.reads[:2] + step.writes, hardware) and not _in_psum(step.reads[:2])
        return step.elements / (2 if fast else 1)
    operands = step.reads[:2] + step.writes
    fast = (
        all(operand.dtype == "bfloat16" for operand in operands)
        and all(operand.dense for operand in operands)
        and step.details["alu"] in ("add", "subtract", "multiply")
    )
    return step.elements * (1 if fast or _in_psum(step.reads[:2]) else 2)


def _scalar_two_tiles(step, hardware, optimistic):
    fast = (
        all(operand.dtype == "bfloat16" for operand in _tiles(step))
        and step.details["alu"] == "subtract,multiply"
        and step.elements % 2 == 0
    )
    cycles = step.elements * (1 if fast else 2)
    return cycles / 2 if hardware.vector_fast_modes else cycles


def _predicated(step, hardware, optimistic):
    tiles = _tiles(step)
    return step.elements * (2 if len(tiles) > 1 and not _in_psum(tiles) else 1)


def _reduced(step, hardware, optimistic):
    half = all(operand.dtype == "bfloat16" for operand in step.writes + step.reads[:1])
    halved = half and step.details["alu"] in ("add", "maximum")
    # voyager measured N on trn2.
    return step.elements / (2 if halved and (optimistic or hardware.generation == 2) else 1)


def _reciprocal(step, hardware, optimistic):
    return step.elements * hardware.reciprocal_interval


def _scalar_copy(step, hardware, optimistic):
    narrow = _narrow(step.writes + step.reads[:1], hardware)
    return step.elements / (hardware.scalar_fast if narrow else 1)


def _started(step, hardware, optimistic):
    return hardware.gpsimd_start + step.elements


def _started_outputs(step, hardware, optimistic):
    target = step.writes[0]
    return hardware.gpsimd_start + target.elements // target.shape[0]


def _local_gather(step, hardware, optimistic):
    target, index = step.writes[0], step.reads[1]
    gathered = target.elements // target.shape[0]
    indices = index.elements // index.shape[0] * GPSIMD_PARTITIONS
    run = max(1, gathered // indices)
    size = target.bytes // target.elements
    # The reference divides by this, which would make longer runs dearer than single elements.
    cycles = (28 + 4 * run) / (4 * run) / min(4 / size, run)
    return hardware.gpsimd_start + gathered * cycles


def _topk(step, hardware, optimistic):
    return 4 * step.details["n"] + step.details["k"]


def _sent(step, hardware, optimistic):
    return step.writes[0].bytes / hardware.gpsimd_dma * hardware.gpsimd_clock


_TENSOR_SCALAR = Formula(_fast, "isa226: N; arch2: 2 or 4 an element; voyager")
_LIKE_COPY = "not published; as an instruction with one input, arch1"
_SCAN = "not published; as tensor_tensor_scan"
_STATE = "not published; as a copy"

FORMULAS = {
    "vector": {
        "tensor_copy": _TENSOR_SCALAR,
        "tensor_scalar": _TENSOR_SCALAR,
        "memset": Formula(_fast, "isa226: N or, in 16-bit types, N/2; then as tensor_copy"),
        "tensor_tensor": Formula(_two_tiles, "isa226: 2N or N; arch2: twice as fast; voyager"),
        "scalar_tensor_tensor": Formula(
            _scalar_two_tiles, "isa226: 2N or N; from v3 on halved as tensor_tensor is, voyager"
        ),
        "tensor_copy_predicated": Formula(_predicated, "isa226: N with PSUM, else 2N"),
        "select_reduce": Formula(_predicated, "not published; as tensor_copy_predicated"),
        "range_select": Formula(_times(1), "isa226: N"),
        "tensor_reduce": Formula(_reduced, "isa226: N, or N/2 in bfloat16; voyager: N"),
        "tensor_scalar_reduce": Formula(_times(1), "isa226: N"),
        "tensor_tensor_scan": Formula(_times(2), "isa226: 2N; voyager"),
        "tensor_scalar_cumulative": Formula(_times(2), _SCAN),
        "bn_stats": Formula(_times(1), "isa226: N"),
        "bn_aggr": Formula(_times(13 / 3), "isa226: 13 (N / 3)"),
        "reciprocal": Formula(_reciprocal, "shared API page: 8N"),
        "max8": Formula(_times(1), "isa226: N"),
        "nc_find_index8": Formula(_times(1), "isa226: N"),
        "nc_match_replace8": Formula(_times(1), "isa226 prints min(64, N), read as max"),
        "nc_stream_shuffle": Formula(_times(1), "isa226: N"),
        "nc_transpose": Formula(_times(1), "isa226: N on the vector engine"),
        "dropout": Formula(_times(1), "isa226: N"),
        "rng": Formula(_times(1), _LIKE_COPY),
        "rand2": Formula(_times(1 / 4), "arch3, PRNG: 4 values a lane and cycle"),
        "set_rng_seed": Formula(_times(1), _STATE),
        "rand_set_state": Formula(_times(1), _STATE),
        "rand_get_state": Formula(_times(1), _STATE),
        "exponential": Formula(_times(1 / 4), "arch3: 4 times activation(exp), same clock"),
        "quantize_mx": Formula(_times(1 / 4), "arch3: 4 inputs a partition and cycle"),
    },
    "scalar": {
        "activation": Formula(_times(1), "isa226: N"),
        "activation_reduce": Formula(_times(1), "isa226: N"),
        "activate2": Formula(_times(1), "not published; as activation"),
        "tensor_copy": Formula(_scalar_copy, "isa226: N; arch3: 2 an element in 16-bit types"),
        "tensor_scalar": Formula(_scalar_copy, "isa226: N; arch3: 2 an element in 16-bit types"),
    },
    "gpsimd": {
        "affine_select": Formula(_started, "isa226: 150 + N"),
        "iota": Formula(_started, "isa226: 150 + N"),
        "local_gather": Formula(_local_gather, "isa226: 150 + N times a factor of the run"),
        "nc_n_gather": Formula(_started_outputs, "not published; as affine_select"),
        "topk": Formula(_topk, "isa stub: 4n + K"),
        "tensor_partition_reduce": Formula(_started, "not published; as affine_select"),
        "sequence_bounds": Formula(_started, "not published; as affine_select"),
        "nonzero_with_count": Formula(_started, "not published; as affine_select"),
        "tensor_copy": Formula(_times(1), "isa226: N on any engine"),
        "memset": Formula(_times(1), "isa226: N"),
        "tensor_tensor": Formula(_started, "not published; as affine_select"),
        "tensor_scalar": Formula(_started, "not published; as affine_select"),
        "rng": Formula(_started, "not published; as iota"),
        "rand_set_state": Formula(_started, _STATE),
        "rand_get_state": Formula(_started, _STATE),
        "sendrecv": Formula(_sent, "arch2: the bytes at the rate of GpSimd's own DMA"),
    },
}
