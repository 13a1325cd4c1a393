"""Blocks one after another for a batch of images: what `vit_block` and `vit_encoder` launch.

A chunk of images, two groups at a time, passes through all layers before the next chunk begins, so
its rows stay on the chip from layer to layer while they fit (`Form.keeps`); otherwise they go
through the output in HBM. `Rest` of one group is issued with `Attention` of the group that
follows it, also across layers.

Two programs (LNC 2) share the images of the batch. One image alone, of more than a row tile, they
share by row tiles: both read all rows and make all keys and values, each does the rest for its own
tokens and writes their rows. From the second layer on both read the rows in the output, and meet
twice a layer: when all rows are written, and when all are read.

Instructions: everything is unrolled while that stays below `limits.INSTRUCTIONS_MAX`. Above it the
layers become a loop on the device, with as many of them in an iteration as keep the launch below
it, and the chunks another one. One layer of a chunk is the least that a launch unrolls, twice for
the layers left after the loop, and again for a last shorter chunk: four times
`limits.block_instructions`, whatever the depth and the batch.
"""

import nki.language as nl

from .attend import shift_selectors
from .block import Attention, Feed, Rest
from .group import Batch, Form, Group
from .image_columns import ImageColumns
from .limits import (
    INSTRUCTIONS_MAX,
    PARTITIONS,
    block_instructions,
    ceil_div,
    ring_slots,
    vit_block_plan,
)
from .parameters import AttentionVectors, RestVectors, blocks_of, layer_of, layers_of
from .project import WeightRing
from .schedule import run
from .score_bias import bias_source
from .tiles import available_bytes, dtype_bytes, program_share


