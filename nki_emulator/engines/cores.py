"""What needs both cores of an LNC 2 launch: a barrier, and an exchange of tiles.

Both wait until the other program gets there; see `programs.py` for how, and for the errors if it
never does.
"""

import numpy as np

from .. import rules
from ..access import read_raw, write_raw
from ..enums import dma_engine as dma_engines
from ..enums import engine as engines
from ..errors import NkiValidationError
from ..regions import MemoryRegion

# Stub, core_barrier: an engine inside the NeuronCore; sync is the one that only synchronizes.
BARRIER_ENGINES = (
    engines.gpsimd, engines.vector, engines.scalar, engines.tensor, engines.sync,
)  # fmt: skip

# Stub, sendrecv: bytes a partition that GpSimd's DMA moves, by the size of an element.
GPSIMD_BYTES = {4: 1024, 2: 512, 1: 256}


def core_barrier(session, data, cores, engine, name):
    """Wait for the other core; accesses to ``data`` before it come before those after it."""
    launch = _two_cores(session, "core_barrier")
    rules.tensor(data, "data")
    if data.buffer is not MemoryRegion.shared_hbm:
        raise NkiValidationError(
            "barrier-data",
            f"data is in {data.buffer.value}; a barrier is on a tensor in shared HBM, which both "
            f"cores access.",
        )
    # The stub asks for a tuple; the public kernel library passes lists as well.
    if not isinstance(cores, (tuple, list)) or tuple(cores) != (0, 1):
        raise NkiValidationError(
            "barrier-cores", f"cores={cores!r}; only (0, 1) is supported, both cores."
        )
    rules.one_of(engine, "engine", BARRIER_ENGINES)
    what = f"HBM tensor {data.storage.number}, {data.storage.describe()}"
    if not data.covers_storage:
        what = f"the view with offset {data.offset} and pattern {data.get_pattern()} of {what}"
    launch.meet(session, "core_barrier", {"data": what}, data)
    return session.finish("core_barrier", engine.name, (), (data,), name)


def sendrecv(session, src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine, name):
    """The other core's dst = src, and dst = the other core's src."""
    launch = _two_cores(session, "sendrecv")
    for operand, role in ((src, "src"), (dst, "dst")):
        rules.tensor(operand, role)
        rules.sbuf_only(operand, role, "sendrecv")
    if src.dtype != dst.dtype:
        raise NkiValidationError(
            "same-dtype", f"src is {src.dtype} and dst {dst.dtype}; they must be equal."
        )
    # The stub asks for the same "shape and layout"; the partition is dimension 0 of both, so equal
    # shapes are equal layouts. Strides may differ: a slice of a wider tile is an ordinary operand.
    if src.shape != dst.shape:
        raise NkiValidationError(
            "sendrecv-shape",
            f"src is {list(src.shape)} and dst {list(dst.shape)}; they must be equal.",
        )
    other = 1 - session.program
    for rank, role in ((send_to_rank, "send_to_rank"), (recv_from_rank, "recv_from_rank")):
        if isinstance(rank, bool) or rank not in (0, 1) or rank != other:
            raise NkiValidationError(
                "sendrecv-rank",
                f"{role}={rank!r} in program {session.program}; the cores are 0 and 1, and a core "
                f"exchanges with the other one, {other}.",
            )
    if isinstance(pipe_id, bool) or not isinstance(pipe_id, (int, np.integer)) or pipe_id < 0:
        raise NkiValidationError(
            "sendrecv-pipe", f"pipe_id={pipe_id!r}; expected an integer that is not negative."
        )
    rules.one_of(dma_engine, "dma_engine", tuple(dma_engines))
    if dma_engine is dma_engines.gpsimd_dma:
        nbytes = src.size // src.shape[0] * src.info.nbytes
        limit = GPSIMD_BYTES[src.info.nbytes]
        if nbytes > limit:
            raise NkiValidationError(
                "sendrecv-size",
                f"src has {nbytes} bytes per partition; dma_engine.gpsimd_dma moves at most "
                f"{limit} of {src.dtype}. Send less at a time, or use dma_engine.dma.",
            )
    # Both directions run at the same time: what arrives must not hit what is still being sent.
    if src.storage is dst.storage and np.shares_memory(src.array, dst.array):
        raise NkiValidationError(
            "sendrecv-overlap",
            "src and dst share elements; sending and receiving happen at the same time, so data "
            "that arrives could overwrite data not yet sent. Receive into another tile.",
        )
    sent = read_raw(src, "src").copy()
    wants = {
        "pipe_id": int(pipe_id), "shape": list(src.shape), "dtype": src.dtype,
        "dma_engine": dma_engine.name,
    }  # fmt: skip
    write_raw(dst, launch.meet(session, "sendrecv", wants, sent))
    by = "gpsimd" if dma_engine is dma_engines.gpsimd_dma else "dma"
    return session.finish("sendrecv", by, (dst,), (src,), name, pipe=int(pipe_id))


def _two_cores(session, what):
    """The LNC 2 launch that the program is part of."""
    rules.from_generation(session, 3, f"nisa.{what}")
    if session.launch is None:
        raise NkiValidationError(
            "lnc2-only",
            f"nisa.{what} needs two cores and the kernel runs on one; launch it as kernel[2](...), "
            f"or leave it out when nl.num_programs() is 1.",
        )
    return session.launch
