"""Attention on the chip, softmax(scale * Q K^T) V, for some heads of some images: the part that the
operator (attention.py) and the blocks (block.py) share.

Layout, for one image and a pass of heads (d = head size):

    queries, keys   `Heads`  [packed * d, slots, tokens]       `packed` heads on 128 partitions
    values          rows     [128, key tiles, heads, d + 1]    last column is ones
    numerators      P^T      [128 keys, key tiles, heads, queries]
    output          rows     [128 queries, query tiles, heads, d]

A head size that is a multiple of 32 puts 128 // d heads on the partitions (two of 64). Their
products with d contraction rows are row tiles of the tensor engine, which it works on side by side.

1. `Maxima`. Scores with queries on partitions, `Q K^T`, reduced by VectorE straight from PSUM.
2. `Numerators`. Scores with keys on partitions, `K Q^T`, are already the stationary operand of the
   product with V, so P is never transposed. A query's maximum then lies along the free axis, where
   no engine can subtract it for free; the tensor engine does: two more rows a head are contracted
   into the same PSUM group (see `Maxima.shift`), for four heads side by side, in row tiles of 32.
   ScalarE evicts exp(scale * x).
3. `Weighted`. The column of ones makes the denominators one more output column; VectorE inverts
   them, and ScalarE multiplies while it evicts, since VectorE is the busier of the two.

The steps of a unit (an image, or a block of its queries) wait for each other, so `Attend` issues
the numerators of some heads together with the weighted values of the heads before and the maxima
of the next unit: the tensor engine always has work whose operands are ready.

A bias, a mask, key lengths or segments are added by the tensor engine, into the PSUM groups of 1
and of 2 (score_bias.py); without one, nothing of that is issued.

Keys beyond the sequence never exist: the last tile is short, no mask is involved, and whatever
lies behind the tensor in HBM is not read. The maximum is exact; logits up to 1e6 are safe in every
dtype (scores before scaling up to 1e8 in float16). A query that is NaN or infinite makes its
position NaN, and such a key every position, not only in its own head h but in all heads of the pass
with the same h % SHIFT_TILES.

Short images share a tile in the block kernels, two of up to 64 tokens, four of up to 32
(`limits.windows_per_tile`): one after the other in the columns of `Heads`, on the partitions
each begins a span of 64 or 32 (what is behind its tokens there means nothing), and the free axis of
the scores has the tokens of one image. So nothing is masked, VectorE and ScalarE work on all of
them at once, and no image meets values of another, finite or not. The results of a product begin at
partition 0, whatever its image: a later image's stationary operand has columns for the images in
front as well, whose results the products of these, issued later, overwrite (`Heads.stationary`,
`staggered`). Each image is, to the bit, what it is alone. In the operator each has its own tiles.

Tensor engine cycles a head for S queries and keys: about 2 S / packed (maxima, scores) and S / 4
(shift) a tile of 128 keys plus (d + 1) a tile pair, and with a bias 2 S more a tile of keys, twice
that where 1 / scale needs two identities. ScalarE evicts S^2 / 128 numerators a head, VectorE
reduces as many scores. SBUF: `limits.attention_bytes`.
"""

import nki.isa as nisa
import nki.language as nl

from .limits import (
    BANK,
    PARTITIONS,
    SHIFT_TILES,
    ceil_div,
    heads_per_chunk,
    scores_heads,
    spare_tokens,
    window_span,
)
from .schedule import Together
from .tiles import dtype_bytes

# The shift of a query is split in two values of the operand dtype, SHIFT_STEP * high + low: the
# pair holds a float32 maximum to 2^-16 of itself in bfloat16, and both stay in the range of float16
# for any score, before scaling, below 1e8. A power of two, so float32 loses nothing. Our choice.
SHIFT_STEP = 4096.0

# Steps of `Maxima` without work before its results are turned: other work goes on while VectorE
# finishes. Our choice.
TURN_DELAY = 4

# Denominators of rows without a key are raised to this, so that their inverse is finite; all others
# are at least about 1. Our choice.
SMALLEST_SUM = 1e-30


