"""What is added to the scores of attention: an additive bias, a mask, key lengths or segments.

All four become the same thing: tiles [128 queries, keys] in the operand dtype, which the tensor
engine adds to the scores in PSUM, in either orientation and without a transpose:

    queries on partitions (`Maxima`)       += identity^T @ tile
    keys on partitions (`Numerators`)      += tile^T @ identity

Scores are not scaled before the exponential, so the identity carries a factor; one that the operand
dtype does not hold exactly is split over two identities, high and low.

A masked key has a finite fill, which keeps every sum in PSUM finite. A row whose largest score is
below a bound, half of the fill, is taken for fully masked: its maximum is the bound instead, all of
its exponentials are 0, and so is its result. An additive bias masks a key where it is at most minus
half of `limits.bias_fill`; below minus the fill, minus infinity included, it counts as the fill.

Of images that share a tile each has the rows of its span (attend.py), and its bias is added by a
row tile of the tensor engine of these rows alone.

GpSimd, which has little else to do, makes the tiles of a bias, ScalarE those of a mask, and VectorE
the few of lengths and segments. These are read when the kernel runs; only their number is known
when it is compiled. SBUF: `limits.bias_bytes`.
"""

import nki.isa as nisa
import nki.language as nl

from .limits import (
    BANK,
    BIAS_STAGE,
    PARTITIONS,
    bias_fill,
    bias_scale_fits,
    ceil_div,
    window_span,
    windows_per_tile,
)

# Tiles of a mask hold 0 or minus this. A power of two that float16 holds; the identity brings it to
# the size of the fill. Our choice.
MASK_STEP = 16384.0

# The largest row maximum, before scaling, whose two parts float16 can hold (see SHIFT_STEP in
# attend.py), as a power of two.
FLOAT16_SHIFT = 134217728.0


def bias_source(mask, kv_lens, cu_seqlens_q, cu_seqlens_k, scale, q_len, k_len, dtype):
    """What makes the `ScoreBias` of each unit by `unit`, or None if there is nothing to add.

    Arguments as of `attention`, of which at most one (or the pair of cu_seqlens) is not None.
    """
    if mask == None and kv_lens == None and cu_seqlens_q == None:
        return None
    assert bias_scale_fits(scale), f"attention: scale={scale} with a mask or bias"
    if mask != None:
        assert kv_lens == None and cu_seqlens_q == None, "attention: more than one kind of mask"
        return DenseBias(mask, scale, dtype)
    if kv_lens != None:
        assert cu_seqlens_q == None, "attention: more than one kind of mask"
        return LengthBias(kv_lens, scale, k_len, dtype)
    return SegmentBias(cu_seqlens_q, cu_seqlens_k, scale, q_len, k_len, dtype)


class Scaling(nl.NKIObject):
    """How the tiles of a bias come to the size of unscaled scores.

    fill: minus what a tile holds for a masked key; identities: SBUF [128, 128], whose sum is the
    identity times a factor; bound: the smallest row maximum, before scaling (the largest, for a
    negative scale).
    """

    def __init__(self, additive, scale, dtype):
        size = scale if scale >= 0.0 else -scale
        if additive:
            self.fill = bias_fill(dtype == nl.float16)
            factor = 1.0 / scale
            bound = self.fill / size / 2.0
        else:
            # The fill of bfloat16 in every dtype, as far as the identity reaches in float16.
            unscaled = power_of_two(bias_fill(False) / size)
            bound = unscaled / 2.0
            if dtype == nl.float16:
                unscaled = min(unscaled, 4.0 * FLOAT16_SHIFT)
                bound = min(bound, FLOAT16_SHIFT)
            factor = unscaled / MASK_STEP
            if scale < 0.0:
                factor = -factor
            self.fill = MASK_STEP
        self.bound = bound if scale < 0.0 else -bound
        self.inward = nl.minimum if scale < 0.0 else nl.maximum
        self.identities = scaled_identities(factor, dtype)


def power_of_two(value):
    """The smallest power of two that is at least `value`, which is from 1 up."""
    power = 1.0
    while power < value:
        power = 2.0 * power
    return power


