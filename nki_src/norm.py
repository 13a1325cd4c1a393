"""LayerNorm and RMSNorm over rows, with an optional residual add in front.

    layer_norm: y = (s - mean(s)) / sqrt(var(s) + eps) * weight + bias      s = x + residual
    rms_norm:   y = s / sqrt(mean(s^2) + eps) * weight

Layout: 128 tokens a tile, a token a partition; statistics run along the free axis.

Engines for one tile of width D: VectorE D (sum), ScalarE D (centre and sum again), ScalarE D
(square and sum), VectorE D or 2 D (scale, weight and bias); DMA one read of each input and one
write of each output.

LayerNorm centres twice. The first mean of large or equal values is off by rounding, and with the
eps of 1e-12 that ViT uses, a variance of zero would turn that rounding into visible output. After
one centring the values are small, so the second mean and the variance are exact enough for any
input.

SBUF: one float32 row, one row in the output dtype, weight and bias rows: `limits.norm_bytes`.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import NORM_BLOCK, PARTITIONS
from .tiles import broadcast_row, program_share


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
    normalize_rows(out, rows, weight, bias, eps, norm)
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


def normalize_rows(dst, rows, weight, bias, eps, norm):
    """dst = norm(rows) * weight + bias for SBUF rows [count, width].

    rows: float32, overwritten. dst: any float dtype, rounded once at the end. weight, bias: rows
    [128, width] of any float dtype, or None. norm: "layer" or "rms".
    """
    if norm == "rms":
        scale = inverse_deviation(dst, rows, 0.0, eps)
        scale_rows(dst, rows, nl.multiply, scale, nl.multiply, weight)
    else:
        minus_mean = center_rows(rows)
        scale = inverse_deviation(dst, rows, minus_mean, eps)
        if weight == None and bias == None:
            nisa.tensor_scalar(
                dst=dst, data=rows, op0=nl.add, operand0=minus_mean, op1=nl.multiply, operand1=scale
            )
        else:
            scale_rows(rows, rows, nl.add, minus_mean, nl.multiply, weight)
            scale_rows(dst, rows, nl.multiply, scale, nl.add, bias)


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


def center_rows(rows):
    """Subtract each row's mean in place; return minus what is left of it, [count, 1]."""
    count, width = rows.shape
    total = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
    minus_mean = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=rows, axis=1)
    nisa.tensor_scalar(dst=minus_mean, data=total, op0=nl.multiply, operand0=-1.0 / width)
    nisa.activation(
        dst=rows,
        op=nl.copy,
        data=rows,
        bias=minus_mean,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    rest = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=rest, data=total, op0=nl.multiply, operand0=-1.0 / width)
    return rest


def inverse_deviation(scratch, rows, minus_mean, eps):
    """1 / sqrt(mean((row + minus_mean)^2) + eps) -> float32 [count, 1]. scratch is overwritten."""
    count, width = rows.shape
    total = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
    scale = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(
        dst=scratch,
        op=nl.square,
        data=rows,
        bias=minus_mean,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    nisa.activation(dst=scale, op=nl.rsqrt, data=total, scale=1.0 / width, bias=eps)
    return scale
