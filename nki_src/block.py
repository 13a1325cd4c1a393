"""The two halves of a pre-norm block for a group of images, as tasks (see schedule.py).

    `Attention`   norm1 of the rows of the group, queries, keys and values, attention
    `Rest`        projection and residual, norm2, MLP and residual

Tokens of a group are packed: every matmul outside attention sees them as one free axis, so an odd
number of tokens an image costs nothing, and a weight slab is read once a group. `run` of
schedule.py issues `Rest` of one group with `Attention` of another in its background: the first is
bound by the tensor engine, the second by VectorE and ScalarE.

For one group:

1. rows -> norm1 -> columns (norm weight and bias ride on the eviction of the transpose).
   `NormColumns` has four row tiles in flight, each in another step of its norm.
2. for a pass of heads: queries and keys as `Heads`, values as rows, straight from the projection,
   beside the maxima of the first image; `Attend` of attention.py interleaves the images, of which
   short ones share a tile. Output rows stay on the chip; in the last pass `ImageColumns` turns each
   image to columns, images packed, while the next one is computed.
3. for a block of tokens (all of the group if they fit): the residual stream as float32 rows;
   projection, LayerScale and residual add in place -> rows, whose norm2 -> columns follows tile by
   tile; the MLP with its residual add -> rows in the dtype of x. The bias of each waits in the
   residual.
"""

import nki.isa as nisa
import nki.language as nl

from .attention import Attend, Heads, Maxima, head_columns
from .heads import head_shape
from .limits import (
    AS_COLUMNS,
    AS_TURNED_COLUMNS,
    BANK,
    PARTITIONS,
    ceil_div,
    heads_per_chunk,
    queries_kind,
    query_block,
    window_span,
    window_units,
    windows_per_tile,
)
from .mlp import Hidden, MlpVectors, gated_weights, plain_weights
from .norm import FLUSH, NormColumns
from .project import (
    RowsProjection,
    finish_rows,
    first_slab,
    load_weight,
    part_of,
)
from .rotate import Rotation
from .schedule import Part, Together
from .score_bias import BiasUnits
from .tiles import (
    WIDE,
    broadcast_row,
    contract,
    contract_parts,
    dtype_bytes,
    load_columns,
    load_rows,
    psum_parts,
    split_free,
    transpose_rows,
)

# The parameters of a block are a dict of HBM tensors or None, named as the arguments of
# `vit_block`; those of several are stacked, with an axis of layers in front.

# Cycles of the tensor engine that another engine takes for a step of a norm in flight, about: what
# should be issued between two such steps. Chosen by trying a few values in the timing model.
NORM_DELAY = 4000.0


def layer_of(weights, index):
    """The parameters of layer `index`, an int or a register, of stacked ones."""
    layer = {}
    for name in weights.keys():
        layer[name] = None if weights[name] == None else weights[name].select(0, index)
    return layer


def blocks_of(weights, first, count, size):
    """Stacked parameters from layer `first` on, as `count` stacks [size, ...] of which only the
    first layer need exist in the last."""
    blocks = {}
    for name in weights.keys():
        tensor = weights[name]
        if tensor == None:
            blocks[name] = None
        elif first + count * size <= tensor.shape[0]:
            whole = tensor[first : first + count * size]
            blocks[name] = whole.reshape_dim(0, (count, size))
        else:
            blocks[name] = tensor.slice(0, first, first + (count - 1) * size + 1, size).expand_dim(
                1
            )
    return blocks


def stack_of_one(weights):
    """The parameters of one block as those of a stack of one."""
    stack = {}
    for name in weights.keys():
        stack[name] = None if weights[name] == None else weights[name].expand_dim(0)
    return stack


