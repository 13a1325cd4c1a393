"""Tile-level helpers that every kernel of this package is composed of.

Two layouts of an activation on the chip:

* **rows**    `[128, tiles, width]`: a token a partition, its features along the free axis.
  Norms, residual adds and everything that HBM holds row by row live here.
* **columns** `[128, chunks, tokens]`: a feature a partition (feature f = chunk * 128 + partition),
  tokens along the free axis. The tensor engine contracts over partitions, so every matmul operand
  is a columns view.

`transpose_rows` goes from rows to columns (tensor engine; ScalarE evicts); the projections of
project.py multiply columns by a weight and leave rows or columns, so a chain of matmuls never
transposes back. A stationary tile serves up to two PSUM banks of moving columns (`WIDE`) for one
load.

A helper allocates what it needs and its locals end with it: SBUF use follows the call structure.
"""

import nki.isa as nisa
import nki.language as nl

from .limits import BANK, PARTITIONS, USABLE, ceil_div

# Columns of a product that share one load of the stationary operand: two PSUM banks, so that two
# such groups of four are in flight while a third is evicted. Our choice.
WIDE = 2 * BANK


def dtype_bytes(dtype):
    if dtype == nl.float32:
        return 4
    return 2


def available_bytes():
    """SBUF bytes of a partition that a budget may plan with, on the target being compiled for."""
    return USABLE * nl.tile_size.sbuf_fmax_bytes


def program_share(count, unit):
    """The part [first, last) of `count` items that this program works on, in whole units.

    Two programs run when one logical core is two physical ones (LNC 2); they share no output row.
    """
    programs = 1
    program = 0
    if nl.program_ndim() != 0:
        programs = nl.num_programs(axes=0)
        program = nl.program_id(axis=0)
    share = ceil_div(ceil_div(count, unit), programs) * unit
    return min(program * share, count), min((program + 1) * share, count)


def load_rows(source, first, count, width, dtype):
    """HBM rows [first, first + count) of a [tokens, width] tensor -> SBUF [count, width]."""
    rows = nl.ndarray((count, width), dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=source[first : first + count, 0:width])
    return rows


def broadcast_row(vector, first, size):
    """HBM vector[first : first + size] -> SBUF [128, size], the same row on every partition.

    None stays None, so that an absent bias or weight needs no branch at the caller.
    """
    if vector == None:
        return None
    row = nl.ndarray((PARTITIONS, size), dtype=vector.dtype, buffer=nl.sbuf)
    source = vector[first : first + size].expand_dim(0).broadcast(0, PARTITIONS)
    nisa.dma_copy(dst=row, src=source)
    return row


def load_columns(vector, first, size, step):
    """HBM vector[first : first + size] -> SBUF float32 [step, chunks]: value i on partition
    i % step of column i // step. None stays None.

    The vector is read as rows of `step` values and transposed on the tensor engine: one DMA with
    long rows instead of one descriptor a value.
    """
    if vector == None:
        return None
    chunks = ceil_div(size, step)
    columns = nl.ndarray((step, chunks), dtype=nl.float32, buffer=nl.sbuf)
    for start in range(0, chunks, PARTITIONS):
        count = min(PARTITIONS, chunks - start)
        rows = nl.ndarray((count, step), dtype=vector.dtype, buffer=nl.sbuf)
        here = min(size - start * step, count * step)
        full = here // step
        base = first + start * step
        if full < count:
            nisa.memset(dst=rows, value=0.0)
            nisa.dma_copy(
                dst=rows[full : full + 1, 0 : here - full * step],
                src=vector[base + full * step : base + here].expand_dim(0),
            )
        if full > 0:
            nisa.dma_copy(
                dst=rows[0:full, :],
                src=vector[base : base + full * step].reshape_dim(0, (full, step)),
            )
        psum = nl.ndarray((step, count), dtype=vector.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=psum, data=rows)
        nisa.tensor_copy(dst=columns[:, start : start + count], src=psum)
    return columns


def inverse_root(dst, data, scale, eps):
    """dst = 1 / sqrt(scale * data + eps); SBUF [rows, n] float32, n small.

    On VectorE and GpSimd: on ScalarE it would evict the table of the function that evictions from
    PSUM use, such as exp or gelu, which is then loaded again (1.3 us a load, Trainium2 architecture
    guide).
    """
    nisa.tensor_scalar(
        dst=dst, data=data, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=eps
    )
    nisa.tensor_scalar(dst=dst, data=dst, op0=nl.rsqrt, operand0=0.0, engine=nisa.engine.gpsimd)


def transpose_rows(dst, rows, weight, bias):
    """columns dst[:, :, 0:count] = weight * rows[0:count, :]^T + bias.

    dst: columns [128, chunks, count]; rows: SBUF [count, width]; weight, bias: per-feature columns
    [128, chunks] float32 or None. They ride on the eviction from PSUM (ScalarE) at no cost.
    """
    count = rows.shape[0]
    width = rows.shape[1]
    for chunk in range(ceil_div(width, PARTITIONS)):
        first = chunk * PARTITIONS
        size = min(PARTITIONS, width - first)
        psum = nl.ndarray((size, count), dtype=rows.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=psum, data=rows[:, first : first + size])
        target = dst[0:size, chunk, :]
        if weight == None and bias == None:
            nisa.tensor_copy(dst=target, src=psum, engine=nisa.engine.scalar)
        else:
            nisa.activation(
                dst=target,
                op=nl.copy,
                data=psum,
                scale=1.0 if weight == None else weight[0:size, chunk : chunk + 1],
                bias=0.0 if bias == None else bias[0:size, chunk : chunk + 1],
            )


def contract(dst, stationary, moving, depth):
    """dst[m, n] = sum over the `depth` features f of stationary[f, m] * moving[f, n].

    stationary: columns view [128, chunks, m <= 128]; moving: columns view [128, chunks, n <= 512];
    dst: PSUM float32 [m, n], one accumulation group.
    """
    contract_parts([dst], stationary, [moving], depth)


def contract_parts(dsts, stationary, movings, depth, chunks=None, fresh=True):
    """`contract` of one stationary operand with several moving ones, each into its own PSUM bank.

    dsts and movings: lists of the same length. A stationary tile is loaded into the array once for
    all of them. chunks: how many of the depth to contract, all by default. fresh: whether this
    starts the sum or adds to what dsts hold.
    """
    for chunk in range(ceil_div(depth, PARTITIONS) if chunks == None else chunks):
        size = min(PARTITIONS, depth - chunk * PARTITIONS)
        for part in range(len(dsts)):
            nisa.nc_matmul(
                dst=dsts[part],
                stationary=stationary[0:size, chunk, :],
                moving=movings[part][0:size, chunk, :],
                accumulate=(chunk > 0 or not fresh),
            )


def psum_parts(rows, total):
    """PSUM tiles [rows, <= 512] for `total` columns."""
    parts = []
    for start in range(0, total, BANK):
        size = min(BANK, total - start)
        parts.append(nl.ndarray((rows, size), dtype=nl.float32, buffer=nl.psum))
    return parts


def split_free(columns, first, total):
    """Columns [first, first + total) of [128, chunks, n] as views of at most 512 columns."""
    views = []
    for start in range(0, total, BANK):
        size = min(BANK, total - start)
        views.append(columns[:, :, first + start : first + start + size])
    return views
