"""Projections: columns of activations times a weight matrix from HBM, in steps (see schedule.py).

`RowsProjection` leaves rows (VectorE evicts, with bias, scale and residual), `ColumnsProjection`
columns (ScalarE evicts, with bias and activation). The layouts are those of tiles.py. A weight is
streamed in column slabs `[128, chunks of depth, columns]` (`limits.slab_columns`); the transfers of
a slab are cut in the order of use, so that the first product waits for a part of it only.
"""

import nki.isa as nisa
import nki.language as nl

from .limits import PARTITIONS, ceil_div, part_chunks, part_columns, slab_columns
from .tiles import (
    WIDE,
    broadcast_row,
    contract_parts,
    dtype_bytes,
    load_rows,
    psum_parts,
    split_free,
    transpose_rows,
)


class WeightRing(nl.NKIObject):
    """SBUF for parts of weights that stream through the chip: part i lies where part i - slots lay,
    so a part is transferred as soon as that one has been used.

    A slab must not have more parts than there are slots. size: elements of a slot in a partition.
    """

    def __init__(self, slots, size, dtype):
        self.slots = slots
        self.memory = nl.ndarray((PARTITIONS, slots, size), dtype=dtype, buffer=nl.sbuf)
        self.next = 0

    def take(self, chunks, columns):
        """The next slot as SBUF [128, chunks, columns]."""
        part = self.memory[:, self.next, 0 : chunks * columns].reshape_dim(1, (chunks, columns))
        self.next = (self.next + 1) % self.slots
        return part


