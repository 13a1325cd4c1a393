"""Queries and keys that are made as rows: normalised, rotated, turned to columns.

    q = rope(norm(x Wq + bq))        k = rope(norm(x Wk + bk))

A norm combines the d values of a head with each other, so these queries and keys are made as rows,
a token a partition, where those values lie side by side along the free axis; so are heads that
cannot share the partitions, and heads whose rotation differs from image to image
(`limits.queries_kind`). All others come out of the projection as columns (qkv.py, rotate.py).
For one tile of at most 128 tokens of an image (`HeadRows`):

1. TensorE: the norm1 columns of the tile are stationary, the weight columns of a pass of heads
   moving -> PSUM rows [tokens, heads, d]. The bias is one more row of the contraction, against a
   row of ones, which leaves the eviction as float32 to ScalarE: VectorE is the busier one.
2. Norm of each head ("layer" or "rms"): sums by VectorE over a [tokens, heads, d] view, squares and
   the parameters on GpSimd, as is the inverse root. Or of all heads together ("rms"):
   `FullDeviations` makes the deviations once a group, because a pass need not have all heads.
3. RoPE: x * cos on VectorE, turned(x) * sin on GpSimd, their sum rounds to the operand dtype. The
   turned values are a strided view. The table of sines has the signs of turned(x) put in when it
   is loaded; tokens in front of the first position of the tables get cos = 1 and sin = 0.
4. TensorE turns the rows to `Heads` columns, several slots a PSUM bank, which ScalarE evicts.

Everything is float32 up to the one rounding of the last step before the transpose. Tiles follow one
another as a pipeline: three of four neighbours have a step at a time, the other one waits. SBUF:
`limits.head_rows_bytes`.
"""

import nki.isa as nisa
import nki.language as nl

from .attend import Heads, head_columns
from .limits import BANK, PARTITIONS, ceil_div, heads_per_chunk, slab_columns
from .project import load_weight, part_of
from .tiles import broadcast_row, contract, dtype_bytes, inverse_root


class HeadShape(nl.NKIObject):
    """What queries and keys go through between projection and attention.

    q_norm, k_norm: (weight, bias), HBM vectors [d] for a norm of each head, or [H * d] without
    biases for one of all heads together; None for no norm. eps, norm: of both, "layer" or "rms".
    cos, sin: HBM [P, d] or [B, P, d], any float dtype, for the last P tokens of an image; None for
    no rotation. rope: "half" or "interleaved".
    """

    def __init__(self, q_norm, k_norm, eps, norm, cos, sin, rope, dim):
        self.norms = [q_norm, k_norm]
        self.eps = eps
        self.norm = norm
        self.cos = cos
        self.sin = sin
        self.rope = rope
        self.full = q_norm != None and q_norm[0].shape[0] > dim
        self.image = 0
        self.deviations = None

    def begin(self, image):
        """A group of images begins, the first of which is `image` of the batch."""
        self.image = image
        self.deviations = None

    def work(self, which, columns, length, weight, bias, first, embed, heads, dim):
        """`HeadRows` of queries (which = 0) or keys (1), of a pass of heads of a group of images.

        columns: SBUF norm1 columns [128, chunks of width, images * length]; weight: HBM
        [width, 3 * embed], bias: HBM [3 * embed] or None, in which queries begin at column `first`
        and keys at embed + first.
        """
        if self.full and self.deviations == None:
            self.deviations = [
                self.full_deviations(columns, length, weight, bias, 0, embed),
                self.full_deviations(columns, length, weight, bias, embed, embed),
            ]
        return HeadRows(self, which, columns, length, weight, bias, first, embed, heads, dim)

    def full_deviations(self, columns, length, weight, bias, first, embed):
        """Those of the queries or of the keys. A function of its own, so that what one needs is
        gone when the other's are made."""
        work = FullDeviations(columns, length, weight, bias, first, embed, self.eps)
        for index in range(work.steps):
            work.step(index)
        return work.result