class Attend(nl.NKIObject):
    """Attention of some units: an image each, or a block of its queries that fits a PSUM bank, or
    images that share a tile.

    units: list of (dst, queries, keys, values). dst: SBUF rows [128, query tiles, heads, d];
    queries, keys: `Heads` of Sq <= 512 and Sk tokens; values: rows [128, key tiles, heads, d + 1]
    with ones in the last column. All units have the same heads. scale: float; selector:
    `shift_selector` of as many heads. then: None, or an object whose `push` is called with the
    index of each unit, in order, some time after its last result has been issued. biases: None, or
    an object whose `unit` takes the index of a unit and gives its `ScoreBias`: a `ScoreBias` that
    all share, or `BiasUnits`. It is asked once a unit, in order; two units' exist at a time. first:
    the `Maxima` of the first unit, if they have been issued before; they have asked for its bias.

    `Numerators` of a step of heads go along with `Weighted` of the step before, and all of a unit
    with `Maxima` of the next one.
    """

    def __init__(self, units, scale, selector, then, biases=None, first=None):
        self.units = units
        self.biases = biases
        self.scale = scale
        self.selector = selector
        self.then = then
        self.unit = -1
        self.last = units[0][1].heads
        self.bias = None
        # The maxima of the next unit: those that are being issued here, and those to use next.
        self.prepared = first
        if first == None:
            bias = None if biases == None else biases.unit(0)
            self.prepared = Maxima(units[0][1], units[0][2], scale, bias)
        self.next_bias = self.prepared.bias
        self.following = None
        self.shift = None
        self.previous = None
        self.current = Together(self.prepared, None)
        self.position = 0
        self.pending = -1
        # Steps of the unit, those of them that are issued, and those of `following`.
        self.total = self.prepared.steps
        self.issued = 0
        self.followed = 0
        self.steps = 0
        if first == None:
            self.steps = self.prepared.steps
        else:
            self.position = self.prepared.steps
        for unit in units:
            heads = unit[1].heads
            step = unit[1].scores_heads(unit[2])
            last = 0
            for low in range(0, heads, step):
                last = min(step, heads - low)
                self.steps += numerator_steps(unit, last)
        self.steps += weighted_steps(units[-1], last)

    def step(self, index):
        """Step `index` of `steps`."""
        if self.position == self.current.steps:
            self.advance()
        self.current.step(self.position)
        self.position += 1
        self.issued += 1
        if self.following != None:
            self.follow()
        # Half a unit later, when the last evictions of the unit are over.
        if self.pending >= 0 and 2 * self.position >= self.current.steps:
            if self.then != None:
                self.then.push(self.pending)
            self.pending = -1
        if index == self.steps - 1 and self.then != None:
            self.then.push(len(self.units) - 1)

    def advance(self):
        """The next heads of the unit, or the first ones of the next unit."""
        self.position = 0
        # What it holds ends before the next tiles are made.
        self.current = None
        heads = self.units[0][1].heads
        if self.last == heads:
            self.unit += 1
            self.last = 0
            if self.prepared != None:
                self.shift = self.prepared.shift
                self.prepared = None
                self.following = None
                self.bias = self.next_bias
                self.next_bias = None
            self.pending = self.unit - 2
        if self.unit == len(self.units):
            self.current = Together(self.previous, None)
        else:
            self.open_heads()

    def open_heads(self):
        """The next heads of the current unit."""
        unit = self.units[self.unit]
        heads = unit[1].heads
        first = self.last
        self.last = min(first + unit[1].scores_heads(unit[2]), heads)
        if first == 0:
            self.open_following()
        bias = self.bias
        numerators = Numerators(unit, self.shift, self.selector, first, self.last, self.scale, bias)
        self.current = Together(numerators, self.previous)
        self.previous = Weighted(unit, numerators.values, first, self.last, bias != None)

    def open_following(self):
        """The maxima of the next unit, whose steps are spread over those of this one."""
        unit = self.units[self.unit]
        heads = unit[1].heads
        step = unit[1].scores_heads(unit[2])
        self.total = 0
        for first in range(0, heads, step):
            self.total += numerator_steps(unit, min(step, heads - first))
        self.issued = 0
        self.followed = 0
        following = self.unit + 1
        if following < len(self.units):
            if self.biases != None:
                self.next_bias = self.biases.unit(following)
            queries, keys = self.units[following][1], self.units[following][2]
            self.following = Maxima(queries, keys, self.scale, self.next_bias)
            self.prepared = self.following

    def follow(self):
        """The steps of `following` that are due."""
        target = self.issued * self.following.steps // self.total
        for step in range(self.followed, target):
            self.following.step(step)
        self.followed = target