class Options(nl.NKIObject):
    """What the blocks of a launch compute, and what all their layers share: the arguments of
    `vit_block` that are not parameters of one layer."""

    def __init__(
        self,
        num_heads,
        eps,
        norm,
        activation,
        attention_scale,
        inner_norm,
        inner_eps,
        qk_norm,
        qk_eps,
        rope,
        cos,
        sin,
        mask,
        kv_lens,
        cu_seqlens,
    ):
        self.num_heads = num_heads
        self.eps = eps
        self.norm = norm
        self.activation = activation
        self.attention_scale = attention_scale
        self.inner_norm = inner_norm
        self.inner_eps = inner_eps
        self.qk_norm = qk_norm
        self.qk_eps = qk_eps
        self.rope = rope
        self.cos = cos
        self.sin = sin
        self.mask = mask
        self.kv_lens = kv_lens
        self.cu_seqlens = cu_seqlens

    def bias_heads(self):
        """Heads of the score bias, see `limits.block_bytes`."""
        if self.mask != None:
            return self.mask.shape[1]
        return 0 if self.kv_lens == None and self.cu_seqlens == None else 1

    def queries(self, weights, dim):
        """How queries and keys are made, see `limits.queries_kind`."""
        norm = 0
        if self.qk_norm != None:
            norm = 2 if weights["q_norm_weight"].shape[-1] > dim else 1
        rope = 0
        if self.cos != None:
            rope = len(self.cos.shape) - 1
        return queries_kind(norm, rope, dim)

    def mlp(self, weights):
        """`MlpWeights` of a layer."""
        inner = None
        if self.inner_norm != None:
            inner = (
                weights["inner_weight"],
                weights["inner_bias"],
                self.inner_eps,
                self.inner_norm,
            )
        if weights["gate_weight"] == None:
            return plain_weights(
                weights["fc1_weight"],
                weights["fc1_bias"],
                weights["fc2_weight"],
                weights["fc2_bias"],
                self.activation,
                "in_out",
                inner,
            )
        return gated_weights(
            weights["gate_weight"],
            weights["gate_bias"],
            weights["fc1_weight"],
            weights["fc1_bias"],
            weights["fc2_weight"],
            weights["fc2_bias"],
            self.activation,
            "in_out",
            inner,
        )

    def head_shape(self, weights, dim, cos, sin):
        """`HeadShape` of a layer."""
        return head_shape(
            dim,
            weights["q_norm_weight"],
            weights["q_norm_bias"],
            weights["k_norm_weight"],
            weights["k_norm_bias"],
            self.qk_norm,
            self.qk_eps,
            cos,
            sin,
            self.rope,
        )


class AttentionVectors(nl.NKIObject):
    """The vectors of a layer that `Attention` needs, on the chip; None where absent.

    norm_weight, norm_bias: columns [128, chunks] float32 (`tiles.load_columns`); queries, keys: the
    biases of the heads as columns [packed * d, slots], unless these are made as rows; values:
    broadcast row [128, heads * d].
    """

    def __init__(self, weights, form):
        width = weights["qkv_weight"].shape[0]
        embed = form.heads * form.dim
        packed = min(form.heads, heads_per_chunk(form.dim)) * form.dim
        self.norm_weight = load_columns(weights["norm1_weight"], 0, width, PARTITIONS)
        self.norm_bias = load_columns(weights["norm1_bias"], 0, width, PARTITIONS)
        self.queries = None
        self.keys = None
        if not form.as_rows:
            self.queries = load_columns(weights["qkv_bias"], 0, embed, packed)
            self.keys = load_columns(weights["qkv_bias"], embed, embed, packed)
        self.values = broadcast_row(weights["qkv_bias"], 2 * embed, embed)


class RestVectors(nl.NKIObject):
    """The vectors of a layer that `Rest` needs, on the chip; None where absent.

    norm_weight, norm_bias: columns [128, chunks] float32 (`tiles.load_columns`); mlp: `MlpVectors`;
    scale1, scale2: broadcast rows [128, width]; proj_bias, fc2_bias: such rows times their scale,
    which wait for their products in the residual.
    """

    def __init__(self, weights, form):
        width = weights["fc2_weight"].shape[1]
        self.scale1 = broadcast_row(weights["scale1"], 0, width)
        self.proj_bias = scaled_row(weights["proj_bias"], self.scale1)
        self.norm_weight = load_columns(weights["norm2_weight"], 0, width, PARTITIONS)
        self.norm_bias = load_columns(weights["norm2_bias"], 0, width, PARTITIONS)
        self.mlp = MlpVectors(form.options.mlp(weights))
        self.scale2 = broadcast_row(weights["scale2"], 0, width)
        self.fc2_bias = scaled_row(weights["fc2_bias"], self.scale2)


