"""Elementwise NKI kernels over [N, D]: what eager PyTorch launches between the big operations.

They exist for the modelled eager baseline only. Rows go 128 at a time to partitions; with two
cores each takes half of the tiles.
"""

import nki
import nki.isa as nisa
import nki.language as nl

ROWS = 128
FUNCTIONS = {
    "gelu": nl.gelu,
    "gelu_tanh": nl.gelu_apprx_tanh,
    "quick_gelu": nl.gelu_apprx_sigmoid,
    "silu": nl.silu,
}  # fmt: skip


def _load(source):
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def _starts(rows):
    tiles = (rows + ROWS - 1) // ROWS
    share = (tiles + nl.num_programs(0) - 1) // nl.num_programs(0)
    first = nl.program_id(0) * share
    return range(first * ROWS, min(rows, (first + share) * ROWS), ROWS)


@nki.jit
def add(x, y):
    """x + y."""
    return _combine(x, y, nl.add)


@nki.jit
def multiply(x, y):
    """x * y."""
    return _combine(x, y, nl.multiply)


def _combine(x, y, op):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in _starts(x.shape[0]):
        block = nl.ds(start, min(ROWS, x.shape[0] - start))
        tile = _load(x[block, :])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=_load(y[block, :]), op=op)
        nisa.dma_copy(dst=out[block, :], src=tile)
    return out


@nki.jit
def activate(x, activation):
    """The activation function of that name (see FUNCTIONS)."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in _starts(x.shape[0]):
        block = nl.ds(start, min(ROWS, x.shape[0] - start))
        tile = _load(x[block, :])
        nisa.activation(dst=tile, op=FUNCTIONS[activation], data=tile)
        nisa.dma_copy(dst=out[block, :], src=tile)
    return out


@nki.jit
def scale(x, gamma):
    """x * gamma with gamma [1, D] for every row."""
    rows, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    spread = nl.ndarray((ROWS, width), dtype=gamma.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=spread, src=gamma.broadcast(0, ROWS))
    for start in _starts(rows):
        size = min(ROWS, rows - start)
        block = nl.ds(start, size)
        tile = _load(x[block, :])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=spread[0:size, :], op=nl.multiply)
        nisa.dma_copy(dst=out[block, :], src=tile)
    return out
