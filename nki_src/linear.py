"""Linear layer: y = x W + b for rows of x.

Layout: a block of at most 512 tokens is loaded as rows and transposed to columns on the tensor
engine; each weight slab then serves all its tiles, x^T stationary and W moving, so the result
leaves PSUM as rows and the bias is added on the way out (VectorE).

SBUF: `limits.linear_bytes`.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import BANK, PARTITIONS, ceil_div
from .project import project_rows
from .tiles import load_rows, program_share, transpose_rows


@nki.jit
def linear(x, weight, bias, weight_layout):
    """x [T, K] times weight, plus bias [N] or None -> [T, N] in the dtype of x.

    weight: HBM [K, N] if weight_layout is "in_out", [N, K] (torch's Linear) if it is "out_in".
    bfloat16, float16 or float32, one dtype for all; products accumulate in float32.
    """
    tokens, depth = x.shape
    features = weight.shape[1] if weight_layout == "in_out" else weight.shape[0]
    y = nl.ndarray((tokens, features), dtype=x.dtype, buffer=nl.shared_hbm)
    begin, end = program_share(tokens, PARTITIONS)
    for first in range(begin, end, BANK):
        count = min(BANK, end - first)
        columns = load_transposed(x, first, count)
        rows = nl.ndarray(
            (PARTITIONS, ceil_div(count, PARTITIONS), features), dtype=x.dtype, buffer=nl.sbuf
        )
        project_rows(rows, columns, depth, weight, weight_layout, bias)
        store_tiles(y, first, count, rows)
    return y


def load_transposed(x, first, count):
    """HBM rows [first, first + count) of x [T, K] -> SBUF columns [128, chunks of K, count]."""
    width = x.shape[1]
    columns = nl.ndarray(
        (PARTITIONS, ceil_div(width, PARTITIONS), count), dtype=x.dtype, buffer=nl.sbuf
    )
    for start in range(0, count, PARTITIONS):
        size = min(PARTITIONS, count - start)
        rows = load_rows(x, first + start, size, width, x.dtype)
        transpose_rows(columns[:, :, start : start + size], rows, None, None)
    return columns


def store_tiles(target, first, count, rows):
    """SBUF rows [128, tiles, width] -> HBM rows [first, first + count) of target."""
    for tile in range(ceil_div(count, PARTITIONS)):
        start = tile * PARTITIONS
        size = min(PARTITIONS, count - start)
        nisa.dma_copy(
            dst=target[first + start : first + start + size, :], src=rows[0:size, tile, :]
        )
