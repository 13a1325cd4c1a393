"""LayerNorm and RMSNorm over rows, with an optional residual add in front.

    layer_norm: y = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias      s = x + residual
    rms_norm:   y = s / sqrt(mean(s^2) + eps) * weight

    ada_layer_norm, ada_rms_norm, the modulated norms of diffusion transformers, with shift, scale
    and gate of each image:  y = norm(s) * (1 + scale) + shift      s = residual + gate * x

Layout: 128 tokens a tile, a token a partition; statistics run along the free axis.

Engines for one tile of width D, the steps of `NormTile`: VectorE D (load or add as float32), D
(mean and variance); ScalarE D (centre and sum again; the squares of an RMSNorm); VectorE D or 2 D
(scale, weight and bias). DMA: one read of each input and one write of each output. The kernels of
this file work on one tile at a time; `NormColumns` has the steps of several in flight. A modulated
norm first folds what an image brings into the weight and bias rows (VectorE 1 to 3 D an image), and
a gate costs VectorE D a tile; its tiles end where an image ends.

LayerNorm centres twice. The first mean of large or equal values is off by rounding, and with the
eps of 1e-12 that ViT uses, a variance of zero would turn that rounding into visible output. After
one centring the values are small, so the second mean is exact enough for any input.

SBUF: one float32 row, centred in place, one row in the output dtype, weight and bias rows:
`limits.norm_bytes`; with modulation these are float32, and a gate row is added:
`limits.ada_norm_bytes`.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import NORM_BLOCK, PARTITIONS, ceil_div
from .tiles import broadcast_row, inverse_root, program_share, transpose_rows

# Steps after its `sum` that a tile still has in `NormColumns`.
FLUSH = 4

# Elements of a row that one bn_stats takes (NKI 0.6 reference, nki.language.tile_size:
# bn_stats_fmax).
STATISTICS = 512


@nki.jit
def layer_norm(x, weight, bias, residual, eps):
    """LayerNorm of the rows of x, after adding residual if it is given.

    x: HBM [N, D] bfloat16, float16 or float32. weight, bias: HBM [D] or None. residual: HBM
    [N, D] or None. eps: float > 0. All tensors have one dtype.
    Returns y [N, D] in that dtype; with a residual, (y, s) where s = x + residual rounded to the
    dtype. The norm sees s before rounding.
    """
    return norm_kernel(x, weight, bias, residual, eps, "layer")


@nki.jit
def rms_norm(x, weight, residual, eps):
    """RMSNorm of the rows of x, after adding residual if it is given.

    Arguments and results as `layer_norm`, without a bias.
    """
    return norm_kernel(x, weight, None, residual, eps, "rms")


def norm_kernel(x, weight, bias, residual, eps, norm):
    tokens, width = x.shape
    y = nl.ndarray((tokens, width), dtype=x.dtype, buffer=nl.shared_hbm)
    total = None
    if residual != None:
        total = nl.ndarray((tokens, width), dtype=x.dtype, buffer=nl.shared_hbm)
    weight_row = broadcast_row(weight, 0, width)
    bias_row = broadcast_row(bias, 0, width)
    begin, end = program_share(tokens, PARTITIONS)
    for first in range(begin, end, PARTITIONS):
        last = min(first + PARTITIONS, end)
        norm_tile(y, total, x, residual, None, first, last, weight_row, bias_row, eps, norm)
    if residual != None:
        return y, total
    return y


@nki.jit
def ada_layer_norm(x, shift, scale, weight, bias, residual, gate, eps):
    """LayerNorm of the tokens of x, modulated by one shift and one scale an image.

    x: HBM [B, S, D] bfloat16, float16 or float32. shift, scale: HBM [B, D]. weight, bias: HBM [D]
    or None. residual: HBM [B, S, D] or None. gate: HBM [B, D] or None; only with a residual.
    eps: float > 0. All tensors have one dtype.
    Returns y [B, S, D] = (LayerNorm(s) * weight + bias) * (1 + scale) + shift in that dtype, with
    s = x; with a residual (y, s), where s = residual + gate * x (gate None: residual + x) rounded
    to the dtype. The norm sees s before rounding.
    """
    return ada_norm_kernel(x, shift, scale, weight, bias, residual, gate, eps, "layer")


@nki.jit
def ada_rms_norm(x, shift, scale, weight, residual, gate, eps):
    """RMSNorm of the tokens of x, modulated by one shift and one scale an image.

    Arguments and results as `ada_layer_norm`, without a bias.
    """
    return ada_norm_kernel(x, shift, scale, weight, None, residual, gate, eps, "rms")


def ada_norm_kernel(x, shift, scale, weight, bias, residual, gate, eps, norm):
    batch, length, width = x.shape
    shape = (batch * length, width)
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = None
    total_rows = None
    residual_rows = None
    if residual != None:
        total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        total_rows = total.reshape(shape)
        residual_rows = residual.reshape(shape)
    weight_row = broadcast_row(weight, 0, width)
    bias_row = broadcast_row(bias, 0, width)
    begin, end = program_share(batch * length, PARTITIONS)
    for image in range(batch):
        low = max(begin, image * length)
        high = min(end, (image + 1) * length)
        if low < high:
            # Kept by `modulation` alone, so that they are gone when the next image needs the space.
            modulation = None
            modulation = Modulation(image, shift, scale, gate, weight_row, bias_row)
            for first in range(low, high, PARTITIONS):
                norm_tile(
                    y.reshape(shape),
                    total_rows,
                    x.reshape(shape),
                    residual_rows,
                    modulation.gate,
                    first,
                    min(first + PARTITIONS, high),
                    modulation.weight,
                    modulation.bias,
                    eps,
                    norm,
                )
    if residual != None:
        return y, total
    return y


class Modulation(nl.NKIObject):
    """What one image brings to its norm, as rows that are the same on all 128 partitions.

    shift, scale: HBM [B, D]; gate: HBM [B, D] or None; weight, bias: broadcast rows of the norm's
    own parameters, or None. Since (n * weight + bias) * (1 + scale) + shift is linear in n, the
    attributes weight and bias are the rows of one norm with both: weight * (1 + scale) and
    bias * (1 + scale) + shift.
    """

    def __init__(self, image, shift, scale, gate, weight, bias):
        self.weight = nl.ndarray((PARTITIONS, shift.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
        scale_row = image_row(scale, image)
        scale_rows(self.weight, scale_row, nl.add, 1.0, nl.multiply, weight)
        self.bias = image_row(shift, image)
        if bias != None:
            offset = nl.ndarray(self.weight.shape, dtype=nl.float32, buffer=nl.sbuf)
            scale_rows(offset, scale_row, nl.add, 1.0, nl.multiply, bias)
            nisa.tensor_tensor(dst=offset, data1=offset, data2=self.bias, op=nl.add)
            self.bias = offset
        self.gate = image_row(gate, image)


def image_row(vectors, image):
    """HBM vectors[image] of [B, D] -> SBUF [128, D], the same row on every partition; or None."""
    if vectors == None:
        return None
    batch, width = vectors.shape
    return broadcast_row(vectors.reshape((batch * width,)), image * width, width)


def norm_tile(y, total, x, residual, gate, first, last, weight, bias, eps, norm):
    """HBM rows [first, last) of x (and residual) -> the same rows of y (and total)."""
    rows = load_sum(x, residual, gate, total, first, last)
    out = nl.ndarray(rows.shape, dtype=x.dtype, buffer=nl.sbuf)
    tile = NormTile(out, rows, rows, weight, bias, eps, norm)
    tile.sum()
    tile.spread()
    tile.scale()
    nisa.dma_copy(dst=y[first:last, :], src=out)


def load_sum(x, residual, gate, total, first, last):
    """x, or residual + gate * x which is also stored to total, as float32 rows [first, last).

    gate: broadcast row [128, width], or None for residual + x.
    """
    width = x.shape[1]
    count = last - first
    rows = nl.ndarray((count, width), dtype=nl.float32, buffer=nl.sbuf)
    for low in range(0, width, NORM_BLOCK):
        high = min(low + NORM_BLOCK, width)
        block = nl.ndarray((count, high - low), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=block, src=x[first:last, low:high])
        if residual == None:
            nisa.tensor_copy(dst=rows[:, low:high], src=block)
        else:
            other = nl.ndarray((count, high - low), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=other, src=residual[first:last, low:high])
            update = block
            if gate != None:
                update = rows[:, low:high]
                nisa.tensor_tensor(
                    dst=update, data1=block, data2=gate[0:count, low:high], op=nl.multiply
                )
            nisa.tensor_tensor(dst=rows[:, low:high], data1=update, data2=other, op=nl.add)
            nisa.tensor_copy(dst=block, src=rows[:, low:high])
            nisa.dma_copy(dst=total[first:last, low:high], src=block)
    return rows


class NormTile(nl.NKIObject):
    """dst = norm(rows) * weight + bias for one tile, in three steps that alternate between engines.

    `sum` (VectorE), `spread` (ScalarE; GpSimd for the root) and `scale` (VectorE). A kernel with
    several tiles issues the steps of neighbours side by side, so that no engine waits for the
    other.

    dst, rows: SBUF [count, width] of any float dtype; the result is rounded once. values: float32
    rows of the same shape for the centred input of a LayerNorm; `rows` itself if they may be
    overwritten; not used by "rms". weight, bias: rows [128, width] of any float dtype, or None.
    norm: "layer" or "rms".
    """

    def __init__(self, dst, rows, values, weight, bias, eps, norm):
        self.dst = dst
        self.rows = rows
        self.weight = weight
        self.bias = bias
        self.eps = eps
        self.layer = norm == "layer"
        self.total = nl.ndarray((rows.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        self.deviation = nl.ndarray((rows.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        self.values = values if self.layer else rows
        self.minus_mean = 0.0
        self.variance = self.total
        self.scaled = 1.0 / rows.shape[1]
        if self.layer:
            self.minus_mean = nl.ndarray((rows.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
            self.scaled = 1.0

    def sum(self):
        """Minus the first mean and the variance of a LayerNorm; nothing for "rms"."""
        if self.layer:
            width = self.rows.shape[1]
            count = self.rows.shape[0]
            blocks = ceil_div(width, STATISTICS)
            parts = nl.ndarray((count, blocks, 6), dtype=nl.float32, buffer=nl.sbuf)
            for block in range(blocks):
                low = block * STATISTICS
                high = min(low + STATISTICS, width)
                nisa.bn_stats(dst=parts[:, block, :], data=self.rows[:, low:high])
            moments = nl.ndarray((count, 2), dtype=nl.float32, buffer=nl.sbuf)
            nisa.bn_aggr(dst=moments, data=parts)
            nisa.tensor_scalar(
                dst=self.minus_mean, data=moments[:, 0:1], op0=nl.multiply, operand0=-1.0
            )
            self.variance = moments[:, 1:2]

    def spread(self):
        """The inverse deviation; the centred rows and the sum that rounding left in them.

        The squares of "rms" go to dst, where nothing reads them.
        """
        if self.layer:
            self.accumulate(self.values, nl.copy, self.rows)
        else:
            self.accumulate(self.dst, nl.square, self.values)
        inverse_root(self.deviation, self.variance, self.scaled, self.eps)

    def accumulate(self, dst, op, data):
        """dst = op(data + minus_mean), and its row sums in `total`."""
        nisa.activation(
            dst=dst,
            op=op,
            data=data,
            bias=self.minus_mean,
            reduce_op=nl.add,
            reduce_res=self.total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )

    def scale(self):
        """dst = (values + minus_mean) * deviation * weight + bias. `values` may be overwritten."""
        values = self.values
        if self.layer:
            nisa.tensor_scalar(
                dst=self.minus_mean,
                data=self.total,
                op0=nl.multiply,
                operand0=-1.0 / self.rows.shape[1],
            )
        if not self.layer:
            target = self.dst if self.bias == None else values
            scale_rows(target, values, nl.multiply, self.deviation, nl.multiply, self.weight)
            if self.bias != None:
                nisa.tensor_tensor(
                    dst=self.dst,
                    data1=values,
                    data2=self.bias[0 : values.shape[0], :],
                    op=nl.add,
                )
        elif self.weight == None and self.bias == None:
            nisa.tensor_scalar(
                dst=self.dst,
                data=values,
                op0=nl.add,
                operand0=self.minus_mean,
                op1=nl.multiply,
                operand1=self.deviation,
            )
        else:
            scale_rows(values, values, nl.add, self.minus_mean, nl.multiply, self.weight)
            scale_rows(self.dst, values, nl.multiply, self.deviation, nl.add, self.bias)


class NormColumns(nl.NKIObject):
    """The norm of a sequence of row tiles, transposed to SBUF columns [128, chunks, count].

    weight, bias: columns [128, chunks] float32 or None; kind: "layer" or "rms".
    `push` takes the tiles in order. In flight, the steps of four tiles (`NormTile` and the
    transpose) are issued side by side, while another waits for its transpose; otherwise a tile is
    done with before the next one comes.
    `NormWork` pushes and ends it. late: a row [128, width] that GpSimd, which has little else to
    do, adds to the tiles when their norm does not need them any more, or None.
    """

    def __init__(self, width, count, dtype, weight, bias, eps, kind, flight, late=None):
        self.weight = weight
        self.bias = bias
        self.eps = eps
        self.kind = kind
        self.flight = flight
        self.late = late
        self.columns = nl.ndarray(
            (PARTITIONS, ceil_div(width, PARTITIONS), count), dtype=dtype, buffer=nl.sbuf
        )
        self.summed = None
        self.spread = None
        self.scaled = None
        self.waiting = None
        self.done = 0

    def push(self, rows):
        """The next tile: SBUF rows [<= 128, width] of any float dtype; only `late` changes them."""
        normed = nl.ndarray(rows.shape, dtype=self.columns.dtype, buffer=nl.sbuf)
        values = None
        if self.kind == "layer":
            values = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
        tile = NormTile(normed, rows, values, None, None, self.eps, self.kind)
        tile.sum()
        self.advance(tile)
        if not self.flight:
            for _ in range(FLUSH):
                self.advance(None)

    def tick(self):
        """Time for a step of the tiles in flight although the next tile has not come."""
        if self.waiting != None:
            self.advance(None)
        elif self.scaled != None and (self.summed != None or self.spread != None):
            self.advance(None)

    def advance(self, tile):
        """One step of each tile in flight; `tile`, or None, is the next to follow them."""
        if self.waiting != None:
            low = self.done
            high = low + self.waiting.dst.shape[0]
            transpose_rows(self.columns[:, :, low:high], self.waiting.dst, self.weight, self.bias)
            self.done = high
        if self.summed != None:
            self.summed.spread()
        if self.spread != None:
            self.spread.scale()
            if self.late != None:
                rows = self.spread.rows
                nisa.tensor_tensor(
                    dst=rows,
                    data1=rows,
                    data2=self.late[0 : rows.shape[0], :],
                    op=nl.add,
                    engine=nisa.engine.gpsimd,
                )
            # Only the result is still wanted.
            self.spread.values = None
            self.spread.rows = None
        self.waiting = self.scaled
        self.scaled = self.spread
        self.spread = self.summed
        self.summed = tile

    def finish(self):
        """Ends the steps of the tiles in flight -> the columns."""
        for _ in range(FLUSH):
            self.advance(None)
        return self.columns


def scale_rows(dst, rows, op0, column, op1, row):
    """dst = (rows op0 column) op1 row, without the second step if row is None.

    column: [count, 1] float32, or a number; row: broadcast row [128, width].
    """
    if row == None:
        nisa.tensor_scalar(dst=dst, data=rows, op0=op0, operand0=column)
    else:
        nisa.scalar_tensor_tensor(
            dst=dst,
            data=rows,
            op0=op0,
            operand0=column,
            op1=op1,
            operand1=row[0 : rows.shape[0], :],
        )
