"""A whole pre-norm Transformer encoder block in one launch.

    y   = x + scale1 * proj(attention(norm1(x)))
    out = y + scale2 * fc2(act(fc1(norm2(y))))

Images are processed in groups whose tokens are packed: every matmul outside attention sees the
tokens of the whole group as one free axis, so an odd number of tokens an image costs nothing, and
each weight slab is read once a group. For one group:

1. rows of x -> norm1 -> columns (norm weight and bias ride on the eviction of the transpose).
   `NormColumns` has four row tiles in flight, each in another step of its norm.
2. for a pass of heads: queries and keys as `Heads`, values as rows, straight from the projection;
   `attend` of attention.py interleaves the images. Output rows stay on the chip; in the last pass
   `ImageColumns` turns each image to columns, images packed, while the next one is computed.
3. for a block of tokens (all of the group if they fit): x as float32 rows; projection, bias,
   LayerScale and residual add in place -> rows y, whose norm2 -> columns follows tile by tile;
   MLP of mlp.py with the residual add -> HBM.

Between HBM reads of x and the HBM write of the result nothing leaves the chip; the residual
stream is float32. Engines: TensorE all matmuls and transposes; ScalarE exp, GELU, the squares of
the norms, and the evictions of transposes and of attention results; VectorE maxima, sums and
scaling of the norms, and the evictions of projections with bias and residual; GpSimd makes the
residual stream of x and, without LayerScale, the bias of the projection.

SBUF: `limits.vit_block_plan` chooses the size of the group, of the passes and of the block from the
budget of `limits.block_bytes`. Where nothing else fits there is one norm tile and one unit of
attention at a time, and the columns of attention are made after its last pass.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .attention import Heads, attend, shift_selectors
from .heads import head_rows, head_shape
from .limits import (
    BANK,
    PARTITIONS,
    ceil_div,
    heads_per_chunk,
    query_block,
    vit_block_plan,
)
from .linear import store_tiles
from .mlp import gated_weights, mlp_rows, plain_weights
from .norm import NormTile
from .score_bias import BiasUnits, bias_source
from .tiles import (
    WIDE,
    available_bytes,
    broadcast_row,
    contract,
    contract_parts,
    dtype_bytes,
    finish_rows,
    load_columns,
    load_rows,
    load_weight,
    part_of,
    program_share,
    project_rows,
    psum_parts,
    split_free,
    transpose_rows,
)


@nki.jit
def vit_block(
    x,
    norm1_weight,
    norm1_bias,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    scale1,
    norm2_weight,
    norm2_bias,
    fc1_weight,
    fc1_bias,
    fc2_weight,
    fc2_bias,
    scale2,
    num_heads,
    eps,
    norm,
    activation,
    attention_scale,
    gate_weight=None,
    gate_bias=None,
    inner_weight=None,
    inner_bias=None,
    q_norm_weight=None,
    q_norm_bias=None,
    k_norm_weight=None,
    k_norm_bias=None,
    cos=None,
    sin=None,
    mask=None,
    kv_lens=None,
    cu_seqlens=None,
    inner_norm=None,
    inner_eps=0.0,
    qk_norm=None,
    qk_eps=0.0,
    rope="half",
):
    """x [B, S, D] -> [B, S, D]; bfloat16, float16 or float32, one dtype for x and all weights.

    qkv_weight: HBM [D, 3 * H * d], columns: q heads, k heads, v heads; proj_weight [H * d, D];
    fc1_weight [D, I]; fc2_weight [I, D]. norm1_weight, norm2_weight, scale1, scale2 (LayerScale)
    and every bias: HBM vectors or None. norm: "layer" or "rms" (then both norm biases are None).
    activation: see `activation_function`. attention_scale: float, 1 / sqrt(d) for ViT.

    gate_weight [D, I]: None, or for a gated MLP (mlp.py), with gate_bias [I] or None. inner_norm:
    None, "layer" or "rms" for a norm in front of fc2, with inner_eps, inner_weight and inner_bias
    [I] or None. qk_norm: None, "layer" or "rms" for a norm of queries and keys, with qk_eps and
    weights [d] for a norm of each head (biases [d] or None), [H * d] for an "rms" of all heads
    together. cos, sin: None, or HBM tables [P, d] or [B, P, d] of one float dtype for the rotation
    of the last P tokens; rope: "half" or "interleaved" (heads.py). mask, kv_lens, cu_seqlens: at
    most one, as of `attention`.
    """
    batch, length, width = x.shape
    embed = proj_weight.shape[0]
    hidden = fc1_weight.shape[1]
    dim = embed // num_heads
    item = dtype_bytes(x.dtype)
    inner = None if inner_norm == None else (inner_weight, inner_bias, inner_eps, inner_norm)
    shape = head_shape(
        dim, q_norm_weight, q_norm_bias, k_norm_weight, k_norm_bias, qk_norm, qk_eps, cos, sin, rope
    )
    bias_heads = 0
    if mask != None:
        bias_heads = mask.shape[1]
    elif kv_lens != None or cu_seqlens != None:
        bias_heads = 1
    traits = (gate_weight != None, inner != None, head_rows(shape), bias_heads)
    images, heads_pass, block, flight = vit_block_plan(
        batch, length, width, num_heads, dim, hidden, item, available_bytes(), traits
    )
    assert images > 0, f"vit_block: {length} tokens of width {width} do not fit on the chip"
    out = nl.ndarray((batch, length, width), dtype=x.dtype, buffer=nl.shared_hbm)
    tokens_in = x.reshape((batch * length, width))
    tokens_out = out.reshape((batch * length, width))
    norm1 = (norm1_weight, norm1_bias, eps, norm)
    norm2 = (norm2_weight, norm2_bias, eps, norm)
    selectors = shift_selectors(num_heads, heads_pass, dim, x.dtype)
    source = bias_source(
        mask, kv_lens, cu_seqlens, cu_seqlens, attention_scale, length, length, x.dtype
    )
    special = Special(shape, source)
    attention = (
        qkv_weight,
        qkv_bias,
        num_heads,
        dim,
        heads_pass,
        attention_scale,
        selectors,
        special,
    )
    projection = (proj_weight, proj_bias, scale1)
    if gate_weight == None:
        weights = plain_weights(
            fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, "in_out", inner
        )
    else:
        weights = gated_weights(
            gate_weight,
            gate_bias,
            fc1_weight,
            fc1_bias,
            fc2_weight,
            fc2_bias,
            activation,
            "in_out",
            inner,
        )
    mlp_weights = (weights, scale2)
    begin, end = program_share(batch, 1)
    for image in range(begin, end, images):
        transform_group(
            tokens_out,
            tokens_in,
            image * length,
            min(images, end - image) * length,
            length,
            block,
            flight,
            norm1,
            attention,
            projection,
            norm2,
            mlp_weights,
        )
    return out


class Special(nl.NKIObject):
    """What attention may have beside the plain.

    shape: `HeadShape`, or None for queries and keys straight from the projection. source: what
    makes the `ScoreBias` of a unit (`bias_source`), or None where every token sees every other.
    """

    def __init__(self, shape, source):
        self.shape = shape
        self.source = source
        self.image = 0

    def begin(self, image):
        """A group of images begins, the first of which is `image` of the batch."""
        self.image = image
        if self.shape != None:
            self.shape.begin(image)

    def biases(self, first, count, length, block):
        """The `BiasUnits` of the images of the group, for heads [first, first + count); or None."""
        if self.source == None:
            return None
        return BiasUnits(self.source, self.image, first, count, length, block)


def transform_group(
    out,
    x,
    first,
    count,
    length,
    block,
    flight,
    norm1,
    attention,
    projection,
    norm2,
    mlp_weights,
):
    """The block for one group of images: HBM rows [first, first + count) of x -> the same of out.

    block: tokens that follow attention at a time. flight: False if SBUF holds one norm tile and
    not the columns of attention before its passes are over (see `vit_block_plan`). A function of
    its own, so that a group's tiles are gone when the next group begins.
    """
    qkv_weight, qkv_bias, heads, dim, heads_pass, scale, selectors, special = attention
    special.begin(first // length)
    # Made first, so that what it leaves free is in one piece when the tiles before it are gone.
    attended = ImageColumns(heads * dim, length, count, x.dtype, flight)
    attend_group(
        attended,
        norm_columns(x, first, count, norm1, flight),
        length,
        qkv_weight,
        qkv_bias,
        heads,
        dim,
        heads_pass,
        scale,
        selectors,
        flight,
        special,
    )
    attended = attended.finish()
    for start in range(0, count, block):
        size = min(block, count - start)
        store_tiles(
            out,
            first + start,
            size,
            finish_tokens(
                x,
                first + start,
                attended[:, :, start : start + size],
                projection,
                norm2,
                mlp_weights,
                flight,
            ),
        )


def finish_tokens(x, first, attended, projection, norm, mlp_weights, flight):
    """What follows attention, for a block of tokens -> SBUF rows [128, tiles, width] in x's dtype.

    attended: columns [128, chunks of heads * d, count] of HBM rows [first, first + count) of x.
    flight: see `NormColumns`.
    """
    proj_weight, proj_bias, scale1 = projection
    weights, scale2 = mlp_weights
    count = attended.shape[2]
    # Without LayerScale the bias of the projection can wait for it in the residual.
    early = proj_bias if scale1 == None else None
    late = None if scale1 == None else proj_bias
    stream = residual_rows(x, first, count, early)
    columns = NormColumns(stream.shape[2], count, x.dtype, norm, flight)
    project_rows(
        stream,
        attended,
        proj_weight.shape[0],
        proj_weight,
        "in_out",
        late,
        scale1,
        stream,
        columns,
    )
    columns = columns.finish()
    result = nl.ndarray(stream.shape, dtype=x.dtype, buffer=nl.sbuf)
    mlp_rows(result, columns, weights, scale2, stream, flight)
    return result


class NormColumns(nl.NKIObject):
    """The norm of a sequence of row tiles, transposed to SBUF columns [128, chunks, count].

    norm: (weight, bias, eps, kind), the first two HBM vectors [width] or None.
    `push` takes the tiles in order. In flight, the steps of four neighbours (`NormTile` and the
    transpose) are issued side by side; otherwise a tile is done with before the next one comes.
    `finish` ends it and returns the columns.
    """

    def __init__(self, width, count, dtype, norm, flight):
        weight, bias, eps, kind = norm
        self.weight = load_columns(weight, 0, width, PARTITIONS)
        self.bias = load_columns(bias, 0, width, PARTITIONS)
        self.eps = eps
        self.kind = kind
        self.flight = flight
        self.columns = nl.ndarray(
            (PARTITIONS, ceil_div(width, PARTITIONS), count), dtype=dtype, buffer=nl.sbuf
        )
        self.summed = None
        self.spread = None
        self.scaled = None
        self.done = 0

    def push(self, rows):
        """The next tile: SBUF rows [<= 128, width] of any float dtype, which are not changed."""
        normed = nl.ndarray(rows.shape, dtype=self.columns.dtype, buffer=nl.sbuf)
        values = None
        if self.kind == "layer":
            values = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
        tile = NormTile(normed, rows, values, None, None, self.eps, self.kind)
        tile.sum()
        self.advance(tile)
        if not self.flight:
            self.finish()

    def advance(self, tile):
        """One step of each tile in flight; `tile`, or None, is the next to follow them."""
        if self.summed != None:
            self.summed.spread()
        if self.spread != None:
            self.spread.scale()
        if self.scaled != None:
            low = self.done
            high = low + self.scaled.dst.shape[0]
            transpose_rows(self.columns[:, :, low:high], self.scaled.dst, self.weight, self.bias)
            self.done = high
        self.scaled = self.spread
        self.spread = self.summed
        self.summed = tile

    def finish(self):
        """Ends the steps of the tiles in flight -> the columns. Nothing to do when none are."""
        for _ in range(3):
            self.advance(None)
        return self.columns


def norm_columns(x, first, count, norm, flight):
    """norm of HBM rows [first, first + count) of x [tokens, width] -> columns in its dtype."""
    width = x.shape[1]
    columns = NormColumns(width, count, x.dtype, norm, flight)
    for low in range(0, count, PARTITIONS):
        size = min(PARTITIONS, count - low)
        columns.push(load_rows(x, first + low, size, width, x.dtype))
    return columns.finish()


def residual_rows(x, first, count, bias):
    """HBM rows [first, first + count) of x, plus bias (HBM [width] or None) -> SBUF float32 rows
    [128, tiles, width]. On GpSimd, which has little else to do.
    """
    width = x.shape[1]
    bias_row = broadcast_row(bias, 0, width)
    residual = nl.ndarray(
        (PARTITIONS, ceil_div(count, PARTITIONS), width), dtype=nl.float32, buffer=nl.sbuf
    )
    for low in range(0, count, PARTITIONS):
        size = min(PARTITIONS, count - low)
        rows = load_rows(x, first + low, size, width, x.dtype)
        target = residual[0:size, low // PARTITIONS, :]
        if bias_row == None:
            nisa.tensor_copy(dst=target, src=rows, engine=nisa.engine.gpsimd)
        else:
            nisa.tensor_tensor(
                dst=target,
                data1=rows,
                data2=bias_row[0:size, :],
                op=nl.add,
                engine=nisa.engine.gpsimd,
            )
    return residual


def attend_group(
    attended,
    columns,
    length,
    weight,
    bias,
    heads,
    dim,
    heads_pass,
    scale,
    selectors,
    flight,
    special,
):
    """Attention of the images of a group, from norm1 columns to the rows of `attended`.

    attended: `ImageColumns`; columns: SBUF [128, chunks of width, images * length]; weight: HBM
    [width, 3 * heads * dim]; bias: HBM [3 * heads * dim] or None. In flight, the last pass of heads
    turns each unit's rows to columns as it ends; otherwise `attended.finish` does, when `columns`
    is gone.
    """
    embed = heads * dim
    tiles = ceil_div(length, PARTITIONS)
    images = columns.shape[2] // length
    rows = nl.ndarray((PARTITIONS, images * tiles, embed), dtype=columns.dtype, buffer=nl.sbuf)
    attended.rows = rows
    for first in range(0, heads, heads_pass):
        count = min(heads_pass, heads - first)
        target = rows[:, :, first * dim : (first + count) * dim].reshape_dim(2, (count, dim))
        selector = selectors[0] if count == heads_pass else selectors[1]
        last = first + count == heads
        then = attended if last and flight else None
        attend_images(
            target,
            columns,
            length,
            weight,
            bias,
            first * dim,
            embed,
            scale,
            selector,
            flight,
            then,
            special,
        )


def attend_images(
    dst, columns, length, weight, bias, first, embed, scale, selector, flight, then, special
):
    """Some heads of all images of a group: rows dst [128, images * query tiles, heads, d].

    first: the first column of these heads in each of the three parts of the QKV weight. flight:
    whether the units are interleaved; then: what takes the finished units if so, or None.
    """
    heads, dim = dst.shape[2], dst.shape[3]
    tiles = ceil_div(length, PARTITIONS)
    if special.shape == None:
        queries = project_heads(columns, weight, bias, first, heads, dim)
        keys = project_heads(columns, weight, bias, embed + first, heads, dim)
    else:
        queries, keys = special.shape.make(
            columns, length, weight, bias, first, embed, heads, dim
        )
    values = project_values(columns, length, weight, bias, 2 * embed + first, heads, dim)
    block = query_block(length, length, dtype_bytes(columns.dtype))
    units = []
    for image in range(columns.shape[2] // length):
        token = image * length
        tile = image * tiles
        for start in range(0, length, block):
            size = min(block, length - start)
            begin = tile + start // PARTITIONS
            units.append(
                (
                    dst[:, begin : begin + ceil_div(size, PARTITIONS), :, :],
                    queries.tokens(token + start, token + start + size),
                    keys.tokens(token, token + length),
                    values[:, tile : tile + tiles, :, :],
                )
            )
    biases = special.biases(first // dim, heads, length, block)
    if flight:
        attend(units, scale, selector, then, biases)
    else:
        for index in range(len(units)):
            bias = None if biases == None else biases.unit(index)
            attend([units[index]], scale, selector, None, bias)
            bias = None


class ImageColumns(nl.NKIObject):
    """Output rows of attention, where each image starts a tile, as columns with images packed.

    rows: SBUF [128, images * tiles, embed], set by who makes them; columns: [128, chunks of embed,
    count], for `count` tokens. A unit is a block of queries of an image; `push` turns one as soon
    as it is complete, if the columns exist from the start (`early`). `finish` returns the columns.
    """

    def __init__(self, embed, length, count, dtype, early):
        self.rows = None
        self.embed = embed
        self.length = length
        self.count = count
        self.dtype = dtype
        self.block = query_block(length, length, dtype_bytes(dtype))
        self.blocks = ceil_div(length, self.block)
        self.tiles = ceil_div(length, PARTITIONS)
        self.columns = None
        if early:
            self.allocate()

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
            for unit in range(self.count // self.length * self.blocks):
                self.push(unit)
        return self.columns

    def push(self, unit):
        """Unit `unit` of the group is complete."""
        image = unit // self.blocks
        start = unit % self.blocks * self.block
        for low in range(start, min(start + self.block, self.length), PARTITIONS):
            size = min(PARTITIONS, self.length - low)
            token = image * self.length + low
            tile = image * self.tiles + low // PARTITIONS
            transpose_rows(
                self.columns[:, :, token : token + size], self.rows[0:size, tile, :], None, None
            )


def project_heads(columns, weight, bias, first, heads, dim):
    """`Heads` of queries or keys from weight columns [first, first + heads * d)."""
    width = weight.shape[0]
    total = columns.shape[2]
    packed = min(heads, heads_per_chunk(dim))
    result = nl.ndarray(
        (packed * dim, ceil_div(heads, packed), total), dtype=columns.dtype, buffer=nl.sbuf
    )
    bias_columns = load_columns(bias, first, heads * dim, packed * dim)
    slab = load_weight(weight, "in_out", width, first, heads * dim)
    for start in range(0, heads, packed):
        stop = min(start + packed, heads)
        size = (stop - start) * dim
        slot = start // packed
        for token in range(0, total, WIDE):
            parts = psum_parts(size, min(WIDE, total - token))
            contract_parts(
                parts,
                slab[:, :, start * dim : stop * dim],
                split_free(columns, token, min(WIDE, total - token)),
                width,
            )
            low = token
            for psum in parts:
                high = low + psum.shape[1]
                target = result[0:size, slot, low:high]
                if bias_columns == None:
                    nisa.tensor_copy(dst=target, src=psum)
                else:
                    nisa.tensor_scalar(
                        dst=target,
                        data=psum,
                        op0=nl.add,
                        operand0=bias_columns[0:size, slot : slot + 1],
                    )
                low = high
    return Heads(result, heads, dim)


def project_values(columns, length, weight, bias, first, heads, dim):
    """Values of every image as rows [128, images * tiles, heads, d + 1], last column ones."""
    width = weight.shape[0]
    total = columns.shape[2]
    tiles = ceil_div(length, PARTITIONS)
    images = total // length
    values = nl.ndarray(
        (PARTITIONS, images * tiles, heads, dim + 1), dtype=columns.dtype, buffer=nl.sbuf
    )
    nisa.memset(dst=values[:, :, :, dim : dim + 1], value=1.0)
    bias_row = broadcast_row(bias, first, heads * dim)
    slab = load_weight(weight, "in_out", width, first, heads * dim)
    shared = BANK // dim
    for image in range(images):
        for tile in range(tiles):
            low = tile * PARTITIONS
            size = min(PARTITIONS, length - low)
            token = image * length + low
            for start in range(0, heads, shared):
                stop = min(start + shared, heads)
                psum = nl.ndarray((size, stop - start, dim), dtype=nl.float32, buffer=nl.psum)
                contract(
                    psum,
                    columns[:, :, token : token + size],
                    slab[:, :, start * dim : stop * dim],
                    width,
                )
                part = part_of(bias_row, size, start * dim, stop * dim)
                if part != None:
                    part = part.reshape_dim(1, (stop - start, dim))
                finish_rows(
                    values[0:size, image * tiles + tile, start:stop, 0:dim], psum, part, None, None
                )
    return values