def encode(x, weights, layers, options):
    """x [B, S, D] through `layers` blocks, whose parameters are stacked -> HBM [B, S, D]."""
    batch, length, width = x.shape
    embed = weights["proj_weight"].shape[1]
    hidden = weights["fc1_weight"].shape[2]
    dim = embed // options.num_heads
    gated = weights["gate_weight"] != None
    item = dtype_bytes(x.dtype)
    begin, end = program_share(batch, 1)
    share = (0, length)
    if batch == 1 and length > PARTITIONS:
        # Each program has a tile at least.
        begin, end = 0, 1
        share = program_share(length, PARTITIONS)
    count = end - begin
    queries = options.queries(weights, dim)
    sizes = (
        length,
        width,
        options.num_heads,
        dim,
        hidden,
        item,
        gated,
        options.inner_norm != None,
        queries,
        options.bias_heads(),
    )
    plan = vit_block_plan(max(1, count), sizes, available_bytes())
    images, heads_pass, _, flight, beside = plan
    assert images > 0, f"{length} tokens of width {width} do not fit on the chip"
    out = nl.ndarray((batch, length, width), dtype=x.dtype, buffer=nl.shared_hbm)
    if count == 0:
        return out
    selectors = shift_selectors(options.num_heads, heads_pass, x.dtype)
    ring = None
    if flight:
        slots, room = ring_slots(width, hidden, embed, item, gated)
        ring = WeightRing(slots, room, x.dtype)
    form = Form(length, share, dim, options, x.dtype, plan, queries, selectors, ring)
    size = images + beside
    full = count // size
    launch = Launch(x, out, weights, layers, form, begin, size)
    rest = None
    if count % size > 0:
        rest = Launch(x, out, weights, layers, form, begin + full * size, count % size)
    one = block_instructions(size, plan, sizes)
    if one * layers * ceil_div(count, size) <= INSTRUCTIONS_MAX:
        items = []
        source = launch.source(options.mask, options.kv_lens)
        for chunk in range(full):
            add_items(items, launch.open_groups(launch.known_batch(chunk, source)), layers)
        if rest != None:
            add_items(items, rest.open_groups(rest.known_batch(0, source)), layers)
        launch.unrolled(items)
        return out
    # An iteration and what is left after the loop have at most `per_iteration` layers each.
    copies = 1 if rest == None else 2
    launch.per_iteration = max(1, INSTRUCTIONS_MAX // (2 * copies * one))
    if rest != None:
        rest.per_iteration = launch.per_iteration
    if full == 1:
        launch.chunk(0)
    else:
        nl.fori_loop(0, full, launch.chunk)
    if rest != None:
        rest.chunk(0)
    return out


class Launch(nl.NKIObject):
    """Chunks of `size` images, from image `first` on, that go through all layers."""

    def __init__(self, x, out, weights, layers, form, first, size):
        self.x = x
        self.out = out
        self.weights = weights
        self.layers = layers
        self.form = form
        self.first = first
        self.size = size
        self.groups = None
        # Layers of an iteration where the layers are a loop, and views of the parameters for it.
        self.per_iteration = 1
        self.stacks = None
        self.nexts = None

    def open_groups(self, batch):
        """The groups of a chunk."""
        form = self.form
        # The smaller group comes first: nothing is issued beside its attention.
        last = min(form.images, self.size)
        if form.beside > 0 and self.size > 1:
            last = min(form.images, self.size - 1)
        groups = []
        if last < self.size:
            groups.append(Group(batch, 0, self.size - last, form))
        groups.append(Group(batch, (self.size - last) * form.length, last, form))
        return groups

    def source(self, mask, kv_lens):
        """`bias_source` of images with such masks, or None."""
        form = self.form
        segments = form.options.cu_seqlens
        return bias_source(
            mask, kv_lens, segments, segments, form.scale, form.length, form.length, form.dtype
        )

    def known_batch(self, chunk, source):
        """`Batch` of chunk `chunk`, an int; its tables and `source` are those of all images."""
        return Batch(
            self.images_of(self.x, chunk).flatten_dims(0, 1),
            self.images_of(self.out, chunk).flatten_dims(0, 1),
            self.form.options.cos,
            self.form.options.sin,
            source,
            self.first + chunk * self.size,
        )

    def loop_batch(self, chunk):
        """`Batch` of chunk `chunk`, an int or a register, with tables and a source of its own."""
        options = self.form.options
        cos = options.cos
        sin = options.sin
        if cos != None and len(cos.shape) == 3:
            cos = self.images_of(cos, chunk)
            sin = self.images_of(sin, chunk)
        mask = options.mask
        if mask != None and mask.shape[0] > 1:
            mask = self.images_of(mask, chunk)
        kv_lens = options.kv_lens
        if kv_lens != None:
            kv_lens = self.images_of(kv_lens, chunk)
        return Batch(
            self.images_of(self.x, chunk).flatten_dims(0, 1),
            self.images_of(self.out, chunk).flatten_dims(0, 1),
            cos,
            sin,
            self.source(mask, kv_lens),
            0,
        )

    def images_of(self, tensor, chunk):
        """HBM [size, ...] of a chunk of a tensor [B, ...]."""
        count = (tensor.shape[0] - self.first) // self.size
        part = tensor[self.first : self.first + count * self.size]
        return part.reshape_dim(0, (count, self.size)).select(0, chunk)

    def unrolled(self, items):
        """All items."""
        items[0][0].load_if(self.form.flight)
        run(self.issue(items, layers_of(self.weights, 0, self.layers), False, True), None)

    def issue(self, items, layers, led, leave):
        """The items (group, index of `layers`), up to `Rest` of the last one, which is returned.

        The norm of a layer follows the rows of the layer before tile by tile. led: whether the
        attention of the first item is there already; leave: whether the rows of the last layer are
        written to the output.
        """
        form = self.form
        current = -1
        vectors = None
        rest_vectors = None
        following_vectors = None
        rest = None
        for index in range(len(items)):
            group, layer = items[index]
            weights = layers[layer]
            if layer != current:
                current = layer
                vectors = following_vectors
                rest_vectors = None
                following_vectors = None
            if not form.flight:
                # Little room: what one task needs is gone before the next one begins.
                if rest != None:
                    run(rest, None)
                rest = None
                rest_vectors = None
            if vectors == None:
                vectors = AttentionVectors(weights, form)
            if index > 0 or not led:
                following = None
                if form.beside > 0 and layer == 0 and index + 1 < len(items):
                    if items[index + 1][1] == 0:
                        following = items[index + 1][0]
                alone = rest == None or form.beside == 0
                attention = Attention(group, weights, vectors, form, following, alone)
                run_beside(rest, attention, form)
                rest = None
                attention = None
            if not form.flight:
                vectors = None
            if rest_vectors == None:
                rest_vectors = RestVectors(weights, form)
                upcoming = layer_after(items, index)
                if upcoming != None and form.flight:
                    following_vectors = AttentionVectors(layers[upcoming], form)
            then = None
            if form.keeps and layer + 1 < len(layers):
                then = Feed(group, following_vectors, form)
            elif leave:
                then = group.writer()
            rest = Rest(group, weights, rest_vectors, form, then)
        return rest

    def chunk(self, chunk):
        """All layers of a chunk, an int or a register, as a loop on the device.

        If rows stay on the chip an iteration begins when the attention of the first group is done
        and ends with its attention of the next layer, beside the rest of the last group.
        """
        form = self.form
        self.groups = self.open_groups(self.loop_batch(chunk))
        for group in self.groups:
            if form.keeps:
                group.load()
                group.attended = ImageColumns(group.own, form)
                group.lasting = True
            else:
                group.copy()
        # `loops` iterations of `per_iteration` layers, then what is left, at least one layer.
        loops = (self.layers - 1) // self.per_iteration
        if form.keeps:
            self.lead(layer_of(self.weights, 0), None)
        if loops > 0:
            self.stacks = blocks_of(self.weights, 0, loops, self.per_iteration)
            self.nexts = blocks_of(self.weights, self.per_iteration, loops, self.per_iteration)
            nl.fori_loop(0, loops, self.iteration)
        layers = layers_of(self.weights, loops * self.per_iteration, self.layers)
        run(self.up_to_last(layers), None)
        for group in self.groups:
            if form.keeps:
                group.store()
        self.groups = None

    def iteration(self, index):
        """Iteration `index`, a register: `per_iteration` layers, and the attention of the first
        group in the layer that follows them."""
        stack = layer_of(self.stacks, index)
        rest = self.up_to_last(layers_of(stack, 0, self.per_iteration))
        if not self.form.keeps:
            run(rest, None)
            return
        self.lead(layer_of(layer_of(self.nexts, index), 0), rest)

    def lead(self, weights, rest):
        """Attention of the first group in the layer that the next iteration begins with, and `rest`
        (or None)."""
        form = self.form
        if form.beside == 0:
            if rest != None:
                run(rest, None)
            rest = None
            self.rewind()
        vectors = AttentionVectors(weights, form)
        attention = Attention(self.groups[0], weights, vectors, form, None, form.beside == 0)
        run_beside(rest, attention, form)

    def rewind(self):
        """Every iteration of a loop on the device uses the same addresses."""
        if self.form.ring != None:
            self.form.ring.next = 0

    def up_to_last(self, layers):
        """Layers (a list of parameters) up to `Rest` of the last group in the last of them, which
        is returned. If rows stay on the chip the attention of the first group in the first layer
        is already there, and those of the last layer stay too."""
        keeps = self.form.keeps
        if self.form.beside > 0 or not keeps:
            # Otherwise `lead` has, whose attention has fetched weights for what follows.
            self.rewind()
        source = self.groups[0].batch.source
        if source != None and not keeps:
            # And begins with attention, whose tiles must not be those of the iteration before.
            source.forget()
        items = []
        add_items(items, self.groups, len(layers))
        return self.issue(items, layers, keeps, not keeps)


def add_items(items, groups, layers):
    """Appends (group, layer) to `items`, in the order of their work."""
    for layer in range(layers):
        for group in groups:
            items.append((group, layer))


def layer_after(items, index):
    """The layer that follows that of item `index`, which is the first one of the next chunk when a
    chunk ends; None if there is none."""
    for _, layer in items[index:]:
        if layer != items[index][1]:
            return layer
    return None


def run_beside(rest, attention, form):
    """Issue `attention`, and `rest` (or None) of the group before it: side by side if there is room
    for both and they do not wait for each other."""
    if rest != None and (form.beside == 0 or rest.group == attention.group):
        run(rest, None)
        rest = None
    if rest == None:
        run(attention, None)
    else:
        run(rest, attention)
