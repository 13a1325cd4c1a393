"""Bidirectional attention, softmax(scale * Q K^T) V, for every head of every image.

Layout: heads are read from HBM where they lie, dense or strided, as rows of tokens [128, heads, d].
Queries and keys are turned by the tensor engine to `Heads`, values stay rows; a pass takes as many
heads of an image as SBUF has room for, a block of its queries at a time. Engines, and what a pass
costs: attend.py. SBUF: `limits.attention_bytes`. Programs of LNC 2 share the images, or the heads
of a single one.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .attend import Attend, Heads, shift_selectors
from .limits import (
    PARTITIONS,
    attention_heads,
    ceil_div,
    heads_per_chunk,
    query_block,
)
from .score_bias import bias_source
from .tiles import available_bytes, dtype_bytes, program_share


@nki.jit
def attention(
    q,
    k,
    v,
    scale,
    q_view,
    k_view,
    v_view,
    mask=None,
    kv_lens=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
):
    """softmax(scale * q k^T + bias) v over the last two axes -> HBM [B, Sq, H, D] in q's dtype.

    q: [B, H, Sq, D]; k, v: [B, G, Sk, D], where H is a multiple of G and H / G heads in a row share
    one of k and v; Sq, Sk <= 4096, D <= 128; bfloat16, float16 or float32, one dtype. scale: float.
    A *_view of None means a dense tensor; otherwise the tensor is a 1-D window and the view its
    ((B, H, S, D), (strides in elements)): a strided PyTorch tensor is read where it lies.

    At most one of these may be given; a query that sees no key gets zeros (see score_bias.py):

    - mask: [1 or B, 1 or H, 1 or Sq, Sk], dense; uint8 (1: takes part, 0: does not) or the bias
      itself, in q's dtype or float32;
    - kv_lens: int32 [B], the keys from there on are not seen; they must be finite;
    - cu_seqlens_q, cu_seqlens_k: int32 [segments + 1], B = 1: the bounds of segments that see
      nothing of each other.
    """
    batch, heads, q_len, dim = q.shape if q_view == None else q_view[0]
    k_shape = k.shape if k_view == None else k_view[0]
    k_len = k_shape[2]
    group = heads // k_shape[1]
    item = dtype_bytes(q.dtype)
    biased = 0
    if mask != None:
        biased = mask.shape[1]
    elif kv_lens != None or cu_seqlens_q != None:
        biased = 1
    step = attention_heads(heads, q_len, k_len, dim, item, available_bytes(), biased)
    assert step > 0, (
        f"attention: {q_len} x {k_len} tokens of head size {dim} do not fit on the chip"
    )
    out = nl.ndarray((batch, q_len, heads, dim), dtype=q.dtype, buffer=nl.shared_hbm)
    begin, end = program_share(heads, 1) if batch == 1 else (0, heads)
    first_image, last_image = program_share(batch, 1) if batch > 1 else (0, 1)
    selectors = shift_selectors(end - begin, step, q.dtype)
    block = query_block(q_len, k_len, item)
    source = bias_source(mask, kv_lens, cu_seqlens_q, cu_seqlens_k, scale, q_len, k_len, q.dtype)
    for image in range(first_image, last_image):
        for first in range(begin, end, step):
            count = min(step, end - first)
            selector = selectors[0] if count == step else selectors[1]
            attend_pass(
                out,
                image,
                first,
                count,
                block,
                q,
                k,
                v,
                scale,
                q_view,
                k_view,
                v_view,
                selector,
                group,
                source,
            )
    return out


def attend_pass(
    out, image, first, count, block, q, k, v, scale, q_view, k_view, v_view, selector, group, source
):
    """Heads [first, first + count) of one image, from HBM to HBM, a block of queries at a time.

    group: heads that share one of k and v; source: see `bias_source`.
    """
    q_len = out.shape[1]
    bias = None
    if source != None:
        # Asked for before the operands, which take longer to be ready.
        bias = source.unit(image, first, count, 0, min(block, q_len))
    queries = load_heads(q, q_view, image, first, count, 1)
    keys = load_heads(k, k_view, image, first, count, group)
    values = load_values(v, v_view, image, first, count, group)
    for start in range(0, q_len, block):
        size = min(block, q_len - start)
        if source != None and start > 0:
            bias = None
            bias = source.unit(image, first, count, start, size)
        rows = nl.ndarray(
            (PARTITIONS, ceil_div(size, PARTITIONS), count, queries.dim),
            dtype=q.dtype,
            buffer=nl.sbuf,
        )
        units = [(rows, queries.tokens(start, start + size), keys, values)]
        attend(units, scale, selector, bias)
        store_heads(out, image, start, size, first, rows)


def attend(units, scale, selector, biases=None):
    """Attention of some units, see `Attend`."""
    work = Attend(units, scale, selector, None, biases)
    for index in range(work.steps):
        work.step(index)


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


def load_tokens(dst, tensor, view, image, low, high, first, group):
    """HBM tokens [low, high) of one image -> SBUF dst [high - low, heads, d].

    Head h of dst is that of number (first + h) // group of the tensor.
    """
    count = dst.shape[1]
    if group == 1:
        nisa.dma_copy(dst=dst, src=token_major(tensor, view, image, low, high, first, count))
        return
    start = 0
    while start < count:
        head = (first + start) // group
        stop = min((head + 1) * group - first, count)
        source = token_major(tensor, view, image, low, high, head, 1)
        nisa.dma_copy(dst=dst[:, start:stop, :], src=source.broadcast(1, stop - start))
        start = stop


def load_heads(tensor, view, image, first, count, group):
    """Heads [first, first + count) of one image -> `Heads` of its tokens.

    group: how many heads in a row share one of the tensor's.
    """
    shape = tensor.shape if view == None else view[0]
    length = shape[2]
    dim = shape[3]
    packed = min(count, heads_per_chunk(dim))
    columns = nl.ndarray(
        (packed * dim, ceil_div(count, packed), length), dtype=tensor.dtype, buffer=nl.sbuf
    )
    for low in range(0, length, PARTITIONS):
        high = min(low + PARTITIONS, length)
        rows = nl.ndarray((high - low, count, dim), dtype=tensor.dtype, buffer=nl.sbuf)
        load_tokens(rows, tensor, view, image, low, high, first, group)
        for start in range(0, count, packed):
            stop = min(start + packed, count)
            psum = nl.ndarray(
                ((stop - start) * dim, high - low), dtype=tensor.dtype, buffer=nl.psum
            )
            nisa.nc_transpose(dst=psum, data=rows[:, start:stop, :])
            nisa.tensor_copy(
                dst=columns[0 : (stop - start) * dim, start // packed, low:high], src=psum
            )
    return Heads(columns, count, dim)


def load_values(tensor, view, image, first, count, group):
    """Heads of one image -> SBUF rows [128, key tiles, count, d + 1], the last column ones.

    group: see `load_heads`.
    """
    shape = tensor.shape if view == None else view[0]
    length = shape[2]
    dim = shape[3]
    tiles = ceil_div(length, PARTITIONS)
    values = nl.ndarray((PARTITIONS, tiles, count, dim + 1), dtype=tensor.dtype, buffer=nl.sbuf)
    nisa.memset(dst=values[:, :, :, dim : dim + 1], value=1.0)
    for tile in range(tiles):
        low = tile * PARTITIONS
        high = min(low + PARTITIONS, length)
        load_tokens(
            values[0 : high - low, tile, :, 0:dim], tensor, view, image, low, high, first, group
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
