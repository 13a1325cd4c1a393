"""Bidirectional attention, softmax(scale * Q K^T) V, for every head of every image.

Layout, for one image and a pass of heads (d = head size):

    queries, keys   columns  [d, heads, tokens]                d on partitions
    values          rows     [128, key tiles, heads, d + 1]    last column is ones
    numerators      P^T      [128 keys, key tiles, heads, queries]
    output          rows     [128 queries, heads, d]

1. Row maxima. Scores with queries on partitions, `Q K^T`, reduced by VectorE straight from PSUM.
2. Numerators. Scores with keys on partitions, `K Q^T`, are already the stationary operand of the
   product with V, so P is never transposed. A query's maximum then lies along the free axis, where
   no engine can subtract it for free; the tensor engine does: one more row pair a head is
   contracted into the same PSUM group (see `shift_rows`). ScalarE evicts exp(scale * x).
3. Output. The column of ones makes the denominators one more output column; VectorE divides while
   it evicts.

Keys beyond the sequence never exist: the last tile is short, no mask is involved, and whatever
lies behind the tensor in HBM is not read. The maximum is exact; logits up to 1e6 are safe in every
dtype (scores before scaling up to 1e8 in float16). A query or key that is NaN or infinite makes its
position NaN in all heads of the pass, not only in its own.

Tensor engine cycles for S queries and keys: about 3 S a tile of 128 keys (maxima, scores, shift)
plus (d + 1) a tile pair. ScalarE evicts S^2 / 128 numerators a head, VectorE reduces as many
scores. SBUF: `limits.attention_bytes`.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import (
    BANK,
    PARTITIONS,
    attention_heads,
    ceil_div,
    heads_per_chunk,
    query_block,
    scores_heads,
)
from .tiles import available_bytes, dtype_bytes, program_share

# The shift of a query is split in two values of the operand dtype, SHIFT_STEP * high + low: the
# pair holds a float32 maximum to 2^-16 of itself in bfloat16, and both stay in the range of float16
# for any score, before scaling, below 1e8. A power of two, so float32 loses nothing. Our choice.
SHIFT_STEP = 4096.0


@nki.jit
def attention(q, k, v, scale, q_view, k_view, v_view):
    """softmax(scale * q k^T) v over the last two axes, no mask -> HBM [B, Sq, H, D] in q's dtype.

    q: [B, H, Sq, D]; k, v: [B, H, Sk, D]; Sq, Sk <= 4096, D <= 128; bfloat16, float16 or float32,
    one dtype. scale: float. A *_view of None means a dense tensor; otherwise the tensor is a 1-D
    window and the view its ((B, H, S, D), (strides in elements)): a strided PyTorch tensor is
    read where it lies.
    """
    batch, heads, q_len, dim = q.shape if q_view == None else q_view[0]
    k_len = k.shape[2] if k_view == None else k_view[0][2]
    item = dtype_bytes(q.dtype)
    step = attention_heads(heads, q_len, k_len, dim, item, available_bytes())
    assert step > 0, (
        f"attention: {q_len} x {k_len} tokens of head size {dim} do not fit on the chip"
    )
    out = nl.ndarray((batch, q_len, heads, dim), dtype=q.dtype, buffer=nl.shared_hbm)
    begin, end = program_share(heads, 1) if batch == 1 else (0, heads)
    first_image, last_image = program_share(batch, 1) if batch > 1 else (0, 1)
    selectors = shift_selectors(end - begin, step, q.dtype)
    for image in range(first_image, last_image):
        for first in range(begin, end, step):
            count = min(step, end - first)
            selector = selectors[0] if count == step else selectors[1]
            attend_pass(out, image, first, count, q, k, v, scale, q_view, k_view, v_view, selector)
    return out


def attend_pass(out, image, first, count, q, k, v, scale, q_view, k_view, v_view, selector):
    """Heads [first, first + count) of one image, from HBM to HBM."""
    queries = load_heads(q, q_view, image, first, count)
    keys = load_heads(k, k_view, image, first, count)
    values = load_values(v, v_view, image, first, count)
    dim, _, q_len = queries.shape
    block = query_block(q_len, keys.shape[2], dtype_bytes(q.dtype))
    for start in range(0, q_len, block):
        size = min(block, q_len - start)
        rows = nl.ndarray(
            (PARTITIONS, ceil_div(size, PARTITIONS), count, dim), dtype=q.dtype, buffer=nl.sbuf
        )
        attend(rows, queries[:, :, start : start + size], keys, values, scale, selector)
        store_heads(out, image, start, size, first, rows)


def attend(dst, queries, keys, values, scale, selector):
    """Attention of one image for a block of queries that fits a PSUM bank.

    dst: SBUF rows [128, query tiles, heads, d]; queries: columns [d, heads, Sq <= 512]; keys:
    columns [d, heads, Sk]; values: rows [128, key tiles, heads, d + 1] with ones in the last
    column; scale: float; selector: `shift_selector` of as many heads.
    """
    heads = queries.shape[1]
    q_len = queries.shape[2]
    shift = shift_rows(queries, keys, scale)
    step = scores_heads(heads, q_len, keys.shape[2], dtype_bytes(queries.dtype))
    for first in range(0, heads, step):
        last = min(first + step, heads)
        numerators = exponentials(queries, keys, shift, selector, first, last, scale)
        for tile in range(ceil_div(q_len, PARTITIONS)):
            low = tile * PARTITIONS
            high = min(low + PARTITIONS, q_len)
            weighted_values(
                dst[0 : high - low, tile, first:last, :],
                numerators[:, :, :, low:high],
                values,
                keys,
                first,
            )


def shift_selectors(heads, step, dtype):
    """The selectors of a full pass of `step` heads and of the last, shorter one (or None).

    Made once, before anything else is on the chip: they outlive every other tile.
    """
    full = None
    last = None
    if heads >= step:
        full = shift_selector(step, dtype)
    if heads % step > 0:
        last = shift_selector(heads % step, dtype)
    return full, last


def shift_selector(heads, dtype):
    """[2 heads, heads]: column h holds SHIFT_STEP in row h and 1 in row heads + h, else 0.

    A column, repeated along the free axis, is the stationary operand that adds
    SHIFT_STEP * high + low of head h, and nothing of the other heads, to every key.
    """
    identity = nl.shared_identity_matrix(2 * heads, dtype=dtype)
    selector = nl.ndarray((2 * heads, heads), dtype=dtype, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=selector,
        data=identity[:, 0:heads],
        op0=nl.multiply,
        operand0=SHIFT_STEP,
        op1=nl.add,
        operand1=identity[:, heads : 2 * heads],
    )
    return selector


def shift_rows(queries, keys, scale):
    """Minus the score of every query that scale makes the largest: rows [2 heads, Sq], highs
    then lows.

    The maxima of a tile of queries come out as a column a head; the tensor engine turns the
    columns of all heads into rows at once.
    """
    heads = queries.shape[1]
    q_len = queries.shape[2]
    dtype = queries.dtype
    rows = nl.ndarray((2 * heads, q_len), dtype=dtype, buffer=nl.sbuf)
    for low in range(0, q_len, PARTITIONS):
        high = min(low + PARTITIONS, q_len)
        count = high - low
        largest = row_maxima(queries[:, :, low:high], keys, scale)
        pair = nl.ndarray((count, 2 * heads), dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=pair[:, 0:heads], data=largest, op0=nl.multiply, operand0=-1.0 / SHIFT_STEP
        )
        nisa.scalar_tensor_tensor(
            dst=pair[:, heads : 2 * heads],
            data=pair[:, 0:heads],
            op0=nl.multiply,
            operand0=-SHIFT_STEP,
            op1=nl.subtract,
            operand1=largest,
        )
        psum = nl.ndarray((2 * heads, count), dtype=dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=psum, data=pair)
        nisa.tensor_copy(dst=rows[:, low:high], src=psum)
    return rows


def row_maxima(queries, keys, scale):
    """Largest score of each query of a tile: [d, heads, <= 128] -> float32 [queries, heads].

    The scores are not scaled yet, so for a negative scale it is the smallest that is wanted.
    As many heads as fit share a PSUM bank, so that short sequences need few instructions.
    """
    heads = queries.shape[1]
    count = queries.shape[2]
    k_len = keys.shape[2]
    blocks = ceil_div(k_len, BANK)
    shared = max(1, BANK // k_len)
    extreme = nl.maximum if scale >= 0.0 else nl.minimum
    partial = nl.ndarray((count, heads, blocks), dtype=nl.float32, buffer=nl.sbuf)
    for block in range(blocks):
        low = block * BANK
        high = min(low + BANK, k_len)
        for first in range(0, heads, shared):
            last = min(first + shared, heads)
            psum = nl.ndarray((count, last - first, high - low), dtype=nl.float32, buffer=nl.psum)
            for head in range(first, last):
                nisa.nc_matmul(
                    dst=psum[:, head - first, :],
                    stationary=queries[:, head, :],
                    moving=keys[:, head, low:high],
                )
            nisa.tensor_reduce(dst=partial[:, first:last, block], op=extreme, data=psum, axis=2)
    if blocks == 1:
        return partial[:, :, 0]
    largest = nl.ndarray((count, heads), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=largest, op=extreme, data=partial, axis=2)
    return largest


def exponentials(queries, keys, shift, selector, first, last, scale):
    """exp(scale * (score - largest)) of heads [first, last): [128 keys, key tiles, heads, Sq]."""
    q_len = queries.shape[2]
    k_len = keys.shape[2]
    shared = max(1, BANK // q_len)
    numerators = nl.ndarray(
        (PARTITIONS, ceil_div(k_len, PARTITIONS), last - first, q_len),
        dtype=queries.dtype,
        buffer=nl.sbuf,
    )
    for tile in range(ceil_div(k_len, PARTITIONS)):
        low = tile * PARTITIONS
        count = min(PARTITIONS, k_len - low)
        for start in range(first, last, shared):
            stop = min(start + shared, last)
            psum = nl.ndarray((count, stop - start, q_len), dtype=nl.float32, buffer=nl.psum)
            for head in range(start, stop):
                scores = psum[:, head - start, :]
                nisa.nc_matmul(
                    dst=scores,
                    stationary=keys[:, head, low : low + count],
                    moving=queries[:, head, :],
                    accumulate=False,
                )
                nisa.nc_matmul(
                    dst=scores,
                    stationary=selector[:, head : head + 1].broadcast(1, count),
                    moving=shift,
                    accumulate=True,
                )
            nisa.activation(
                dst=numerators[0:count, tile, start - first : stop - first, :],
                op=nl.exp,
                data=psum,
                scale=scale,
            )
    return numerators


def weighted_values(dst, numerators, values, keys, first):
    """dst[q, h, :] = sum_k P[q, k] V[k, :] / sum_k P[q, k] for one tile of queries.

    dst: rows [count, heads, d]; numerators: [128 keys, key tiles, heads, count]; values: rows of
    all heads of the pass, of which `first` is the first used here.
    """
    count, heads, dim = dst.shape
    k_len = keys.shape[2]
    shared = BANK // (dim + 1)
    for start in range(0, heads, shared):
        stop = min(start + shared, heads)
        psum = nl.ndarray((count, stop - start, dim + 1), dtype=nl.float32, buffer=nl.psum)
        for head in range(start, stop):
            for tile in range(ceil_div(k_len, PARTITIONS)):
                size = min(PARTITIONS, k_len - tile * PARTITIONS)
                nisa.nc_matmul(
                    dst=psum[:, head - start, :],
                    stationary=numerators[0:size, tile, head, :],
                    moving=values[0:size, tile, first + head, :],
                    accumulate=(tile > 0),
                )
        inverse = nl.ndarray((count, stop - start, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=psum[:, :, dim : dim + 1])
        nisa.tensor_tensor(
            dst=dst[:, start:stop, :],
            data1=psum[:, :, 0:dim],
            data2=inverse.broadcast(2, dim),
            op=nl.multiply,
        )


def token_major(tensor, view, image, low, high, first, count):
    """HBM view [high - low tokens, count heads, d] of one image of a dense or strided tensor."""
    if view == None:
        batch, heads, length, dim = tensor.shape
        strides = (heads * length * dim, length * dim, dim, 1)
        window = tensor.reshape((batch * heads * length * dim,))
    else:
        dim = view[0][3]
        strides = view[1]
        window = tensor
    return window.ap(
        pattern=[[strides[2], high - low], [strides[1], count], [strides[3], dim]],
        offset=image * strides[0] + first * strides[1] + low * strides[2],
    )


def load_heads(tensor, view, image, first, count):
    """Heads [first, first + count) of one image -> SBUF columns [d, count, tokens]."""
    shape = tensor.shape if view == None else view[0]
    length = shape[2]
    dim = shape[3]
    columns = nl.ndarray((dim, count, length), dtype=tensor.dtype, buffer=nl.sbuf)
    for low in range(0, length, PARTITIONS):
        high = min(low + PARTITIONS, length)
        rows = nl.ndarray((high - low, count, dim), dtype=tensor.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=token_major(tensor, view, image, low, high, first, count))
        packed = heads_per_chunk(dim)
        for start in range(0, count, packed):
            stop = min(start + packed, count)
            psum = nl.ndarray(
                ((stop - start) * dim, high - low), dtype=tensor.dtype, buffer=nl.psum
            )
            nisa.nc_transpose(dst=psum, data=rows[:, start:stop, :])
            for head in range(start, stop):
                base = (head - start) * dim
                nisa.tensor_copy(dst=columns[:, head, low:high], src=psum[base : base + dim, :])
    return columns


def load_values(tensor, view, image, first, count):
    """Heads of one image -> SBUF rows [128, key tiles, count, d + 1], the last column ones."""
    shape = tensor.shape if view == None else view[0]
    length = shape[2]
    dim = shape[3]
    tiles = ceil_div(length, PARTITIONS)
    values = nl.ndarray((PARTITIONS, tiles, count, dim + 1), dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.memset(dst=values[:, :, :, dim : dim + 1], value=1.0)
    for tile in range(tiles):
        low = tile * PARTITIONS
        high = min(low + PARTITIONS, length)
        nisa.dma_copy(
            dst=values[0 : high - low, tile, :, 0:dim],
            src=token_major(tensor, view, image, low, high, first, count),
        )
    return values


def store_heads(out, image, start, size, first, rows):
    """SBUF rows [128, tiles, heads, d] -> HBM out[image, start : start + size, first heads...]."""
    heads = rows.shape[2]
    for tile in range(ceil_div(size, PARTITIONS)):
        low = tile * PARTITIONS
        count = min(PARTITIONS, size - low)
        nisa.dma_copy(
            dst=out[image, start + low : start + low + count, first : first + heads, :],
            src=rows[0:count, tile, :, :],
        )