class Heads(nl.NKIObject):
    """Queries or keys of some heads as columns, several heads side by side on the partitions.

    columns: SBUF [packed * d, slots, tokens]; head h is at partitions (h % packed) * d and slot
    h // packed. Heads on different partitions use different rows of the tensor engine, which
    multiplies them side by side.

    windows: images whose tokens follow each other here and that share tiles of attention, of
    `size` tokens each; behind the last are as many columns as its span is longer.
    """

    def __init__(self, columns, heads, dim, windows=1, size=0):
        self.columns = columns
        self.heads = heads
        self.dim = dim
        self.packed = heads_per_chunk(dim)
        self.windows = windows
        self.size = columns.shape[2] if windows == 1 else size
        # Columns of the tensor engine, and so partitions of PSUM, from one image to the next.
        self.span = window_span(self.size) if windows > 1 else 0

    def tokens(self, low, high):
        """The same heads of tokens [low, high)."""
        return Heads(self.columns[:, :, low:high], self.heads, self.dim)

    def images(self, first, count, length):
        """The same heads of `count` images of `length` tokens from image `first` on."""
        low = first * length
        if count == 1:
            return self.tokens(low, low + length)
        high = low + (count - 1) * length + window_span(length)
        return Heads(self.columns[:, :, low:high], self.heads, self.dim, count, length)

    def head(self, index, window=0):
        """Columns [d, tokens] of one head, of one image."""
        base = index % self.packed * self.dim
        low = window * self.size
        return self.columns[base : base + self.dim, index // self.packed, low : low + self.size]

    def stationary(self, index, window, low, count):
        """The operand [d, rows] that leaves the products of `count` tokens of an image, from `low`
        on, in PSUM. Images that share a tile: rows of image `window` and, in front of them, others
        that mean nothing (see `Maxima`)."""
        if self.windows == 1:
            return self.head(index)[:, low : low + count]
        base = index % self.packed * self.dim
        first = window * self.size
        columns = self.columns[
            base : base + self.dim, index // self.packed, first : first + self.span
        ]
        return columns.expand_dim(1).broadcast(1, window + 1)

    def reach(self, window, count):
        """Partitions of PSUM that `stationary` writes."""
        return count if self.windows == 1 else (window + 1) * self.span

    def length(self):
        """Number of tokens of an image."""
        return self.size

    def scores_heads(self, keys):
        """Heads whose numerators are kept at a time, for these queries."""
        item = dtype_bytes(self.columns.dtype)
        return scores_heads(self.heads, self.length(), keys.length(), item)


def head_columns(values, slots, images, length, dtype):
    """SBUF [values, slots, tokens] for the columns of `Heads` of some images, with columns behind
    the last one if images share tiles of attention (`limits.spare_tokens`)."""
    total = images * length
    spare = spare_tokens(images, length)
    columns = nl.ndarray((values, slots, total + spare), dtype=dtype, buffer=nl.sbuf)
    if spare > 0:
        nisa.memset(dst=columns[:, :, total : total + spare], value=0.0, engine=nisa.engine.gpsimd)
    return columns


def row_tile(packed, dim, index):
    """Where the tensor engine takes head `index`: (tile_position, tile_size) of nc_matmul."""
    if packed == 1:
        return (), ()
    return (index % packed * dim, 0), (dim, PARTITIONS)


def shift_selectors(heads, step, dtype):
    """The selectors of a full pass of `step` heads and of the last, shorter one (or None).

    Made once, before anything else is on the chip: they outlive every other tile.
    """
    full = None
    last = None
    if heads >= step:
        full = shift_selector(step, dtype)
    if heads % step > 0:
        last = shift_selector(heads % step, dtype)
    return full, last


def shift_selector(heads, dtype):
    """[128, SHIFT_TILES, slots]: the column of a head holds SHIFT_STEP in the row of its high part
    and 1 in the row of its low part, else 0 (see `Maxima.shift`).

    A column, repeated along the free axis, is the stationary operand that adds
    SHIFT_STEP * high + low of its head, and nothing of the other heads, to every key.
    """
    slots = ceil_div(heads, SHIFT_TILES)
    identity = nl.shared_identity_matrix(PARTITIONS, dtype=dtype)
    identity = identity.reshape_dim(1, (SHIFT_TILES, PARTITIONS // SHIFT_TILES))
    selector = nl.ndarray((PARTITIONS, SHIFT_TILES, slots), dtype=dtype, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=selector,
        data=identity[:, :, 0:slots],
        op0=nl.multiply,
        operand0=SHIFT_STEP,
        op1=nl.add,
        operand1=identity[:, :, slots : 2 * slots],
    )
    return selector


class Maxima(nl.NKIObject):
    """Row maxima of a unit: the largest score of each query, which is subtracted in the exponent.

    queries, keys: `Heads` of the unit.

    A step reduces the scores of one tile of queries with at most 512 keys, and of as many heads as
    share a PSUM bank. The scores are not scaled yet, so for a negative scale it is the smallest
    that is wanted. Of images that share a tile each has its rows, and the rest of its span is the
    score of something else.

    bias: the `ScoreBias` of the unit, or None.
    partial: for each tile of queries, SBUF float32 [queries, slots * SHIFT_TILES, blocks of keys];
    shift: minus the maxima, when all steps are done: rows [128, Sq], of which each quarter is a row
    tile of the tensor engine; that with number h % SHIFT_TILES begins with the high parts of its
    heads h, one a slot, and goes on with as many low parts.
    """

    def __init__(self, queries, keys, scale, bias):
        self.bias = bias
        self.queries = queries
        self.keys = keys
        self.extreme = nl.maximum if scale >= 0.0 else nl.minimum
        self.blocks = ceil_div(keys.length(), BANK)
        self.shared = max(1, BANK // keys.length())
        self.groups = ceil_div(queries.heads, self.shared)
        self.tiles = ceil_div(queries.length(), PARTITIONS)
        self.reduced = self.tiles * self.blocks * self.groups
        # The tensor engine turns the maxima of a tile some steps after VectorE has split them.
        self.steps = self.reduced + self.tiles + TURN_DELAY
        self.pairs = []
        self.shift = nl.ndarray(
            (PARTITIONS, queries.reach(queries.windows - 1, queries.length())),
            dtype=queries.columns.dtype,
            buffer=nl.sbuf,
        )
        self.slots = ceil_div(queries.heads, SHIFT_TILES)
        self.columns = self.slots * SHIFT_TILES
        self.partial = []
        for tile in range(self.tiles):
            count = min(PARTITIONS, self.shift.shape[1] - tile * PARTITIONS)
            partial = nl.ndarray(
                (count, self.columns, self.blocks), dtype=nl.float32, buffer=nl.sbuf
            )
            if queries.heads < self.columns:
                nisa.memset(dst=partial[:, queries.heads : self.columns, :], value=0.0)
            self.partial.append(partial)

    def step(self, index):
        """Step `index` of `steps`."""
        if index < self.reduced:
            self.reduce(index)
            if (index + 1) % (self.blocks * self.groups) == 0:
                self.split(index // (self.blocks * self.groups))
        elif index >= self.reduced + TURN_DELAY:
            self.turn(index - self.reduced - TURN_DELAY)

    def reduce(self, index):
        """The maxima of one tile of queries, one block of keys, and heads that share a bank."""
        tile = index // (self.blocks * self.groups)
        block = index // self.groups % self.blocks
        first = index % self.groups * self.shared
        queries = self.queries
        last = min(first + self.shared, queries.heads)
        low = block * BANK
        high = min(low + BANK, self.keys.length())
        partial = self.partial[tile]
        count = partial.shape[0]
        psum = nl.ndarray((count, last - first, high - low), dtype=nl.float32, buffer=nl.psum)
        for part in staggered(first, last, queries.windows):
            for start, stop, window in part:
                reach = queries.reach(window, count)
                for head in range(start, stop):
                    position, size = row_tile(queries.packed, queries.dim, head)
                    nisa.nc_matmul(
                        dst=psum[0:reach, head - first, :],
                        stationary=queries.stationary(head, window, tile * PARTITIONS, count),
                        moving=self.keys.head(head, window)[:, low:high],
                        accumulate=False,
                        tile_position=position,
                        tile_size=size,
                    )
            if self.bias != None:
                for start, stop, window in part:
                    target = psum[0 : queries.reach(window, count), start - first : stop - first, :]
                    self.bias.add_rows(target, start, tile, low, window)
        nisa.tensor_reduce(dst=partial[:, first:last, block], op=self.extreme, data=psum, axis=2)

    def largest(self, tile):
        """float32 [queries, slots * SHIFT_TILES] of one tile, a column a head."""
        partial = self.partial[tile]
        if self.blocks == 1:
            largest = partial[:, :, 0]
        else:
            largest = nl.ndarray((partial.shape[0], self.columns), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=largest, op=self.extreme, data=partial, axis=2)
        if self.bias == None:
            return largest
        return self.bias.bounded(largest)

    def split(self, tile):
        """Minus the maxima of a tile as pairs of the operand dtype, a column a row of `shift`."""
        slots = self.slots
        rows = PARTITIONS // SHIFT_TILES
        maxima = self.largest(tile).reshape_dim(1, (slots, SHIFT_TILES))
        pair = nl.ndarray(
            (maxima.shape[0], SHIFT_TILES, rows), dtype=self.shift.dtype, buffer=nl.sbuf
        )
        if 2 * slots < rows:
            nisa.memset(dst=pair, value=0.0, engine=nisa.engine.gpsimd)
        high = pair[:, :, 0:slots].permute((0, 2, 1))
        nisa.tensor_scalar(dst=high, data=maxima, op0=nl.multiply, operand0=-1.0 / SHIFT_STEP)
        nisa.scalar_tensor_tensor(
            dst=pair[:, :, slots : 2 * slots].permute((0, 2, 1)),
            data=high,
            op0=nl.multiply,
            operand0=-SHIFT_STEP,
            op1=nl.subtract,
            operand1=maxima,
        )
        self.pairs.append(pair)

    def turn(self, tile):
        """The pairs of a tile as rows of `shift`."""
        pair = self.pairs[tile]
        low = tile * PARTITIONS
        psum = nl.ndarray(
            (self.shift.shape[0], pair.shape[0]), dtype=self.shift.dtype, buffer=nl.psum
        )
        nisa.nc_transpose(dst=psum, data=pair)
        nisa.tensor_copy(
            dst=self.shift[:, low : low + pair.shape[0]], src=psum, engine=nisa.engine.scalar
        )


class Numerators(nl.NKIObject):
    """exp(scale * (score - largest)) of heads [first, last) of a unit, keys on partitions.

    unit: see `Attend`; shift, selector: of all its heads (`Maxima.shift`, `shift_selector`).
    bias: the `ScoreBias` of the unit, or None.
    values: SBUF [128 keys, key tiles, heads, Sq]. A step does one tile of keys and as many heads
    as share a PSUM bank, but their shifts wait for those of the next one, to go along with them.
    """

    def __init__(self, unit, shift, selector, first, last, scale, bias):
        _, queries, keys, _ = unit
        self.bias = bias
        self.queries = queries
        self.keys = keys
        self.shift = shift
        self.selector = selector
        self.first = first
        self.last = last
        self.scale = scale
        self.shared = max(1, BANK // queries.length())
        self.groups = ceil_div(last - first, self.shared)
        tiles = ceil_div(keys.length(), PARTITIONS)
        self.steps = numerator_steps(unit, last - first)
        # (first head, PSUM scores [keys, heads, Sq]) of those whose maxima are still in them.
        self.open = []
        # Heads that are only there for `Heads.stationary` of the last one to end in.
        spare = 0
        if queries.windows > 1:
            spare = ceil_div(queries.span - queries.length(), queries.length())
        self.values = nl.ndarray(
            (PARTITIONS, tiles, last - first + spare, queries.length()),
            dtype=queries.columns.dtype,
            buffer=nl.sbuf,
        )
        if spare > 0:
            nisa.memset(
                dst=self.values[:, :, last - first :, :], value=0.0, engine=nisa.engine.gpsimd
            )

    def step(self, index):
        """Step `index` of `steps`."""
        queries = self.queries
        tile = index // self.groups
        group = index % self.groups
        start = self.first + group * self.shared
        stop = min(start + self.shared, self.last)
        low = tile * PARTITIONS
        count = min(PARTITIONS, self.keys.length() - low)
        rows = self.keys.reach(self.keys.windows - 1, count)
        psum = nl.ndarray((rows, stop - start, queries.length()), dtype=nl.float32, buffer=nl.psum)
        self.open.append((start, psum))
        for part in staggered(start, stop, queries.windows):
            for first, last, window in part:
                reach = self.keys.reach(window, count)
                for head in range(first, last):
                    position, size = row_tile(queries.packed, queries.dim, head)
                    nisa.nc_matmul(
                        dst=psum[0:reach, head - start, :],
                        stationary=self.keys.stationary(head, window, low, count),
                        moving=queries.head(head, window),
                        accumulate=False,
                        tile_position=position,
                        tile_size=size,
                    )
            if self.bias != None:
                for head, window in by_turns(part):
                    reach = self.keys.reach(window, count)
                    self.bias.add_columns(psum[0:reach, head - start, :], head, low, window)
            for first, last, window in part:
                # Complete before the next image overwrites its rows.
                if window > 0:
                    reach = self.keys.reach(window, count)
                    for head in range(first, last):
                        self.subtract(psum[0:reach, head - start, :], head, window)
        if group % 2 == 1 or group == self.groups - 1:
            self.finish(tile)

    def finish(self, tile):
        """The numerators of the open scores, which are of keys of `tile`."""
        for start, psum in self.open:
            reach = self.keys.reach(0, psum.shape[0])
            for head in range(psum.shape[1]):
                self.subtract(psum[0:reach, head, :], start + head, 0)
        for start, psum in self.open:
            count, heads, _ = psum.shape
            low = start - self.first
            nisa.activation(
                dst=self.values[0:count, tile, low : low + heads, :],
                op=nl.exp,
                data=psum,
                scale=self.scale,
            )
        self.open = []

    def subtract(self, scores, head, window):
        """The maxima of a head and an image from its scores, PSUM [keys, Sq]."""
        rows = PARTITIONS // SHIFT_TILES
        low = window * self.queries.span
        base = head % SHIFT_TILES * rows
        used = slice(base, base + 2 * self.selector.shape[2])
        column = self.selector[used, head % SHIFT_TILES, head // SHIFT_TILES]
        nisa.nc_matmul(
            dst=scores,
            stationary=column.broadcast(1, scores.shape[0]),
            moving=self.shift[used, low : low + self.queries.length()],
            accumulate=True,
            tile_position=(base, 0),
            tile_size=(rows, PARTITIONS),
        )


def numerator_steps(unit, heads):
    """Steps of `Numerators` of some heads of a unit."""
    queries, keys = unit[1], unit[2]
    shared = max(1, BANK // queries.length())
    return ceil_div(keys.length(), PARTITIONS) * ceil_div(heads, shared)


def weighted_steps(unit, heads):
    """Steps of `Weighted` of some heads of a unit."""
    queries = unit[1]
    return ceil_div(queries.length(), PARTITIONS) * ceil_div(heads, BANK // (queries.dim + 1))


class Weighted(nl.NKIObject):
    """dst[q, h, :] = sum_k P[q, k] V[k, :] / sum_k P[q, k] for heads [first, last) of a unit.

    numerators: P^T of these heads, `Numerators.values`. masked: whether a row of them may be zero,
    and its result with it. A step does one tile of queries and as many heads as share a PSUM bank.
    """

    def __init__(self, unit, numerators, first, last, masked):
        dst, queries, keys, values = unit
        self.masked = masked
        self.dst = dst
        self.values = values
        self.numerators = numerators
        self.first = first
        self.last = last
        self.queries = queries
        self.q_len = queries.length()
        self.k_len = keys.length()
        self.dim = queries.dim
        self.shared = BANK // (self.dim + 1)
        self.groups = ceil_div(last - first, self.shared)
        self.steps = weighted_steps(unit, last - first)

    def step(self, index):
        """Step `index` of `steps`."""
        tile = index // self.groups
        start = self.first + index % self.groups * self.shared
        stop = min(start + self.shared, self.last)
        low = tile * PARTITIONS
        count = min(PARTITIONS, self.q_len - low)
        dim = self.dim
        windows = self.queries.windows
        count = self.queries.reach(windows - 1, count)
        psum = nl.ndarray((count, stop - start, dim + 1), dtype=nl.float32, buffer=nl.psum)
        if windows > 1:
            self.multiply_windows(psum, start, stop)
        else:
            self.multiply(psum, start, stop, low)
        inverse = nl.ndarray((count, stop - start, 1), dtype=nl.float32, buffer=nl.sbuf)
        sums = psum[:, :, dim : dim + 1]
        if self.masked:
            sums = nl.ndarray(inverse.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=sums, data=psum[:, :, dim : dim + 1], op0=nl.maximum, operand0=SMALLEST_SUM
            )
        nisa.reciprocal(dst=inverse, data=sums)
        # On ScalarE, because VectorE is busy with the maxima of the next unit.
        for head in range(start, stop):
            nisa.activation(
                dst=self.dst[0:count, tile, head, :],
                op=nl.copy,
                data=psum[:, head - start, 0:dim],
                scale=inverse[:, head - start, :],
            )

    def multiply(self, psum, start, stop, low):
        """Products of heads [start, stop) and the queries from `low` on with all keys."""
        count = psum.shape[0]
        for head in range(start, stop):
            for block in range(ceil_div(self.k_len, PARTITIONS)):
                size = min(PARTITIONS, self.k_len - block * PARTITIONS)
                nisa.nc_matmul(
                    dst=psum[:, head - start, :],
                    stationary=self.numerators[0:size, block, head - self.first, low : low + count],
                    moving=self.values[0:size, block, head, :],
                    accumulate=(block > 0),
                )

    def multiply_windows(self, psum, start, stop):
        """Products of heads [start, stop) of images that share a tile. The images of neighbouring
        products differ, so that the tensor engine works on them side by side."""
        span = self.queries.span
        numerators = self.numerators[:, 0, :, :].flatten_dims(1, 2)
        for part in staggered(start, stop, self.queries.windows):
            for head, window in by_turns(part):
                base = window * span
                low = (head - self.first) * self.q_len
                columns = numerators[base : base + self.k_len, low : low + span]
                nisa.nc_matmul(
                    dst=psum[0 : base + span, head - start, :],
                    stationary=columns.expand_dim(1).broadcast(1, window + 1),
                    moving=self.values[base : base + self.k_len, 0, head, :],
                    accumulate=False,
                    tile_position=(base, 0),
                    tile_size=(span, PARTITIONS),
                )


def staggered(start, stop, windows):
    """Lists of (first head, last, window), which together are heads [start, stop) of all images of
    a tile, the later images of some heads before the earlier ones. What is in one list is of other
    heads and images each, so the tensor engine works on it side by side."""
    if windows == 1:
        return [[(start, stop, 0)]]
    steps = ceil_div(stop - start, SHIFT_TILES)
    parts = []
    for late in range(steps + windows - 1):
        part = []
        for window in range(windows - 1, -1, -1):
            step = late - (windows - 1 - window)
            if step >= 0 and step < steps:
                first = start + step * SHIFT_TILES
                part.append((first, min(first + SHIFT_TILES, stop), window))
        parts.append(part)
    return parts


def by_turns(part):
    """(head, window) of a list of `staggered`, a head of each window by turns."""
    pairs = []
    most = 0
    for first, last, _ in part:
        most = max(most, last - first)
    for index in range(most):
        for first, last, window in part:
            if first + index < last:
                pairs.append((first + index, window))
    return pairs
