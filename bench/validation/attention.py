"""Attention of one head, as the published series on trn1 describes its steps.

q and k are [d, S] with d = 128 on partitions, v is [S, d], all in HBM; the result is [S, d].
``online`` keeps a running maximum and float32 intermediates and does one block after the other.
``pipelined`` keeps bfloat16 probabilities of a whole row block and issues the products of the next
row block before it finishes the current one.
"""

import nki
import nki.isa as nisa
import nki.language as nl

ROWS = 128
KEYS = 512


def _load(source):
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def _load_values(v, dtype):
    """v as [128, blocks * d] in SBUF: block b of 128 keys at columns b * d."""
    keys, dim = v.shape
    blocks = keys // ROWS
    held = nl.ndarray((ROWS, blocks, dim), dtype=v.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=held, src=v.reshape((blocks, ROWS, dim)).permute((1, 0, 2)))
    if v.dtype == dtype:
        return held
    wide = nl.ndarray((ROWS, blocks, dim), dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide, src=held)
    return wide


def _column(value):
    tile = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile


def _transposed(rows, dtype):
    """The four [128, 128] blocks of rows [128, 512], each transposed, in SBUF."""
    turned = nl.ndarray((ROWS, KEYS), dtype=dtype, buffer=nl.sbuf)
    psum = nl.ndarray((ROWS, KEYS), dtype=dtype, buffer=nl.psum)
    for block in range(KEYS // ROWS):
        part = nl.ds(block * ROWS, ROWS)
        nisa.nc_transpose(dst=psum[:, part], data=rows[:, part])
    nisa.tensor_copy(dst=turned, src=psum)
    return turned


@nki.jit
def online(q, k, v):
    """Online softmax, float32 intermediates, no overlap of blocks in the program order."""
    dim, size = q.shape
    out = nl.ndarray((size, dim), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = _load(k)
    values = _load_values(v, nl.float32)
    for row in range(size // ROWS):
        queries = _load(q[:, nl.ds(row * ROWS, ROWS)])
        largest = _column(-3.0e38)
        total = _column(0.0)
        result = nl.ndarray((ROWS, dim), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=result, value=0.0)
        for block in range(size // KEYS):
            scores = nl.ndarray((ROWS, KEYS), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(
                dst=scores, stationary=queries, moving=keys[:, nl.ds(block * KEYS, KEYS)]
            )
            now = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=now, op=nl.maximum, data=scores, axis=1)
            newest = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=newest, data1=now, data2=largest, op=nl.maximum)
            negative = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=negative, data=newest, op0=nl.multiply, operand0=-1.0)
            shrink = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=shrink, op=nl.exp, data=largest, bias=negative)
            weights = nl.ndarray((ROWS, KEYS), dtype=nl.float32, buffer=nl.sbuf)
            part = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation_reduce(
                dst=weights, op=nl.exp, data=scores, reduce_op=nl.add, reduce_res=part,
                bias=negative,
            )  # fmt: skip
            nisa.scalar_tensor_tensor(
                dst=total, data=total, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=part
            )
            turned = _transposed(weights, nl.float32)
            mixed = nl.ndarray((ROWS, dim), dtype=nl.float32, buffer=nl.psum)
            _mix(mixed, turned, values, block)
            nisa.scalar_tensor_tensor(
                dst=result, data=result, op0=nl.multiply, operand0=shrink, op1=nl.add,
                operand1=mixed,
            )  # fmt: skip
            largest = newest
        _finish(out[nl.ds(row * ROWS, ROWS), :], result, total)
    return out


def _mix(mixed, turned, values, block):
    """mixed += weights of one block of keys @ its values."""
    for piece in range(KEYS // ROWS):
        nisa.nc_matmul(
            dst=mixed,
            stationary=turned[:, nl.ds(piece * ROWS, ROWS)],
            moving=values[:, block * (KEYS // ROWS) + piece, :],
        )


def _finish(rows, result, total):
    inverse = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=inverse, data=total)
    scaled = nl.ndarray(result.shape, dtype=rows.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scaled, data=result, op0=nl.multiply, operand0=inverse)
    nisa.dma_copy(dst=rows, src=scaled)


class _Scores(nl.NKIObject):
    """Scores of one row block in SBUF [128, S], filled block by block, and their row maxima."""

    def __init__(self, q, row, size):
        self.queries = _load(q[:, nl.ds(row * ROWS, ROWS)])
        self.values = nl.ndarray((ROWS, size), dtype=nl.float32, buffer=nl.sbuf)
        self.largest = nl.ndarray((ROWS, size // KEYS), dtype=nl.float32, buffer=nl.sbuf)

    def fill(self, keys, block):
        """One block of 512 keys: product, maximum, evacuation."""
        columns = nl.ds(block * KEYS, KEYS)
        psum = nl.ndarray((ROWS, KEYS), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=psum, stationary=self.queries, moving=keys[:, columns])
        nisa.tensor_reduce(dst=self.largest[:, block : block + 1], op=nl.maximum, data=psum, axis=1)
        nisa.tensor_copy(dst=self.values[:, columns], src=psum)

    def negated_maximum(self):
        """Minus the largest score of each row."""
        negative = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=negative, op=nl.maximum, data=self.largest, axis=1, negate=True)
        return negative

    def weights(self, block, negative, sums):
        """exp(scores - maximum) of one block in bfloat16; its row sums go to ``sums``."""
        columns = nl.ds(block * KEYS, KEYS)
        weights = nl.ndarray((ROWS, KEYS), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=weights, op=nl.exp, data=self.values[:, columns], reduce_op=nl.add,
            reduce_res=sums[:, block : block + 1], bias=negative,
        )  # fmt: skip
        return weights


@nki.jit
def pipelined(q, k, v):
    """The scores of the next row block are computed among the products of the current one."""
    dim, size = q.shape
    out = nl.ndarray((size, dim), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = _load(k)
    values = _load_values(v, nl.bfloat16)
    rows, blocks = size // ROWS, size // KEYS
    current = _Scores(q, 0, size)
    for block in range(blocks):
        current.fill(keys, block)
    for row in range(rows):
        previous, negative = current, current.negated_maximum()
        sums = nl.ndarray((ROWS, blocks), dtype=nl.float32, buffer=nl.sbuf)
        if row + 1 < rows:
            current = _Scores(q, row + 1, size)
        mixed = nl.ndarray((ROWS, dim), dtype=nl.float32, buffer=nl.psum)
        waiting = None
        for block in range(blocks):
            weights = previous.weights(block, negative, sums)
            if row + 1 < rows:
                current.fill(keys, block)
            turned = _transposed(weights, nl.bfloat16)
            if block > 0:
                _mix(mixed, waiting, values, block - 1)
            waiting = turned
        _mix(mixed, waiting, values, blocks - 1)
        total = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=sums, axis=1)
        _finish(out[nl.ds(row * ROWS, ROWS), :], mixed, total)
    return out
