"""Projections: columns of activations times a weight matrix from HBM, in steps (see schedule.py).

`RowsProjection` leaves rows (VectorE evicts, with bias, scale and residual), `ColumnsProjection`
columns (ScalarE evicts, with bias and activation). The layouts are those of tiles.py. A weight is
streamed in column slabs `[128, chunks of depth, columns]` (`limits.slab_columns`); the transfers of
a slab are cut in the order of use, so that the first product waits for a part of it only.
"""

import nki.isa as nisa
import nki.language as nl

from .limits import PARTITIONS, WEIGHT_PART, ceil_div, slab_columns
from .tiles import (
    WIDE,
    broadcast_row,
    contract_parts,
    dtype_bytes,
    load_columns,
    load_rows,
    psum_parts,
    split_free,
    transpose_rows,
)

# Chunks of the contraction that one step of `RowsProjection` issues: short steps mix better with
# those of other work. Our choice.
STEP_CHUNKS = 8


def load_weight(weight, layout, depth, first, columns, deep=False):
    """A slab of a weight matrix -> SBUF [128, chunks of depth, columns].

    weight: HBM [depth, features] if layout is "in_out", [features, depth] (torch's Linear) if it
    is "out_in". The first is read as it is needed; the second costs a tensor-engine transpose for
    every 128 x 128 block, so weights that are used more than once should be packed "in_out".
    deep: the slab is used chunk by chunk of the depth, for all columns; otherwise by columns.
    """
    chunks = ceil_div(depth, PARTITIONS)
    slab = nl.ndarray((PARTITIONS, chunks, columns), dtype=weight.dtype, buffer=nl.sbuf)
    if layout == "out_in":
        for start in range(0, columns, PARTITIONS):
            count = min(PARTITIONS, columns - start)
            rows = load_rows(weight, first + start, count, depth, weight.dtype)
            transpose_rows(slab[:, :, start : start + count], rows, None, None)
        return slab
    full = depth // PARTITIONS
    item = dtype_bytes(weight.dtype)
    wide = columns
    tall = max(1, full)
    if deep:
        tall = max(1, WEIGHT_PART // (columns * item))
    else:
        wide = max(1, WEIGHT_PART // (chunks * item * PARTITIONS)) * PARTITIONS
    for low in range(0, columns, wide):
        high = min(low + wide, columns)
        for chunk in range(0, full, tall):
            last = min(chunk + tall, full)
            source = weight[chunk * PARTITIONS : last * PARTITIONS, first + low : first + high]
            nisa.dma_copy(
                dst=slab[:, chunk:last, low:high],
                src=source.reshape_dim(0, (last - chunk, PARTITIONS)).permute((1, 0, 2)),
            )
        if full < chunks:
            rest = depth - full * PARTITIONS
            nisa.dma_copy(
                dst=slab[0:rest, full, low:high],
                src=weight[full * PARTITIONS : depth, first + low : first + high],
            )
    return slab


def finish_rows(dst, data, bias, scale, residual):
    """dst = residual + scale * (data + bias), in float32 until the last step rounds to dst.

    data: PSUM [rows, n]; bias, scale, residual: SBUF of the same shape, or None. dst may be the
    residual itself.
    """
    steps = []
    if bias != None:
        steps.append((nl.add, bias))
    if scale != None:
        steps.append((nl.multiply, scale))
    if residual != None:
        steps.append((nl.add, residual))
    if len(steps) == 0:
        nisa.tensor_copy(dst=dst, src=data)
    value = data
    for index in range(len(steps)):
        op, operand = steps[index]
        target = dst
        if index < len(steps) - 1:
            target = nl.ndarray(data.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=target, data1=value, data2=operand, op=op)
        value = target


def project_rows(dst, columns, depth, weight, layout, bias, scale, residual):
    """All of `RowsProjection` at once."""
    work = RowsProjection(dst, columns, depth, weight, layout, bias, scale, residual, None)
    for index in range(work.steps):
        work.step(index)


class RowsProjection(nl.NKIObject):
    """rows dst = residual + scale * (columns^T @ weight + bias).

    dst: SBUF [128, tiles, features]; columns: SBUF [128, chunks of depth, tokens]; weight: HBM
    matrix in `layout`; bias, scale: HBM [features] or None; residual: rows like dst, or None.
    then: None, or an object whose `push` takes the tiles of dst, [<= 128, features] and in order,
    each as soon as it is complete.

    A step contracts STEP_CHUNKS chunks for one tile of tokens and up to WIDE features.
    """

    def __init__(self, dst, columns, depth, weight, layout, bias, scale, residual, then):
        self.dst = dst
        self.columns = columns
        self.depth = depth
        self.weight = weight
        self.layout = layout
        self.residual = residual
        self.then = then
        features = dst.shape[2]
        self.bias = broadcast_row(bias, 0, features)
        self.scale = broadcast_row(scale, 0, features)
        self.width = slab_columns(depth, features, dtype_bytes(weight.dtype))
        self.cuts = ceil_div(ceil_div(depth, PARTITIONS), STEP_CHUNKS)
        # (first feature of the slab, tile, first column within the slab, cut of the depth)
        self.plan = []
        for first in range(0, features, self.width):
            for tile in range(ceil_div(columns.shape[2], PARTITIONS)):
                for start in range(0, min(self.width, features - first), WIDE):
                    for cut in range(self.cuts):
                        self.plan.append((first, tile, start, cut))
        self.steps = len(self.plan)
        self.first = -1
        self.slab = None
        self.parts = None

    def step(self, index):
        """Step `index` of `steps`."""
        first, tile, start, cut = self.plan[index]
        features = self.dst.shape[2]
        if first != self.first:
            size = min(self.width, features - first)
            self.slab = load_weight(self.weight, self.layout, self.depth, first, size, True)
            self.first = first
        token = tile * PARTITIONS
        count = min(PARTITIONS, self.columns.shape[2] - token)
        size = min(WIDE, self.slab.shape[2] - start)
        if cut == 0:
            self.parts = psum_parts(count, size)
        contract_parts(
            self.parts,
            self.columns[:, :, token : token + count],
            split_free(self.slab, start, size),
            self.depth,
            cut * STEP_CHUNKS,
            min((cut + 1) * STEP_CHUNKS, ceil_div(self.depth, PARTITIONS)),
        )
        if cut == self.cuts - 1:
            self.evict(tile, count, first + start)
            if self.then != None and first + start + size == features:
                self.then.push(self.dst[0:count, tile, :])
        if index == self.steps - 1:
            self.slab = None

    def evict(self, tile, count, low):
        """Finish the complete products of a tile; `low` is their first feature."""
        for psum in self.parts:
            high = low + psum.shape[1]
            finish_rows(
                self.dst[0:count, tile, low:high],
                psum,
                part_of(self.bias, count, low, high),
                part_of(self.scale, count, low, high),
                None if self.residual == None else self.residual[0:count, tile, low:high],
            )
            low = high
        self.parts = None


def part_of(row, count, low, high):
    """The first `count` partitions and columns [low, high) of a broadcast row; None stays None."""
    if row == None:
        return None
    return row[0:count, low:high]


def project_columns(dst, columns, depth, weight, layout, bias, activation):
    """All of `ColumnsProjection` at once."""
    work = ColumnsProjection(dst, columns, depth, weight, layout, bias, activation)
    for index in range(work.steps):
        work.step(index)


class ColumnsProjection(nl.NKIObject):
    """columns dst = activation(weight^T @ columns + bias).

    dst: SBUF [128, chunks of features, tokens]; columns: SBUF [128, chunks of depth, tokens];
    weight: HBM matrix in `layout`; bias: HBM [features] or None; activation: a nki.language
    function that ScalarE evaluates while it evicts PSUM.

    A step is one chunk of features for up to WIDE tokens.
    """

    def __init__(self, dst, columns, depth, weight, layout, bias, activation):
        self.dst = dst
        self.columns = columns
        self.depth = depth
        self.weight = weight
        self.layout = layout
        self.activation = activation
        features = weight.shape[1] if layout == "in_out" else weight.shape[0]
        self.features = features
        self.bias = load_columns(bias, 0, features, PARTITIONS)
        self.width = slab_columns(depth, features, dtype_bytes(weight.dtype))
        # (first feature of the slab, first column within the slab, first token)
        self.plan = []
        for first in range(0, features, self.width):
            for start in range(0, min(self.width, features - first), PARTITIONS):
                for token in range(0, columns.shape[2], WIDE):
                    self.plan.append((first, start, token))
        self.steps = len(self.plan)
        self.first = -1
        self.slab = None

    def step(self, index):
        """Step `index` of `steps`."""
        first, start, low = self.plan[index]
        if first != self.first:
            columns = min(self.width, self.features - first)
            self.slab = load_weight(self.weight, self.layout, self.depth, first, columns)
            self.first = first
        size = min(PARTITIONS, self.slab.shape[2] - start)
        chunk = (first + start) // PARTITIONS
        total = min(WIDE, self.columns.shape[2] - low)
        parts = psum_parts(size, total)
        contract_parts(
            parts,
            self.slab[:, :, start : start + size],
            split_free(self.columns, low, total),
            self.depth,
        )
        for psum in parts:
            high = low + psum.shape[1]
            nisa.activation(
                dst=self.dst[0:size, chunk, low:high],
                op=self.activation,
                data=psum,
                bias=None if self.bias == None else self.bias[0:size, chunk : chunk + 1],
            )
            low = high
        if index == self.steps - 1:
            self.slab = None
