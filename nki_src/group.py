"""Groups of images, whose tokens are worked on together, and what all groups of a launch have in
common.
"""

import nki.isa as nisa
import nki.language as nl

from .limits import (
    AS_COLUMNS,
    AS_TURNED_COLUMNS,
    PARTITIONS,
    ceil_div,
    heads_per_chunk,
    query_block,
)
from .rotate import Rotation
from .tiles import dtype_bytes, load_rows


class Form(nl.NKIObject):
    """What all groups and layers of a launch have in common.

    length, heads, dim: tokens an image, heads and their size; begin, end: the tokens [begin, end)
    of each image whose rows this program makes, from all of its keys and values: all, unless two
    programs share one image; begin starts a tile; options: `Options`; dtype: of x;
    as_rows: whether queries and keys are made as rows (heads.py); rotation: the `Rotation` of those
    made as columns, or None; query_block: see `limits.query_block`; images, heads_pass, block,
    flight, beside: see `limits.vit_block_plan`; selectors: `attention.shift_selectors` of such
    passes; ring: the `WeightRing` of the weights of `Rest`, or None.
    """

    def __init__(self, length, share, dim, options, dtype, plan, queries, selectors, ring):
        images, heads_pass, block, flight, beside = plan
        self.length = length
        self.begin, self.end = share
        self.heads = options.num_heads
        self.dim = dim
        self.options = options
        self.eps = options.eps
        self.norm = options.norm
        self.scale = options.attention_scale
        self.dtype = dtype
        self.query_block = query_block(length, length, dtype_bytes(dtype))
        self.as_rows = queries not in (AS_COLUMNS, AS_TURNED_COLUMNS)
        self.rotation = None
        if queries == AS_TURNED_COLUMNS:
            packed = min(self.heads, heads_per_chunk(dim))
            self.rotation = Rotation(
                options.cos, options.sin, options.rope, length, packed, dim, dtype
            )
        self.images = images
        self.heads_pass = heads_pass
        self.block = block
        self.flight = flight
        # Whether rows stay on the chip from layer to layer: not those that another program makes.
        self.keeps = flight and self.end - self.begin == length
        self.beside = beside
        self.selectors = selectors
        self.ring = ring


class Batch(nl.NKIObject):
    """What belongs to the images of a chunk: x, out HBM [tokens, width]; cos, sin: tables for the
    rotation of queries and keys, [P, d] or [images, P, d], or None; source: what makes the score
    bias of a unit (`score_bias.bias_source`), or None; image: which of the images of the tables and
    the source is the first of x."""

    def __init__(self, x, out, cos, sin, source, image):
        self.x = x
        self.out = out
        self.cos = cos
        self.sin = sin
        self.source = source
        self.image = image


class Group(nl.NKIObject):
    """Images whose tokens are worked on together: `count` tokens from row `first` of x and out of
    their `Batch`. `Attention` reads all of them; it leaves, and `Rest` takes and makes, the rows
    [begin, begin + own) of the group (`Form`): all, or those that start with a tile of one image.

    met: whether rows that `Attention` reads are made by another program in the layer before, which
    is met before they are read, and again before they are overwritten;
    rows: SBUF [128, tiles, width] in the dtype of x, or None if they are read tile by tile and
    twice, because SBUF has no room for them;
    normed: `NormColumns` that the layer before has begun, or None; attended: what `Attention`
    leaves for `Rest`, an `ImageColumns`, made by it unless it is `lasting`; slab: the first slab of
    the projection of `Rest`, if `Attention` has fetched it, or None.
    """

    def __init__(self, batch, first, images, form):
        self.batch = batch
        self.x = batch.x
        self.out = batch.out
        self.first = first
        self.count = images * form.length
        self.begin = form.begin
        self.own = images * (form.end - form.begin)
        self.met = False
        self.rows = None
        self.normed = None
        self.attended = None
        self.lasting = False
        self.slab = None

    def load_if(self, flight):
        """Read the rows of the group, if they are kept on the chip."""
        if flight:
            self.load()

    def copy(self):
        """Copy x to out and go on from there."""
        first = self.first + self.begin
        last = first + self.own
        nisa.dma_copy(dst=self.out[first:last, :], src=self.x[first:last, :])
        self.read_out()

    def read_out(self):
        """From now on, read what has been written to out."""
        self.x = self.out
        self.met = self.own < self.count

    def meet(self):
        """Wait for the other program, if it makes some of the rows that are read."""
        if self.met:
            nisa.core_barrier(data=self.out, cores=(0, 1))

    def writer(self):
        """`Store` of the rows that are made."""
        return Store(self.out, self.first + self.begin)

    def store(self):
        """Write the rows of the group to out."""
        store = self.writer()
        for tile in range(ceil_div(self.count, PARTITIONS)):
            store.push(self.tile(tile))

    def load(self):
        """Read the rows of the group."""
        width = self.x.shape[1]
        tiles = ceil_div(self.count, PARTITIONS)
        self.rows = nl.ndarray((PARTITIONS, tiles, width), dtype=self.x.dtype, buffer=nl.sbuf)
        for tile in range(tiles):
            low = tile * PARTITIONS
            size = min(PARTITIONS, self.count - low)
            first = self.first + low
            nisa.dma_copy(dst=self.rows[0:size, tile, :], src=self.x[first : first + size, :])

    def tile(self, tile):
        """Rows [<= 128, width] of one tile, read now if they are not on the chip."""
        low = tile * PARTITIONS
        size = min(PARTITIONS, self.count - low)
        if self.rows == None:
            return load_rows(self.x, self.first + low, size, self.x.shape[1], self.x.dtype)
        return self.rows[0:size, tile, :]


class Store(nl.NKIObject):
    """Takes row tiles in order and stores them to HBM rows of out [tokens, width] from `first`."""

    def __init__(self, out, first):
        self.out = out
        self.next = first
        self.leaves = True

    def push(self, rows):
        """The next tile."""
        last = self.next + rows.shape[0]
        nisa.dma_copy(dst=self.out[self.next : last, :], src=rows)
        self.next = last

    def tick(self):
        """Nothing is in flight."""


def residual_rows(group, first, count, bias):
    """Rows [first, first + count) of a group, plus bias (broadcast row or None) -> SBUF float32
    rows [128, tiles, width]. On GpSimd, which has little else to do.
    """
    width = group.x.shape[1]
    residual = nl.ndarray(
        (PARTITIONS, ceil_div(count, PARTITIONS), width), dtype=nl.float32, buffer=nl.sbuf
    )
    for low in range(0, count, PARTITIONS):
        size = min(PARTITIONS, count - low)
        rows = group.tile((first + low) // PARTITIONS)
        target = residual[0:size, low // PARTITIONS, :]
        if bias == None:
            nisa.tensor_copy(dst=target, src=rows, engine=nisa.engine.gpsimd)
        else:
            nisa.tensor_tensor(
                dst=target,
                data1=rows,
                data2=bias[0:size, :],
                op=nl.add,
                engine=nisa.engine.gpsimd,
            )
    return residual