def holds_exactly(factor, dtype):
    """Whether a product with `factor` needs no second identity: `factor` is a value of the operand
    dtype, or that is float32, whose rounding of it no sum in PSUM would show.
    """
    if dtype == nl.float32:
        return True
    limit = 2048.0 if dtype == nl.float16 else 256.0
    value = factor if factor >= 0.0 else -factor
    while value < limit / 2.0:
        value = 2.0 * value
    while value >= limit:
        value = value / 2.0
    return value % 1.0 == 0.0


def scaled_identities(factor, dtype):
    """SBUF [128, 128] of the operand dtype, one or two, whose sum is the identity times factor."""
    identity = nl.shared_identity_matrix(PARTITIONS, dtype=dtype)
    high = nl.ndarray((PARTITIONS, PARTITIONS), dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=high, data=identity, op0=nl.multiply, operand0=factor)
    if holds_exactly(factor, dtype):
        return [high]
    low = nl.ndarray((PARTITIONS, PARTITIONS), dtype=dtype, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=low, data=identity, op0=nl.multiply, operand0=factor, op1=nl.subtract, operand1=high
    )
    return [high, low]


class ScoreBias(nl.NKIObject):
    """The bias of a unit of attention.

    tiles: for each tile of queries, SBUF [128, heads, keys] of the operand dtype; shared: whether
    all heads have the first one's. Two tiles of queries may be the same object. span: 0, or the
    partitions from one image to the next of those that share the only tile (`window_tile`).
    """

    def __init__(self, tiles, scaling, shared, span=0):
        self.tiles = tiles
        self.scaling = scaling
        self.shared = shared
        self.span = span

    def unit(self, index):
        """This bias, for every unit that shares it (see `attend`)."""
        return self

    def rows(self, head, tile):
        """SBUF [128, keys] of one head and tile of queries."""
        return self.tiles[tile][:, 0 if self.shared else head, :]

    def add_rows(self, dst, first, tile, low, window):
        """PSUM dst [queries of the tile, heads from first on, keys from low on] += the bias."""
        if self.span > 0:
            self.add_window_rows(dst, first, window)
            return
        queries, heads, keys = dst.shape
        for head in range(heads):
            rows = self.rows(first + head, tile)
            for identity in self.scaling.identities:
                nisa.nc_matmul(
                    dst=dst[:, head, :],
                    stationary=identity[0:queries, 0:queries],
                    moving=rows[0:queries, low : low + keys],
                    accumulate=True,
                )

    def add_window_rows(self, dst, first, window):
        """PSUM dst [queries of all images up to `window`, heads, keys] += the bias of that one."""
        reach, heads, keys = dst.shape
        base = window * self.span
        last = base + keys
        if self.shared:
            rows = self.tiles[0][base:last, 0, :].expand_dim(1).broadcast(1, heads)
        else:
            rows = self.tiles[0][base:last, first : first + heads, :]
        for identity in self.scaling.identities:
            nisa.nc_matmul(
                dst=dst,
                stationary=identity[base:last, 0:reach],
                moving=rows,
                accumulate=True,
                tile_position=(base, 0),
                tile_size=(self.span, PARTITIONS),
            )

    def add_window_columns(self, dst, head, window):
        """PSUM dst [keys of all images up to `window`, queries] += the bias of that image. What it
        adds to the images in front means nothing, as what is there (`attend.Maxima`)."""
        base = window * self.span
        queries = dst.shape[1]
        low = 0 if self.shared else head * queries
        rows = self.tiles[0].flatten_dims(1, 2)[base : base + queries, low : low + self.span]
        for identity in self.scaling.identities:
            nisa.nc_matmul(
                dst=dst,
                stationary=rows.expand_dim(1).broadcast(1, window + 1),
                moving=identity[base : base + queries, base : base + queries],
                accumulate=True,
                tile_position=(base, 0),
                tile_size=(self.span, PARTITIONS),
            )

    def add_columns(self, dst, head, low, window):
        """PSUM dst [keys from low on, all queries] += the bias."""
        if self.span > 0:
            self.add_window_columns(dst, head, window)
            return
        keys, queries = dst.shape
        for tile in range(ceil_div(queries, PARTITIONS)):
            start = tile * PARTITIONS
            count = min(PARTITIONS, queries - start)
            rows = self.rows(head, tile)
            for identity in self.scaling.identities:
                nisa.nc_matmul(
                    dst=dst[:, start : start + count],
                    stationary=rows[0:count, low : low + keys],
                    moving=identity[0:count, 0:count],
                    accumulate=True,
                )

    def bounded(self, maxima):
        """Row maxima [queries, heads], those of fully masked rows replaced by the bound."""
        result = nl.ndarray(maxima.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=result, data=maxima, op0=self.scaling.inward, operand0=self.scaling.bound
        )
        return result


