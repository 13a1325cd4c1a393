"""LayerNorm and RMSNorm over rows, with an optional residual add in front.

    layer_norm: y = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias      s = x + residual
    rms_norm:   y = s / sqrt(mean(s^2) + eps) * weight

Layout: 128 tokens a tile, a token a partition; statistics run along the free axis.

Engines for one tile of width D, the steps of `NormTile`: VectorE D (load or add as float32), D
(mean and variance); ScalarE D (centre and sum again; the squares of an RMSNorm); VectorE D or 2 D
(scale, weight and bias). DMA: one read of each input and one write of each output. The kernels of
this file work on one tile at a time; block.py has the steps of several in flight.

LayerNorm centres twice. The first mean of large or equal values is off by rounding, and with the
eps of 1e-12 that ViT uses, a variance of zero would turn that rounding into visible output. After
one centring the values are small, so the second mean is exact enough for any input.

SBUF: one float32 row, centred in place, one row in the output dtype, weight and bias rows:
`limits.norm_bytes`.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import NORM_BLOCK, PARTITIONS, ceil_div
from .tiles import broadcast_row, program_share

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
        norm_tile(y, total, x, residual, first, last, weight_row, bias_row, eps, norm)
    if residual != None:
        return y, total
    return y


def norm_tile(y, total, x, residual, first, last, weight, bias, eps, norm):
    """HBM rows [first, last) of x (and residual) -> the same rows of y (and total)."""
    rows = load_sum(x, residual, total, first, last)
    out = nl.ndarray(rows.shape, dtype=x.dtype, buffer=nl.sbuf)
    tile = NormTile(out, rows, rows, weight, bias, eps, norm)
    tile.sum()
    tile.spread()
    tile.scale()
    nisa.dma_copy(dst=y[first:last, :], src=out)


def load_sum(x, residual, total, first, last):
    """x, or x + residual which is also stored to total, as float32 rows [first, last)."""
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
            nisa.tensor_tensor(dst=rows[:, low:high], data1=block, data2=other, op=nl.add)
            nisa.tensor_copy(dst=block, src=rows[:, low:high])
            nisa.dma_copy(dst=total[first:last, low:high], src=block)
    return rows


class NormTile(nl.NKIObject):
    """dst = norm(rows) * weight + bias for one tile, in three steps that alternate between engines.

    `sum` (VectorE), `spread` (ScalarE) and `scale` (VectorE). A kernel with several tiles issues
    the steps of neighbours side by side, so that no engine waits for the other.

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
        nisa.activation(
            dst=self.deviation,
            op=nl.rsqrt,
            data=self.variance,
            scale=self.scaled,
            bias=self.eps,
        )

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
        """dst = (values + minus_mean) * deviation * weight + bias. `values` is overwritten."""
        values = self.values
        if self.layer:
            nisa.tensor_scalar(
                dst=self.minus_mean,
                data=self.total,
                op0=nl.multiply,
                operand0=-1.0 / self.rows.shape[1],
            )
        if not self.layer:
            scale_rows(self.dst, values, nl.multiply, self.deviation, nl.multiply, self.weight)
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


def scale_rows(dst, rows, op0, column, op1, row):
    """dst = (rows op0 column) op1 row, without the second step if row is None.

    column: [count, 1] float32; row: broadcast row [128, width].
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
