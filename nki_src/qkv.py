"""Queries, keys and values of some heads from the columns of a group, as works (see schedule.py).
Queries and keys with a norm, or with a rotation that has to be one of rows, are made in heads.py.
"""

import nki.isa as nisa
import nki.language as nl

from .attend import Heads, head_columns
from .limits import (
    BANK,
    PARTITIONS,
    ceil_div,
    heads_per_chunk,
    window_span,
    window_units,
    windows_per_tile,
)
from .project import finish_rows, load_weight, part_of
from .tiles import WIDE, contract, contract_parts, psum_parts, split_free


class HeadsProjection(nl.NKIObject):
    """`Heads` of queries or keys, in `result`, from weight columns [first, first + heads * d).

    columns: SBUF [128, chunks of width, tokens]; length: tokens of an image; weight: HBM [width,
    features]; bias: the columns of `AttentionVectors`, from `base` on those of these heads, or
    None; rotation: `Rotation` or None. A step is one slot of heads for up to WIDE tokens, or the
    rotation of the slot before, which has left PSUM by then.
    """

    def __init__(self, columns, length, weight, bias, base, first, heads, dim, rotation):
        width = weight.shape[0]
        total = columns.shape[2]
        self.columns = columns
        self.width = width
        self.packed = min(heads, heads_per_chunk(dim))
        self.count = heads
        target = head_columns(
            self.packed * dim,
            ceil_div(heads, self.packed),
            total // length,
            length,
            columns.dtype,
        )
        self.result = Heads(target, heads, dim)
        self.bias = bias
        self.base = base
        self.slab = load_weight(weight, "in_out", width, first, heads * dim)
        self.rotation = rotation
        # (slot, first token, or None to rotate the slot)
        self.plan = []
        for slot in range(ceil_div(heads, self.packed)):
            for low in range(0, total, WIDE):
                self.plan.append((slot, low))
            if rotation != None and slot > 0:
                self.plan.append((slot - 1, None))
        if rotation != None:
            self.plan.append((ceil_div(heads, self.packed) - 1, None))
        self.steps = len(self.plan)

    def step(self, index):
        """Step `index` of `steps`."""
        slot, low = self.plan[index]
        dim = self.result.dim
        start = slot * self.packed
        stop = min(start + self.packed, self.count)
        size = (stop - start) * dim
        if low == None:
            self.rotation.apply(self.result.columns[0:size, slot, 0 : self.columns.shape[2]])
        else:
            self.project(slot, low, start, stop)
        if index == self.steps - 1:
            self.slab = None

    def project(self, slot, low, start, stop):
        """Heads [start, stop), which are slot `slot`, for the tokens from `low` on."""
        dim = self.result.dim
        size = (stop - start) * dim
        total = min(WIDE, self.columns.shape[2] - low)
        parts = psum_parts(size, total)
        contract_parts(
            parts,
            self.slab[:, :, start * dim : stop * dim],
            split_free(self.columns, low, total),
            self.width,
        )
        for psum in parts:
            high = low + psum.shape[1]
            target = self.result.columns[0:size, slot, low:high]
            if self.bias == None:
                nisa.tensor_copy(dst=target, src=psum, engine=nisa.engine.scalar)
            else:
                column = self.base + slot
                nisa.activation(
                    dst=target,
                    op=nl.copy,
                    data=psum,
                    bias=self.bias[0:size, column : column + 1],
                )
            low = high


class ValuesProjection(nl.NKIObject):
    """Values of every image, in `values`, as rows [128, units * tiles, heads, d + 1], the last
    column ones; images that share a tile each begin a span of it (attend.py).

    Arguments as `HeadsProjection`; length: tokens of an image; bias: broadcast row of these heads
    or None. A step is a tile of tokens and as many heads as share a PSUM bank.
    """

    def __init__(self, columns, length, weight, bias, first, heads, dim):
        self.columns = columns
        self.length = length
        self.width = weight.shape[0]
        self.dim = dim
        self.count = heads
        self.tiles = ceil_div(length, PARTITIONS)
        images = columns.shape[2] // length
        tiles = images * self.tiles
        self.windows = windows_per_tile(length)
        rows = window_units(images, length) * self.tiles
        self.values = nl.ndarray(
            (PARTITIONS, rows, heads, dim + 1), dtype=columns.dtype, buffer=nl.sbuf
        )
        nisa.memset(dst=self.values[:, :, :, dim : dim + 1], value=1.0, engine=nisa.engine.gpsimd)
        self.bias = bias
        self.slab = load_weight(weight, "in_out", self.width, first, heads * dim)
        self.shared = BANK // dim
        self.groups = ceil_div(heads, self.shared)
        self.steps = tiles * self.groups

    def step(self, index):
        """Step `index` of `steps`."""
        dim = self.dim
        tile = index // self.groups
        image = tile // self.tiles
        low = tile % self.tiles * PARTITIONS
        size = min(PARTITIONS, self.length - low)
        token = image * self.length + low
        start = index % self.groups * self.shared
        stop = min(start + self.shared, self.count)
        psum = nl.ndarray((size, stop - start, dim), dtype=nl.float32, buffer=nl.psum)
        contract(
            psum,
            self.columns[:, :, token : token + size],
            self.slab[:, :, start * dim : stop * dim],
            self.width,
        )
        part = part_of(self.bias, size, start * dim, stop * dim)
        if part != None:
            part = part.reshape_dim(1, (stop - start, dim))
        base = tile % self.windows * window_span(self.length) if self.windows > 1 else 0
        target = self.values[base : base + size, tile // self.windows, start:stop, 0:dim]
        finish_rows(target, psum, part, None, None)
        if index == self.steps - 1:
            self.slab = None