def load_weight(weight, layout, depth, first, columns, low=0, high=None, ring=None):
    """Columns [first, first + columns) of a weight matrix, chunks [low, high) of its depth -> SBUF
    [128, high - low, columns].

    weight: HBM [depth, features] if layout is "in_out", [features, depth] (torch's Linear) if it
    is "out_in". The first is read as it is needed; the second costs a tensor-engine transpose for
    every 128 x 128 block, so weights that are used more than once should be packed "in_out".
    ring: the `WeightRing` that it goes to, or None.
    """
    chunks = ceil_div(depth, PARTITIONS)
    if high == None:
        high = chunks
    if ring == None:
        part = nl.ndarray((PARTITIONS, high - low, columns), dtype=weight.dtype, buffer=nl.sbuf)
    else:
        part = ring.take(high - low, columns)
    if layout == "out_in":
        for start in range(0, columns, PARTITIONS):
            count = min(PARTITIONS, columns - start)
            rows = load_rows(weight, first + start, count, depth, weight.dtype)
            rows = rows[:, low * PARTITIONS : min(high * PARTITIONS, depth)]
            transpose_rows(part[:, :, start : start + count], rows, None, None)
        return part
    full = min(high, depth // PARTITIONS)
    if full > low:
        source = weight[low * PARTITIONS : full * PARTITIONS, first : first + columns]
        nisa.dma_copy(
            dst=part[:, 0 : full - low, :],
            src=source.reshape_dim(0, (full - low, PARTITIONS)).permute((1, 0, 2)),
        )
    if full < high:
        nisa.dma_copy(
            dst=part[0 : depth - full * PARTITIONS, full - low, :],
            src=weight[full * PARTITIONS : depth, first : first + columns],
        )
    return part


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


def project_rows(dst, columns, depth, weight, layout, bias):
    """All of `RowsProjection` at once; bias: HBM [features] or None."""
    bias = broadcast_row(bias, 0, dst.shape[2])
    work = RowsProjection(dst, columns, depth, weight, layout, bias, None, None, None)
    for index in range(work.steps):
        work.step(index)


class RowsProjection(nl.NKIObject):
    """rows dst = residual + scale * (columns^T @ weight + bias).

    dst: SBUF [128, tiles, features]; columns: SBUF [128, chunks of depth, tokens]; weight: HBM
    matrix in `layout`; bias, scale: broadcast rows [128, features] or None; residual: rows like
    dst, or None.
    then: None, or an object whose `push` takes the tiles of dst, [<= 128, features] and in order,
    each as soon as it is complete, and whose `tick` is called now and then in between.
    slab: what `first_slab` has fetched, or None.

    A step contracts one part of the slab for one tile of tokens and up to WIDE features.
    """

    def __init__(
        self,
        dst,
        columns,
        depth,
        weight,
        layout,
        bias,
        scale,
        residual,
        then,
        ring=None,
        slab=None,
    ):
        self.ring = ring
        self.dst = dst
        self.columns = columns
        self.depth = depth
        self.weight = weight
        self.layout = layout
        self.residual = residual
        self.then = then
        features = dst.shape[2]
        self.bias = bias
        self.scale = scale
        item = dtype_bytes(weight.dtype)
        self.width = slab_columns(depth, features, item)
        self.chunks = ceil_div(depth, PARTITIONS)
        self.tall = self.chunks if layout == "out_in" else part_chunks(self.width, item)
        self.cuts = ceil_div(self.chunks, self.tall)
        # (first feature of the slab, tile, first column within the slab, cut of the depth)
        self.plan = []
        for first in range(0, features, self.width):
            for tile in range(ceil_div(columns.shape[2], PARTITIONS)):
                for start in range(0, min(self.width, features - first), WIDE):
                    for cut in range(self.cuts):
                        self.plan.append((first, tile, start, cut))
        self.steps = len(self.plan)
        self.first = -1 if slab == None else 0
        self.slab = slab
        self.parts = None

    def step(self, index):
        """Step `index` of `steps`."""
        first, tile, start, cut = self.plan[index]
        features = self.dst.shape[2]
        if first != self.first:
            self.load(first, min(self.width, features - first))
        token = tile * PARTITIONS
        count = min(PARTITIONS, self.columns.shape[2] - token)
        part = self.slab[cut]
        size = min(WIDE, part.shape[2] - start)
        if cut == 0:
            self.parts = psum_parts(count, size)
        low = cut * self.tall
        contract_parts(
            self.parts,
            self.columns[:, low : low + part.shape[1], token : token + count],
            split_free(part, start, size),
            self.depth - low * PARTITIONS,
            part.shape[1],
            cut == 0,
        )
        if cut == self.cuts - 1:
            self.evict(tile, count, first + start)
            if self.then != None and first + start + size == features:
                self.then.push(self.dst[0:count, tile, :])
        elif self.then != None and cut % 2 == 1:
            self.then.tick()
        if index == self.steps - 1:
            self.slab = None

    def load(self, first, size):
        """The slab of columns [first, first + size), in parts of `tall` chunks."""
        self.first = first
        self.slab = load_slab(
            self.weight, self.layout, self.depth, first, size, self.tall, self.ring
        )

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


def load_slab(weight, layout, depth, first, size, tall, ring):
    """Columns [first, first + size) of a weight matrix in parts of `tall` chunks of its depth; the
    other arguments as for `load_weight`."""
    chunks = ceil_div(depth, PARTITIONS)
    slab = []
    for low in range(0, chunks, tall):
        high = min(low + tall, chunks)
        slab.append(load_weight(weight, layout, depth, first, size, low, high, ring))
    return slab


def first_slab(weight, ring):
    """The first slab that `RowsProjection` reads of a weight [depth, features], ahead of it."""
    depth, features = weight.shape
    item = dtype_bytes(weight.dtype)
    width = slab_columns(depth, features, item)
    return load_slab(weight, "in_out", depth, 0, width, part_chunks(width, item), ring)


def part_of(row, count, low, high):
    """The first `count` partitions and columns [low, high) of a broadcast row; None stays None."""
    if row == None:
        return None
    return row[0:count, low:high]


class ColumnsProjection(nl.NKIObject):
    """columns dst = activation(weight^T @ columns + bias).

    dst: SBUF [128, chunks of features, tokens]; columns: SBUF [128, chunks of depth, tokens];
    weight: HBM matrix in `layout`; bias: columns [128, chunks of features] float32 or None;
    activation: a nki.language function that ScalarE evaluates while it evicts PSUM.

    A step is one chunk of features for up to WIDE tokens.
    """

    def __init__(self, dst, columns, depth, weight, layout, bias, activation, ring=None):
        self.ring = ring
        self.dst = dst
        self.columns = columns
        self.depth = depth
        self.weight = weight
        self.layout = layout
        self.activation = activation
        features = weight.shape[1] if layout == "in_out" else weight.shape[0]
        self.features = features
        self.bias = bias
        item = dtype_bytes(weight.dtype)
        self.width = slab_columns(depth, features, item)
        self.wide = part_columns(depth, item)
        # (first feature of the slab, part, first column within the part, first token)
        self.plan = []
        for first in range(0, features, self.width):
            last = min(first + self.width, features)
            for part in range(ceil_div(last - first, self.wide)):
                low = first + part * self.wide
                for start in range(0, min(self.wide, last - low), PARTITIONS):
                    for token in range(0, columns.shape[2], WIDE):
                        self.plan.append((first, part, start, token))
        self.steps = len(self.plan)
        self.first = -1
        self.slab = None

    def step(self, index):
        """Step `index` of `steps`."""
        first, number, start, low = self.plan[index]
        if first != self.first:
            self.load(first, min(self.width, self.features - first))
        part = self.slab[number]
        size = min(PARTITIONS, part.shape[2] - start)
        chunk = (first + number * self.wide + start) // PARTITIONS
        total = min(WIDE, self.columns.shape[2] - low)
        parts = psum_parts(size, total)
        contract_parts(
            parts,
            part[:, :, start : start + size],
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

    def load(self, first, columns):
        """The slab of columns [first, first + columns), in parts of `wide` columns."""
        self.first = first
        self.slab = []
        for low in range(0, columns, self.wide):
            size = min(self.wide, columns - low)
            self.slab.append(
                load_weight(
                    self.weight, self.layout, self.depth, first + low, size, 0, None, self.ring
                )
            )