def scaled_row(vector, scale):
    """HBM vector [n] times a broadcast row, or None for 1, as broadcast row [128, n]; None stays
    None."""
    if vector == None:
        return None
    row = broadcast_row(vector, 0, vector.shape[0])
    if scale == None:
        return row
    product = nl.ndarray(row.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(
        dst=product, data1=row, data2=scale, op=nl.multiply, engine=nisa.engine.gpsimd
    )
    return product


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


class Attention(nl.NKIObject):
    """The task from the rows of a group to `group.attended`.

    following: the group whose norm1 is made here too, or None; alone: whether no other task is
    issued with this one. If so that norm is spread over the projections of queries and keys, and
    weights of the next task are fetched during the last pass. Otherwise it is the last stage: it
    keeps VectorE and ScalarE as busy as the projection of `Rest` does, so it goes along with the
    MLP instead.
    """

    def __init__(self, group, weights, vectors, form, following=None, alone=False):
        self.group = group
        self.weights = weights
        self.vectors = vectors
        self.form = form
        self.following = following
        self.alone = alone
        self.stages = 1 + 4 * ceil_div(form.heads, form.heads_pass)
        # Whether norm1 of `following` is the last stage.
        self.norm_last = following != None and not alone
        if self.norm_last:
            self.stages += 1
        self.columns = None
        self.rows = None
        self.queries = None
        self.keys = None
        self.values = None
        self.shape = None
        self.norm = None
        self.biases = None
        self.units = None
        self.maxima = None

    def weight(self, stage):
        """About the cycles of the tensor engine, or what others take instead; the factors here and
        in `Rest` are the best of some that were tried in the timing model."""
        form = self.form
        count = self.group.count
        chunks = ceil_div(self.weights["qkv_weight"].shape[0], PARTITIONS)
        if stage == 0:
            return (0.1 if self.group.normed != None else 4.0) * count * chunks
        if stage == self.stages - 1 and self.norm_last:
            return 4.0 * count * chunks
        part = (stage - 1) % 4
        if part < 3:
            return 1.0 * count * chunks * ceil_div(form.heads_pass * form.dim, PARTITIONS)
        return 5.5 * self.group.own * ceil_div(form.length, PARTITIONS) * form.heads_pass / 2

    def delay(self, stage):
        """Cycles of the tensor engine between two steps."""
        if stage == 0 or (stage == self.stages - 1 and self.norm_last):
            return NORM_DELAY
        return 0.0

    def open(self, stage):
        """The work of a stage."""
        form = self.form
        group = self.group
        if stage == 0:
            # Made first, so that what it leaves free is in one piece when later tiles are gone.
            if group.attended == None:
                group.attended = ImageColumns(group.own, form)
            group.meet()
            return open_norm(group, self.vectors, form)
        if stage == self.stages - 1 and self.norm_last:
            return open_norm(self.following, self.vectors, form)
        first = (stage - 1) // 4 * form.heads_pass
        heads = min(form.heads_pass, form.heads - first)
        part = (stage - 1) % 4
        if part == 0 and first == 0:
            self.take_columns()
        if part < 2:
            work = self.open_heads(part, first, heads)
            if part == 0:
                self.queries = work
            else:
                self.keys = work
            if first == 0 and self.following != None and self.alone:
                if part == 0:
                    self.norm = open_norm(self.following, self.vectors, form)
                return Together(work, Part(self.norm, part, 2))
            return work
        if part == 2:
            self.norm = None
            self.values = self.open_values(first, heads)
            if not form.flight:
                return self.values
            return Together(self.values, self.open_maxima(first, heads))
        if self.alone and form.ring != None and first + heads == form.heads:
            # Nothing else takes parts of the ring until `Rest` does.
            weight = self.weights["proj_weight"]
            group.slab = first_slab(weight, form.ring)
        return self.open_attend(first, heads)

    def take_columns(self):
        """The columns of the norm, which is over."""
        form = self.form
        group = self.group
        self.columns = group.normed.columns
        group.normed = None
        # All rows are read.
        group.meet()
        if form.as_rows:
            batch = group.batch
            self.shape = form.options.head_shape(self.weights, form.dim, batch.cos, batch.sin)
            self.shape.begin(batch.image + group.first // form.length)

    def open_heads(self, part, first, heads):
        """Queries (part 0) or keys (1) of heads [first, first + heads)."""
        form = self.form
        embed = form.heads * form.dim
        weight = self.weights["qkv_weight"]
        if self.shape != None:
            return self.shape.work(
                part,
                self.columns,
                form.length,
                weight,
                self.weights["qkv_bias"],
                first * form.dim,
                embed,
                heads,
                form.dim,
            )
        return HeadsProjection(
            self.columns,
            form.length,
            weight,
            self.vectors.queries if part == 0 else self.vectors.keys,
            first // heads_per_chunk(form.dim),
            part * embed + first * form.dim,
            heads,
            form.dim,
            form.rotation,
        )

    def open_values(self, first, heads):
        """Values of heads [first, first + heads)."""
        form = self.form
        low = first * form.dim
        return ValuesProjection(
            self.columns,
            form.length,
            self.weights["qkv_weight"],
            part_of(self.vectors.values, PARTITIONS, low, low + heads * form.dim),
            2 * form.heads * form.dim + low,
            heads,
            form.dim,
        )

    def open_maxima(self, first, heads):
        """The maxima of the first unit, which need no values."""
        self.units = self.open_units()
        self.biases = self.score_biases(first, heads)
        bias = None if self.biases == None else self.biases.unit(0)
        queries, keys = self.units[0][0:2]
        self.maxima = Maxima(queries, keys, self.form.scale, bias)
        return self.maxima

    def open_units(self):
        """What `Attend` computes one by one, a block of queries of an image or the images that
        share a tile, as (queries, keys, tiles of its rows, tiles of its values): the first two
        `Heads`, the others (first, end)."""
        form = self.form
        length = form.length
        queries = self.queries.result
        keys = self.keys.result
        images = self.group.count // length
        shared = windows_per_tile(length)
        units = []
        if shared > 1:
            for unit in range(window_units(images, length)):
                first = unit * shared
                count = min(shared, images - first)
                tile = (unit, unit + 1)
                units.append(
                    (
                        queries.images(first, count, length),
                        keys.images(first, count, length),
                        tile,
                        tile,
                    )
                )
            return units
        made = ceil_div(form.end - form.begin, PARTITIONS)
        tiles = ceil_div(length, PARTITIONS)
        for image in range(images):
            token = image * length
            for start in range(form.begin, form.end, form.query_block):
                size = min(form.query_block, form.end - start)
                row = image * made + (start - form.begin) // PARTITIONS
                units.append(
                    (
                        queries.tokens(token + start, token + start + size),
                        keys.tokens(token, token + length),
                        (row, row + ceil_div(size, PARTITIONS)),
                        (image * tiles, (image + 1) * tiles),
                    )
                )
        return units

    def score_biases(self, first, heads):
        """The biases of the units for heads [first, first + heads), or None."""
        form = self.form
        batch = self.group.batch
        if batch.source == None:
            return None
        image = batch.image + self.group.first // form.length
        images = self.group.count // form.length
        windows = min(windows_per_tile(form.length), images)
        return BiasUnits(
            batch.source,
            image,
            first,
            heads,
            form.begin,
            form.end,
            form.query_block,
            windows,
            images,
        )

    def open_attend(self, first, heads):
        """Attention of heads [first, first + heads) of all images."""
        form = self.form
        group = self.group
        dim = form.dim
        values = self.values.values
        if self.units == None:
            self.units = self.open_units()
        self.queries = None
        self.keys = None
        self.values = None
        last = first + heads == form.heads
        if last:
            # Gone before the rows come.
            self.columns = None
        if first == 0:
            group.attended.allocate_rows()
        rows = group.attended.rows[:, :, first * dim : (first + heads) * dim]
        rows = rows.reshape_dim(2, (heads, dim))
        units = []
        for queries, keys, made, read in self.units:
            units.append(
                (
                    rows[:, made[0] : made[1], :, :],
                    queries,
                    keys,
                    values[:, read[0] : read[1], :, :],
                )
            )
        self.units = None
        selector = form.selectors[0] if heads == form.heads_pass else form.selectors[1]
        if not form.flight:
            return AttendEach(units, form.scale, selector, self.score_biases(first, heads))
        biases = self.biases
        maxima = self.maxima
        self.biases = None
        self.maxima = None
        then = group.attended if last else None
        return Attend(units, form.scale, selector, then, biases, maxima)


def open_norm(group, vectors, form):
    """The norm of rows from HBM, or what is left of the norm that has been begun before."""
    if group.normed != None:
        return NormWork(group.normed, None)
    if form.flight and group.rows == None:
        group.load()
    group.normed = norm1_columns(group, vectors, form)
    return NormWork(group.normed, group)


def norm1_columns(group, vectors, form):
    """`NormColumns` of the first norm of a layer."""
    return NormColumns(
        group.x.shape[1],
        group.count,
        form.dtype,
        vectors.norm_weight,
        vectors.norm_bias,
        form.eps,
        form.norm,
        form.flight,
    )


class AttendEach(nl.NKIObject):
    """`Attend` of one unit after another, where SBUF has no room for two at a time."""

    def __init__(self, units, scale, selector, biases):
        self.units = units
        self.scale = scale
        self.selector = selector
        self.biases = biases
        self.steps = len(units)

    def step(self, index):
        """Unit `index`."""
        bias = None if self.biases == None else self.biases.unit(index)
        work = Attend([self.units[index]], self.scale, self.selector, None, bias)
        for step in range(work.steps):
            work.step(step)


class Rest(nl.NKIObject):
    """The task from `group.attended` to the rows of the next layer.

    then: an object whose `push` takes the finished row tiles [<= 128, width] in order; None if it
    is enough that they are in `group.rows`.
    """

    def __init__(self, group, weights, vectors, form, then):
        self.group = group
        self.weights = weights
        self.vectors = vectors
        self.form = form
        self.then = then
        self.stages = 4 * ceil_div(group.own, form.block)
        self.attended = None
        self.stream = None
        self.normed = None
        self.columns = None
        self.hidden = None
        self.mlp = form.options.mlp(weights)

    def weight(self, stage):
        """About the cycles of the tensor engine."""
        size = min(self.form.block, self.group.own)
        embed, width = self.weights["proj_weight"].shape
        chunks = ceil_div(width, PARTITIONS)
        part = stage % 4
        if part == 0:
            return 1.3 * size * chunks * ceil_div(embed, PARTITIONS)
        if part == 1:
            return 2000.0
        matrices = 1.0
        if part == 2:
            matrices = 1.15 if self.mlp.gate == None else 2.3
        return matrices * size * chunks * ceil_div(self.mlp.hidden, PARTITIONS)

    def delay(self, stage):
        """Cycles of the tensor engine between two steps."""
        return NORM_DELAY if stage % 4 == 1 else 0.0

    def open(self, stage):
        """The work of a stage."""
        form = self.form
        group = self.group
        start = stage // 4 * form.block
        size = min(form.block, group.own - start)
        part = stage % 4
        if part == 0:
            return self.open_projection(start, size)
        if part == 1:
            return NormWork(self.normed, None)
        if part == 2:
            self.columns = self.normed.columns
            self.normed = None
            self.hidden = Hidden(self.mlp, self.vectors.mlp, self.columns, form.flight, form.ring)
            return self.hidden.work
        self.columns = None
        return self.open_output(start, size)

    def open_projection(self, start, size):
        """Projection and residual of tokens [start, start + size) of those that are made, pushed
        into norm2."""
        form = self.form
        group = self.group
        weights = self.weights
        if self.attended == None:
            self.attended = group.attended.finish()
            if not group.lasting:
                group.attended = None
        vectors = self.vectors
        self.stream = residual_rows(group, group.begin + start, size, vectors.proj_bias)
        width = self.stream.shape[2]
        self.normed = NormColumns(
            width,
            size,
            form.dtype,
            vectors.norm_weight,
            vectors.norm_bias,
            form.eps,
            form.norm,
            form.flight,
            vectors.fc2_bias,
        )
        slab = group.slab
        group.slab = None
        return RowsProjection(
            self.stream,
            self.attended[:, :, start : start + size],
            weights["proj_weight"].shape[0],
            weights["proj_weight"],
            "in_out",
            None,
            vectors.scale1,
            self.stream,
            self.normed,
            form.ring,
            slab,
        )

    def open_output(self, start, size):
        """Second matmul of the MLP and residual, pushed to `then`."""
        form = self.form
        group = self.group
        weights = self.weights
        last = start + size == group.own
        if last:
            self.attended = None
        hidden = self.hidden.finish()
        stream = self.stream
        self.hidden = None
        self.stream = None
        if group.rows == None:
            result = nl.ndarray(stream.shape, dtype=form.dtype, buffer=nl.sbuf)
        else:
            first = (group.begin + start) // PARTITIONS
            result = group.rows[:, first : first + stream.shape[1], :]
            if last and self.then != None and self.then.leaves:
                group.rows = None
        if last and group.rows == None:
            # The next layer reads what this one writes.
            group.read_out()
        return RowsProjection(
            result,
            hidden,
            weights["fc2_weight"].shape[0],
            weights["fc2_weight"],
            "in_out",
            None,
            self.vectors.scale2,
            stream,
            self.then,
            form.ring,
        )


class Store(nl.NKIObject):
    """Takes row tiles in order and stores them to HBM rows of out [tokens, width] from `first`."""

    def __init__(self, out, first):
        self.out = out
        self.next = first
        # Whether the rows are not wanted on the chip any more.
        self.leaves = True

    def push(self, rows):
        """The next tile."""
        last = self.next + rows.shape[0]
        nisa.dma_copy(dst=self.out[self.next : last, :], src=rows)
        self.next = last

    def tick(self):
        """Nothing is in flight."""


class Feed(nl.NKIObject):
    """Takes row tiles in order and pushes them into the first norm of the group's next layer."""

    def __init__(self, group, vectors, form):
        self.group = group
        self.vectors = vectors
        self.form = form
        self.leaves = False

    def push(self, rows):
        """The next tile."""
        if self.group.normed == None:
            self.group.normed = norm1_columns(self.group, self.vectors, self.form)
        self.group.normed.push(rows)

    def tick(self):
        """Time for a step of the tiles in flight."""
        if self.group.normed != None:
            self.group.normed.tick()


class NormWork(nl.NKIObject):
    """Pushes the rows of a group, or nothing if it is None, into a `NormColumns`, then ends it."""

    def __init__(self, normed, group):
        self.normed = normed
        self.group = group
        self.tiles = 0 if group == None else ceil_div(group.count, PARTITIONS)
        self.steps = self.tiles + FLUSH

    def step(self, index):
        """A tile, or one of the steps that end the last ones."""
        if index < self.tiles:
            self.normed.push(self.group.tile(index))
        else:
            self.normed.advance(None)


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
    column ones; images that share a tile each begin a span of it (attention.py).

    Arguments as `HeadsProjection`; length: tokens of an image; bias: broadcast row of these heads
    or None. A step is a tile of tokens and as
    many heads as share a PSUM bank.
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