class BiasUnits(nl.NKIObject):
    """The biases of the units of `attend`, which are the blocks of queries [begin, end) of images
    from `image` on, for heads [first, first + count); begin starts a tile. source: see
    `bias_source`. windows, images: how many images share a unit, of how many.
    """

    def __init__(self, source, image, first, count, begin, end, block, windows=1, images=1):
        self.source = source
        self.image = image
        self.first = first
        self.count = count
        self.begin = begin
        self.end = end
        self.block = block
        self.blocks = ceil_div(end - begin, block)
        self.windows = windows
        self.images = images

    def unit(self, index):
        """The `ScoreBias` of a unit; the one before it may still be in use."""
        if self.windows > 1:
            past = index * self.windows
            windows = min(self.windows, self.images - past)
            return self.source.windows(self.image + past, windows, self.first, self.count)
        start = self.begin + index % self.blocks * self.block
        size = min(self.block, self.end - start)
        image = self.image + index // self.blocks
        return self.source.unit(image, self.first, self.count, start, size)


class DenseBias(nl.NKIObject):
    """An additive bias or a mask from HBM, see `attention`.

    Consecutive units that share a bias share its tiles.
    """

    def __init__(self, mask, scale, dtype):
        self.mask = mask
        self.additive = mask.dtype != nl.uint8
        self.dtype = dtype
        self.scaling = Scaling(self.additive, scale, dtype)
        self.floor = None
        if self.additive:
            self.floor = nl.ndarray((PARTITIONS, 1), dtype=mask.dtype, buffer=nl.sbuf)
            nisa.memset(dst=self.floor, value=-self.scaling.fill)
        self.key = None
        self.bias = None

    def forget(self):
        """Let go of the tiles that the next unit might share, as if none had been made."""
        self.key = None
        self.bias = None

    def unit(self, image, first, count, start, size):
        """The bias of queries [start, start + size) for heads [first, first + count)."""
        batch, heads, q_len, _ = self.mask.shape
        here = image if batch > 1 else 0
        low = first if heads > 1 else 0
        high = first + count if heads > 1 else 1
        token = start if q_len > 1 else 0
        key = (here, low, high, token, size)
        if self.key != key:
            self.key = key
            # What is there ends before the next is made.
            self.bias = None
            tiles = []
            for query in range(0, size, PARTITIONS):
                if q_len > 1 or query == 0:
                    rows = min(PARTITIONS, size - query)
                    tiles.append(self.tile(here, low, high, token + query, rows))
                else:
                    tiles.append(tiles[0])
            self.bias = ScoreBias(tiles, self.scaling, heads == 1)
        return self.bias

    def windows(self, image, count, first, heads):
        """The bias of `count` whole images that share a tile, for heads [first, first + heads).

        Of what all images share there is as much as for a full tile, so that all units have it.
        """
        mask = self.mask
        k_len = mask.shape[3]
        span = window_span(k_len)
        here = 0
        made = windows_per_tile(k_len)
        if mask.shape[0] > 1:
            here = image
            made = count
        low = first if mask.shape[1] > 1 else 0
        high = first + heads if mask.shape[1] > 1 else 1
        key = (here, low, high, made)
        if self.key != key:
            self.key = key
            self.bias = None
            tile = window_tile(high - low, k_len, self.dtype)
            for window in range(made):
                each = here + window if mask.shape[0] > 1 else 0
                base = window * span
                self.load(tile[base : base + k_len, 0 : high - low, :], each, low, high, 0)
            self.bias = ScoreBias([tile], self.scaling, mask.shape[1] == 1, span)
        if count == 1:
            return ScoreBias(self.bias.tiles, self.scaling, mask.shape[1] == 1)
        return self.bias

    def tile(self, image, low, high, token, rows):
        """HBM -> SBUF [rows, heads, keys] of one tile of queries, masked values finite."""
        tile = nl.ndarray((rows, high - low, self.mask.shape[3]), dtype=self.dtype, buffer=nl.sbuf)
        self.load(tile, image, low, high, token)
        return tile

    def load(self, tile, image, low, high, token):
        """HBM -> SBUF tile [rows, heads, keys] for the queries from `token` on."""
        mask = self.mask
        rows, _, k_len = tile.shape
        step = max(1, BIAS_STAGE // (k_len * 4))
        for head in range(low, high, step):
            last = min(head + step, high)
            loaded = nl.ndarray((rows, last - head, k_len), dtype=mask.dtype, buffer=nl.sbuf)
            if mask.shape[2] == 1:
                source = mask[image, head:last, 0, :].expand_dim(0).broadcast(0, rows)
            else:
                source = mask[image, head:last, token : token + rows, :].permute((1, 0, 2))
            nisa.dma_copy(dst=loaded, src=source)
            target = tile[:, head - low : last - low, :]
            if self.additive:
                floor = self.floor[0:rows, :].expand_dim(2)
                nisa.tensor_tensor(
                    dst=target,
                    data1=loaded,
                    data2=floor.broadcast(1, last - head).broadcast(2, k_len),
                    op=nl.maximum,
                    engine=nisa.engine.gpsimd,
                )
            else:
                fill = self.scaling.fill
                nisa.activation(dst=target, op=nl.copy, data=loaded, scale=fill, bias=-fill)


class LengthBias(nl.NKIObject):
    """Keys beyond kv_lens[image] (HBM int32 [B]) are masked, for all heads and queries alike."""

    def __init__(self, kv_lens, scale, k_len, dtype):
        self.kv_lens = kv_lens
        self.dtype = dtype
        self.scaling = Scaling(False, scale, dtype)
        self.positions = nl.ndarray((PARTITIONS, k_len), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=self.positions, pattern=[[1, k_len]])
        self.image = None
        self.tile = None

    def forget(self):
        """Let go of the tile that the next unit might share, as if none had been made."""
        self.image = None
        self.tile = None

    def unit(self, image, first, count, start, size):
        """The bias of an image, whatever the heads and queries."""
        if self.image != image:
            self.image = image
            self.tile = None
            length = load_row(self.kv_lens, image, 1)
            k_len = self.positions.shape[1]
            tile = nl.ndarray((PARTITIONS, 1, k_len), dtype=self.dtype, buffer=nl.sbuf)
            mask_where(tile[:, 0, :], self.positions, nl.greater_equal, length, self.scaling.fill)
            self.tile = tile
        tiles = []
        for _ in range(ceil_div(size, PARTITIONS)):
            tiles.append(self.tile)
        return ScoreBias(tiles, self.scaling, True)

    def windows(self, image, count, first, heads):
        """The bias of `count` images that share a tile, whatever the heads."""
        self.forget()
        k_len = self.positions.shape[1]
        span = window_span(k_len)
        tile = window_tile(1, k_len, self.dtype)
        for window in range(count):
            rows = slice(window * span, window * span + k_len)
            length = load_row(self.kv_lens, image + window, 1)
            mask_where(
                tile[rows, 0, :],
                self.positions[rows, :],
                nl.greater_equal,
                length[rows, :],
                self.scaling.fill,
            )
        return ScoreBias([tile], self.scaling, True, span if count > 1 else 0)


class SegmentBias(nl.NKIObject):
    """A query sees the keys of its own segment.

    cu_seqlens_q, cu_seqlens_k: HBM int32 [segments + 1], where the segments of the queries and of
    the keys begin, and the last one ends. A position belongs to the segment whose number is how
    many of these it has reached.
    """

    def __init__(self, cu_seqlens_q, cu_seqlens_k, scale, q_len, k_len, dtype):
        self.dtype = dtype
        self.scaling = Scaling(False, scale, dtype)
        self.queries = segment_columns(cu_seqlens_q, q_len)
        self.keys = segment_row(cu_seqlens_k, k_len)

    def forget(self):
        """Units share no tiles."""

    def unit(self, image, first, count, start, size):
        """The bias of queries [start, start + size), which begin a tile, for all heads."""
        tiles = []
        for query in range(0, size, PARTITIONS):
            rows = min(PARTITIONS, size - query)
            column = (start + query) // PARTITIONS
            tile = nl.ndarray((rows, 1, self.keys.shape[1]), dtype=self.dtype, buffer=nl.sbuf)
            mask_where(
                tile[:, 0, :],
                self.keys[0:rows, :],
                nl.not_equal,
                self.queries[0:rows, column : column + 1],
                self.scaling.fill,
            )
            tiles.append(tile)
        return ScoreBias(tiles, self.scaling, True)


def window_tile(heads, k_len, dtype):
    """SBUF [128, heads and some spare ones, keys], where each of several images begins a span of
    partitions. From the last head on, the tensor engine takes up as many columns as a span has."""
    spare = ceil_div(window_span(k_len) - k_len, k_len)
    tile = nl.ndarray((PARTITIONS, heads + spare, k_len), dtype=dtype, buffer=nl.sbuf)
    if spare > 0:
        nisa.memset(dst=tile[:, heads:, :], value=0.0, engine=nisa.engine.gpsimd)
    return tile


def mask_where(dst, values, comparison, operand, fill):
    """dst = -fill where comparison(values, operand) holds, else 0; operand: one value a row."""
    nisa.tensor_scalar(
        dst=dst,
        data=values,
        op0=comparison,
        operand0=operand,
        op1=nl.multiply,
        operand1=-fill,
    )


def load_row(vector, first, size):
    """HBM int32 vector[first : first + size] -> float32 [128, size], the same on every row."""
    loaded = nl.ndarray((PARTITIONS, size), dtype=nl.int32, buffer=nl.sbuf)
    source = vector[first : first + size].expand_dim(0).broadcast(0, PARTITIONS)
    nisa.dma_copy(dst=loaded, src=source)
    row = nl.ndarray((PARTITIONS, size), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=row, src=loaded, engine=nisa.engine.gpsimd)
    return row


def segment_columns(cu_seqlens, length):
    """float32 [128, tiles of positions]: the segment of position tile * 128 + partition."""
    starts = load_row(cu_seqlens, 0, cu_seqlens.shape[0])
    tiles = ceil_div(length, PARTITIONS)
    positions = nl.ndarray((PARTITIONS, tiles), dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=positions, pattern=[[PARTITIONS, tiles]], channel_multiplier=1)
    columns = nl.ndarray((PARTITIONS, tiles), dtype=nl.float32, buffer=nl.sbuf)
    reached = nl.ndarray(starts.shape, dtype=nl.float32, buffer=nl.sbuf)
    for tile in range(tiles):
        nisa.tensor_scalar(
            dst=reached,
            data=starts,
            op0=nl.less_equal,
            operand0=positions[:, tile : tile + 1],
        )
        nisa.tensor_reduce(dst=columns[:, tile : tile + 1], op=nl.add, data=reached, axis=1)
    return columns


def segment_row(cu_seqlens, length):
    """float32 [128, length]: the segment of each position, the same on every row.

    The starts lie on partitions; the tensor engine counts those that a position has reached.
    """
    total = cu_seqlens.shape[0]
    chunks = ceil_div(total, PARTITIONS)
    starts = []
    for chunk in range(chunks):
        low = chunk * PARTITIONS
        count = min(PARTITIONS, total - low)
        loaded = nl.ndarray((count, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=cu_seqlens[low : low + count].expand_dim(1))
        column = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=column, src=loaded, engine=nisa.engine.gpsimd)
        starts.append(column)
    ones = nl.ndarray((PARTITIONS, PARTITIONS), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    row = nl.ndarray((PARTITIONS, length), dtype=nl.float32, buffer=nl.sbuf)
    for low in range(0, length, BANK):
        size = min(BANK, length - low)
        positions = nl.ndarray((PARTITIONS, size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=positions, pattern=[[1, size]], offset=low)
        psum = nl.ndarray((PARTITIONS, size), dtype=nl.float32, buffer=nl.psum)
        for chunk in range(chunks):
            count = starts[chunk].shape[0]
            reached = nl.ndarray((count, size), dtype=nl.bfloat16, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=reached,
                data=positions[0:count, :],
                op0=nl.greater_equal,
                operand0=starts[chunk],
            )
            nisa.nc_matmul(
                dst=psum,
                stationary=ones[0:count, :],
                moving=reached,
                accumulate=(chunk > 0),
            )
        nisa.tensor_copy(dst=row[:, low : low + size], src=psum)
    return row