class HeadRows(nl.NKIObject):
    """The steps that make queries or keys of a pass of heads; arguments as of `HeadShape.work`.

    Step i projects tile i, shapes tile i - 1 and transposes tile i - 3. Tiles at the same place of
    several images follow one another, so that one load of shared tables serves them.

    result: `Heads`, complete when all steps are done.
    """

    def __init__(self, shape, which, columns, length, weight, bias, first, embed, heads, dim):
        self.shape = shape
        self.columns = columns
        self.length = length
        self.heads = heads
        self.dim = dim
        self.width = weight.shape[0]
        self.dtype = columns.dtype
        self.images = columns.shape[2] // length
        self.tiles = ceil_div(length, PARTITIONS)
        self.steps = self.images * self.tiles + 3
        packed = min(heads, heads_per_chunk(dim))
        slots = ceil_div(heads, packed)
        target = head_columns(packed * dim, slots, self.images, length, self.dtype)
        self.result = Heads(target, heads, dim)
        self.slab = load_weight(weight, "in_out", self.width, which * embed + first, heads * dim)
        self.bias = None
        self.ones = None
        if bias != None:
            self.bias = nl.ndarray((1, heads * dim), dtype=bias.dtype, buffer=nl.sbuf)
            low = which * embed + first
            nisa.dma_copy(dst=self.bias, src=bias[low : low + heads * dim].expand_dim(0))
            self.ones = nl.ndarray((1, PARTITIONS), dtype=bias.dtype, buffer=nl.sbuf)
            nisa.memset(dst=self.ones, value=1.0, engine=nisa.engine.gpsimd)
        self.deviations = None
        self.norm_weight = None
        self.norm_bias = None
        self.plain = shape.cos == None and shape.norms[which] == None
        if shape.norms[which] != None:
            norm_weight, norm_bias = shape.norms[which]
            if shape.full:
                self.deviations = shape.deviations[which]
                row = broadcast_row(norm_weight, first, heads * dim)
                self.norm_weight = row.reshape_dim(1, (heads, dim))
            else:
                self.norm_weight = broadcast_row(norm_weight, 0, dim)
                self.norm_bias = broadcast_row(norm_bias, 0, dim)
        self.tables = None
        self.projected = None
        self.shaped = None
        self.waiting = None

    def step(self, index):
        """Step `index` of `steps`."""
        waiting = self.waiting
        self.waiting = self.shaped
        self.shaped = None
        if self.projected != None:
            self.shaped = self.shape_rows(index - 1, self.projected)
        self.projected = None
        if index < self.steps - 3:
            self.projected = self.project(index)
        else:
            self.slab = None
        if waiting != None:
            self.transpose(index - 3, waiting)

    def place(self, index):
        """(image of the group, tile of the image, tokens) of tile `index`."""
        image = index % self.images
        tile = index // self.images
        return image, tile, min(PARTITIONS, self.length - tile * PARTITIONS)

    def project(self, index):
        """SBUF float32 [tokens, heads, d]: the projection of a tile, with its bias."""
        image, tile, count = self.place(index)
        token = image * self.length + tile * PARTITIONS
        dim = self.dim
        dtype = self.dtype if self.plain else nl.float32
        rows = nl.ndarray((count, self.heads, dim), dtype=dtype, buffer=nl.sbuf)
        shared = BANK // dim
        for start in range(0, self.heads, shared):
            stop = min(start + shared, self.heads)
            psum = nl.ndarray((count, stop - start, dim), dtype=nl.float32, buffer=nl.psum)
            contract(
                psum,
                self.columns[:, :, token : token + count],
                self.slab[:, :, start * dim : stop * dim],
                self.width,
            )
            if self.bias != None:
                nisa.nc_matmul(
                    dst=psum,
                    stationary=self.ones[:, 0:count],
                    moving=self.bias[:, start * dim : stop * dim],
                    accumulate=True,
                )
            nisa.tensor_copy(dst=rows[:, start:stop, :], src=psum, engine=nisa.engine.scalar)
        return rows

    def shape_rows(self, index, rows):
        """SBUF [tokens, heads, d] of the operand dtype: norm and rotation of a projected tile."""
        if self.plain:
            return rows
        image, tile, count = self.place(index)
        result = nl.ndarray(rows.shape, dtype=self.dtype, buffer=nl.sbuf)
        normed = result if self.shape.cos == None else rows
        if self.deviations != None:
            column = image * self.tiles + tile
            nisa.scalar_tensor_tensor(
                dst=normed,
                data=rows,
                op0=nl.multiply,
                operand0=self.deviations[0:count, column : column + 1],
                op1=nl.multiply,
                operand1=self.norm_weight[0:count, :, :],
            )
        elif self.norm_weight != None:
            self.normalize_heads(normed, rows)
        if self.shape.cos != None:
            self.rotate(result, rows, image, tile)
        return result

    def normalize_heads(self, dst, rows):
        """dst = norm(rows) * weight + bias for each head of each token. rows are overwritten."""
        shape = self.shape
        count, heads, dim = rows.shape
        if shape.norm == "layer":
            mean = nl.ndarray((count, heads), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=mean, op=nl.add, data=rows, axis=2)
            nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / dim)
            each = mean.expand_dim(2).broadcast(2, dim)
            nisa.tensor_tensor(dst=rows, data1=rows, data2=each, op=nl.subtract)
        squares = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
        on_gpsimd(squares, rows, rows, nl.multiply)
        total = nl.ndarray((count, heads), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=squares, axis=2)
        deviation = nl.ndarray((count, heads), dtype=nl.float32, buffer=nl.sbuf)
        inverse_root(deviation, total, 1.0 / dim, shape.eps)
        each = deviation.expand_dim(2).broadcast(2, dim)
        nisa.tensor_tensor(dst=rows, data1=rows, data2=each, op=nl.multiply)
        target = dst if self.norm_bias == None else rows
        on_gpsimd(target, rows, over_heads(self.norm_weight, count, heads), nl.multiply)
        if self.norm_bias != None:
            on_gpsimd(dst, rows, over_heads(self.norm_bias, count, heads), nl.add)

    def rotate(self, dst, rows, image, tile):
        """dst = rows * cos + turned(rows) * sin. rows are overwritten."""
        count, heads, _ = rows.shape
        shape = self.shape
        if self.tables == None or image == 0 or len(shape.cos.shape) == 3:
            self.tables = None
            first = shape.image + image
            self.tables = load_tables(shape.cos, shape.sin, shape.rope, first, self.length, tile)
        cos, sin = self.tables
        turned = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
        low, high = pairs(rows, self.shape.rope)
        turned_low, turned_high = pairs(turned, self.shape.rope)
        sin_low, sin_high = pairs(over_heads(sin, count, heads), self.shape.rope)
        on_gpsimd(turned_low, high, sin_low, nl.multiply)
        on_gpsimd(turned_high, low, sin_high, nl.multiply)
        nisa.tensor_tensor(
            dst=rows, data1=rows, data2=over_heads(cos, count, heads), op=nl.multiply
        )
        nisa.tensor_tensor(dst=dst, data1=rows, data2=turned, op=nl.add)

    def transpose(self, index, rows):
        """The tile's part of the result, from SBUF rows [tokens, heads, d]."""
        image, tile, count = self.place(index)
        token = image * self.length + tile * PARTITIONS
        target = self.result.columns
        packed = target.shape[0] // self.dim
        slots = target.shape[1]
        # Slots that share a PSUM bank, whose size is that of BANK float32 values.
        shared = BANK * 4 // (count * dtype_bytes(self.dtype))
        full = self.heads // packed
        for start in range(0, full, shared):
            stop = min(start + shared, full)
            self.transpose_slots(target[:, start:stop, token : token + count], rows, start * packed)
        if full < slots:
            size = (self.heads - full * packed) * self.dim
            self.transpose_slots(
                target[0:size, full : full + 1, token : token + count], rows, full * packed
            )

    def transpose_slots(self, dst, rows, head):
        """Columns dst [values, slots, tokens] from the rows of the heads from `head` on."""
        values, slots, _ = dst.shape
        packed = values // self.dim
        psum = nl.ndarray(dst.shape, dtype=self.dtype, buffer=nl.psum)
        for slot in range(slots):
            low = head + slot * packed
            nisa.nc_transpose(dst=psum[:, slot, :], data=rows[:, low : low + packed, :])
        nisa.tensor_copy(dst=dst, src=psum, engine=nisa.engine.scalar)


