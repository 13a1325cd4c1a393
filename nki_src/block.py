"""The two halves of a pre-norm block for a group of images, as tasks (see schedule.py).

    `Attention`   norm1 of the rows of the group, queries, keys and values, attention
    `Rest`        projection and residual, norm2, MLP and residual

Tokens of a group are packed: every matmul outside attention sees them as one free axis, so an odd
number of tokens an image costs nothing, and a weight slab is read once a group. `run` of
schedule.py issues `Rest` of one group with `Attention` of another in its background: the first is
bound by the tensor engine, the second by VectorE and ScalarE.

For one group:

1. rows -> norm1 -> columns (norm weight and bias ride on the eviction of the transpose).
   `NormColumns` has several row tiles in flight, each in another step of its norm.
2. for a pass of heads: queries and keys as `Heads`, values as rows, straight from the projection,
   beside the maxima of the first image; `Attend` of attend.py interleaves the images, of which
   short ones share a tile. Output rows stay on the chip; in the last pass `ImageColumns` turns each
   image to columns, images packed, while the next one is computed.
3. for a block of tokens (all of the group if they fit): the residual stream as float32 rows;
   projection, LayerScale and residual add in place -> rows, whose norm2 -> columns follows tile by
   tile; the MLP with its residual add -> rows in the dtype of x. The bias of each waits in the
   residual.
"""

import nki.language as nl

from .attend import Attend, Maxima
from .group import residual_rows
from .image_columns import ImageColumns
from .limits import PARTITIONS, ceil_div, heads_per_chunk, window_units, windows_per_tile
from .mlp import Hidden
from .norm import FLUSH, NormColumns
from .project import RowsProjection, first_slab, part_of
from .qkv import HeadsProjection, ValuesProjection
from .schedule import Part, Together
from .score_bias import BiasUnits

# Cycles of the tensor engine that another engine takes for a step of a norm in flight, about: what
# should be issued between two such steps. Chosen by trying a few values in the timing model.
NORM_DELAY = 4000.0


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

    then: an object whose `push` takes the finished row tiles [<= 128, width] in order, whose `tick`
    is called in between, and whose `leaves` says that `group.rows` are not wanted any more; None if
    it is enough that the rows are there.
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
