"""From the rows of attention, image by image, to the packed columns of the projection."""

import nki.isa as nisa
import nki.language as nl

from .limits import PARTITIONS, ceil_div, window_span, window_units, windows_per_tile
from .tiles import transpose_rows


class ImageColumns(nl.NKIObject):
    """Output rows of attention, where each image starts a tile or its span of one that it shares,
    as columns with images packed.

    rows: SBUF [128, units * tiles, embed], from `allocate_rows` on; columns: [128, chunks of embed,
    count], for `count` tokens, [`Form.begin`, `Form.end`) of each image. A unit is a block of
    queries of an image, or all images of a tile; `push` turns one as soon as it is complete, if the
    columns exist from the start (`Form.flight`). `finish` returns the columns.
    """

    def __init__(self, count, form):
        self.rows = None
        self.embed = form.heads * form.dim
        self.length = form.end - form.begin
        self.count = count
        self.dtype = form.dtype
        self.block = form.query_block
        self.blocks = ceil_div(self.length, self.block)
        self.tiles = ceil_div(self.length, PARTITIONS)
        self.shared = windows_per_tile(self.length)
        self.columns = None
        if form.flight:
            self.allocate()

    def allocate_rows(self):
        """Make the rows."""
        self.rows = nl.ndarray(
            (PARTITIONS, self.units() // self.blocks * self.tiles, self.embed),
            dtype=self.dtype,
            buffer=nl.sbuf,
        )

    def allocate(self):
        """Make the columns."""
        chunks = ceil_div(self.embed, PARTITIONS)
        self.columns = nl.ndarray(
            (PARTITIONS, chunks, self.count), dtype=self.dtype, buffer=nl.sbuf
        )

    def finish(self):
        """The columns, when attention is over: turns all units unless each has been pushed."""
        if self.columns == None:
            self.allocate()
            for unit in range(self.units()):
                self.push(unit)
        return self.columns

    def units(self):
        """Units of the group."""
        return window_units(self.count // self.length, self.length) * self.blocks

    def push(self, unit):
        """Unit `unit` of the group is complete."""
        if self.shared > 1:
            self.turn_windows(unit)
        else:
            self.turn(unit)
        if unit == self.units() - 1:
            self.rows = None

    def turn_windows(self, unit):
        """The images that share a tile."""
        first = unit * self.shared
        count = min(self.shared, self.count // self.length - first)
        low = first * self.length
        if count == 1:
            columns = self.columns[:, :, low : low + self.length]
            transpose_rows(columns, self.rows[0 : self.length, unit, :], None, None)
            return
        span = window_span(self.length)
        columns = self.columns[:, :, low : low + count * self.length]
        transpose_windows(
            columns.reshape_dim(2, (count, self.length)), self.rows[0 : count * span, unit, :], span
        )

    def turn(self, unit):
        """A block of queries."""
        image = unit // self.blocks
        start = unit % self.blocks * self.block
        for low in range(start, min(start + self.block, self.length), PARTITIONS):
            size = min(PARTITIONS, self.length - low)
            token = image * self.length + low
            tile = image * self.tiles + low // PARTITIONS
            transpose_rows(
                self.columns[:, :, token : token + size], self.rows[0:size, tile, :], None, None
            )


def transpose_windows(dst, rows, span):
    """columns dst [128, chunks, images, length] = rows^T, rows SBUF [images * span, width]."""
    _, _, count, length = dst.shape
    width = rows.shape[1]
    for chunk in range(ceil_div(width, PARTITIONS)):
        first = chunk * PARTITIONS
        size = min(PARTITIONS, width - first)
        psum = nl.ndarray((size, count, span), dtype=rows.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=psum, data=rows[:, first : first + size])
        nisa.tensor_copy(
            dst=dst[0:size, chunk, :, :], src=psum[:, :, 0:length], engine=nisa.engine.scalar
        )