def head_shape(
    dim,
    q_norm_weight,
    q_norm_bias,
    k_norm_weight,
    k_norm_bias,
    norm,
    eps,
    cos,
    sin,
    rope,
):
    """`HeadShape` of the arguments of `vit_block`."""
    q_norm = None
    k_norm = None
    if norm != None:
        q_norm = (q_norm_weight, q_norm_bias)
        k_norm = (k_norm_weight, k_norm_bias)
        full = q_norm_weight.shape[0] > dim
        assert not full or norm == "rms", "vit_block: a norm of all heads together must be rms"
    return HeadShape(q_norm, k_norm, eps, norm, cos, sin, rope, dim)


def over_heads(row, count, heads):
    """SBUF [128, d] as [count, heads, d], the same for every head."""
    return row[0:count, :].expand_dim(1).broadcast(1, heads)


def on_gpsimd(dst, data1, data2, op):
    """dst = data1 op data2 on GpSimd, which has little else to do."""
    nisa.tensor_tensor(dst=dst, data1=data1, data2=data2, op=op, engine=nisa.engine.gpsimd)


def pairs(rows, rope):
    """The two values that turn into each other, as views [tokens, heads, d / 2] of [.., d]."""
    half = rows.shape[2] // 2
    if rope == "half":
        return rows[:, :, 0:half], rows[:, :, half : 2 * half]
    assert rope == "interleaved", f'rope "{rope}": allowed are "half", "interleaved"'
    return rows[:, :, 0 : 2 * half : 2], rows[:, :, 1 : 2 * half : 2]


def load_tables(cos, sin, rope, image, length, tile):
    """(cos, signed sin) of a tile of tokens -> SBUF float32 [128, d].

    The sines of the first value of each pair are negated, as in turned(x).
    """
    cos = load_table(cos, image, length, tile, 1.0)
    sin = load_table(sin, image, length, tile, 0.0)
    first, _ = pairs(sin.expand_dim(1), rope)
    nisa.tensor_scalar(dst=first, data=first, op0=nl.multiply, operand0=-1.0)
    return cos, sin


def load_table(table, image, length, tile, rest):
    """HBM [P, d] or [B, P, d] -> SBUF float32 [128, d] for the tokens of a tile; `rest` for those
    in front of the first position."""
    batched = len(table.shape) == 3
    positions = table.shape[1] if batched else table.shape[0]
    dim = table.shape[2] if batched else table.shape[1]
    skipped = length - positions
    low = tile * PARTITIONS
    high = min(low + PARTITIONS, length)
    rows = nl.ndarray((PARTITIONS, dim), dtype=table.dtype, buffer=nl.sbuf)
    if low < skipped or high - low < PARTITIONS:
        nisa.memset(dst=rows, value=rest)
    start = max(low, skipped)
    if start < high:
        source = table[image, :, :] if batched else table
        nisa.dma_copy(
            dst=rows[start - low : high - low, :],
            src=source[start - skipped : high - skipped, :],
        )
    if table.dtype == nl.float32:
        return rows
    values = nl.ndarray((PARTITIONS, dim), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=values, src=rows, engine=nisa.engine.gpsimd)
    return values


class FullDeviations(nl.NKIObject):
    """1 / sqrt(mean(q^2) + eps) over all heads together, for every token: the work of making it.

    Arguments as of `HeadShape.make`, for weight columns [first, first + embed). result: SBUF
    float32 [128, images * tiles], where each image starts a tile, complete when all steps are done.
    Another projection of the group, of which only the squares are kept: all rows together need not
    fit on the chip. A step is up to 512 features of one tile; the last one ends the work.
    """

    def __init__(self, columns, length, weight, bias, first, embed, eps):
        self.columns = columns
        self.length = length
        self.weight = weight
        self.bias = bias
        self.first = first
        self.embed = embed
        self.eps = eps
        self.tiles = ceil_div(length, PARTITIONS)
        self.images = columns.shape[2] // length
        step = slab_columns(weight.shape[0], embed, dtype_bytes(weight.dtype))
        # (first feature of the slab, first one within it and the one behind the last)
        self.plan = []
        for low in range(0, embed, step):
            size = min(step, embed - low)
            for start in range(0, size, BANK):
                self.plan.append((low, start, min(start + BANK, size)))
        self.width = step
        self.steps = len(self.plan) * self.images * self.tiles + 1
        shape = (PARTITIONS, self.images * self.tiles, len(self.plan))
        self.sums = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=self.sums, value=0.0, engine=nisa.engine.gpsimd)
        self.loaded = -1
        self.slab = None
        self.row = None
        self.result = nl.ndarray(shape[0:2], dtype=nl.float32, buffer=nl.sbuf)

    def step(self, index):
        """Step `index` of `steps`."""
        count = self.images * self.tiles
        if index == self.steps - 1:
            self.finish()
            return
        low, start, stop = self.plan[index // count]
        if low != self.loaded:
            self.load(low)
        column = index % count
        tile = column % self.tiles
        tokens = min(PARTITIONS, self.length - tile * PARTITIONS)
        token = column // self.tiles * self.length + tile * PARTITIONS
        part = index // count
        square_sums(
            self.sums[0:tokens, column, part : part + 1],
            self.columns[:, :, token : token + tokens],
            self.slab[:, :, start:stop],
            self.weight.shape[0],
            part_of(self.row, tokens, start, stop),
        )

    def load(self, low):
        """The slab that begins at feature `low`, and its biases."""
        size = min(self.width, self.embed - low)
        depth = self.weight.shape[0]
        self.loaded = low
        self.slab = load_weight(self.weight, "in_out", depth, self.first + low, size)
        self.row = broadcast_row(self.bias, self.first + low, size)

    def finish(self):
        """The result, from the sums."""
        self.slab = None
        self.row = None
        total = nl.ndarray(self.result.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=self.sums, axis=2)
        inverse_root(self.result, total, 1.0 / self.embed, self.eps)
        self.sums = None


def square_sums(dst, stationary, moving, depth, bias):
    """dst [tokens, 1] = the sums over features of (stationary^T @ moving + bias)^2."""
    shape = (stationary.shape[2], moving.shape[2])
    psum = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    contract(psum, stationary, moving, depth)
    squares = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    value = psum
    if bias != None:
        nisa.tensor_tensor(dst=squares, data1=psum, data2=bias, op=nl.add)
        value = squares
    nisa.activation(
        dst=squares,
        op=nl.square,
        data=value,
        bias=0.0,
        reduce_op=nl.add,
        reduce_res=dst,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
