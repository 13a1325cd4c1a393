"""A whole pre-norm Transformer encoder block in one launch.

    y   = x + scale1 * proj(attention(norm1(x)))
    out = y + scale2 * fc2(act(fc1(norm2(y))))

Images are processed in groups whose tokens are packed: every matmul outside attention sees the
tokens of the whole group as one free axis, so an odd number of tokens an image costs nothing, and
each weight slab is read once a group. For one group:

1. rows of x -> norm1 -> columns (norm weight and bias ride on the eviction of the transpose).
2. for a pass of heads: queries and keys as columns, values as rows, straight from the projection;
   `attend` of attention.py; output rows stay on the chip.
3. output rows -> columns, images packed.
4. for a block of tokens: projection, bias, LayerScale and residual add -> rows y in float32;
   norm2 -> columns -> MLP of mlp.py with the residual add -> HBM.

Between HBM reads of x and the HBM write of the result nothing leaves the chip; the residual
stream is float32. Engines: TensorE all matmuls and transposes; ScalarE exp, GELU, norm statistics;
VectorE evictions, maxima, residual adds. SBUF: `limits.vit_block_plan` chooses the size of the
group and of the passes from the budget of `limits.block_bytes`.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .attention import attend, shift_selectors
from .limits import (
    BANK,
    PARTITIONS,
    ceil_div,
    heads_per_chunk,
    query_block,
    vit_block_plan,
)
from .linear import store_tiles
from .mlp import mlp_rows
from .norm import normalize_rows
from .tiles import (
    available_bytes,
    broadcast_row,
    contract,
    dtype_bytes,
    finish_rows,
    load_columns,
    load_rows,
    load_weight,
    part_of,
    program_share,
    project_rows,
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
):
    """x [B, S, D] -> [B, S, D]; bfloat16, float16 or float32, one dtype for x and all weights.

    qkv_weight: HBM [D, 3 * H * d], columns: q heads, k heads, v heads; proj_weight [H * d, D];
    fc1_weight [D, I]; fc2_weight [I, D]. norm1_weight, norm2_weight, scale1, scale2 (LayerScale)
    and every bias: HBM vectors or None. norm: "layer" or "rms" (then both norm biases are None).
    activation: "gelu", "gelu_tanh" or "quick_gelu". attention_scale: float, 1 / sqrt(d) for ViT.
    """
    batch, length, width = x.shape
    embed = proj_weight.shape[0]
    hidden = fc1_weight.shape[1]
    dim = embed // num_heads
    item = dtype_bytes(x.dtype)
    images, heads_pass, block = vit_block_plan(
        batch, length, width, num_heads, dim, hidden, item, available_bytes()
    )
    assert images > 0, f"vit_block: {length} tokens of width {width} do not fit on the chip"
    out = nl.ndarray((batch, length, width), dtype=x.dtype, buffer=nl.shared_hbm)
    tokens_in = x.reshape((batch * length, width))
    tokens_out = out.reshape((batch * length, width))
    norm1 = (norm1_weight, norm1_bias, eps, norm)
    norm2 = (norm2_weight, norm2_bias, eps, norm)
    selectors = shift_selectors(num_heads, heads_pass, x.dtype)
    attention = (qkv_weight, qkv_bias, num_heads, dim, heads_pass, attention_scale, selectors)
    projection = (proj_weight, proj_bias, scale1)
    mlp_weights = (fc1_weight, fc1_bias, fc2_weight, fc2_bias, scale2)
    begin, end = program_share(batch, 1)
    for image in range(begin, end, images):
        transform_group(
            tokens_out,
            tokens_in,
            image * length,
            min(images, end - image) * length,
            length,
            block,
            norm1,
            attention,
            projection,
            norm2,
            mlp_weights,
            activation,
        )
    return out


def transform_group(
    out,
    x,
    first,
    count,
    length,
    block,
    norm1,
    attention,
    projection,
    norm2,
    mlp_weights,
    activation,
):
    """The block for one group of images: HBM rows [first, first + count) of x -> the same of out.

    A function of its own, so that a group's tiles are gone when the next group begins.
    """
    qkv_weight, qkv_bias, heads, dim, heads_pass, scale, selectors = attention
    rows = attention_rows(
        norm_columns(x, first, count, x.dtype, norm1),
        length,
        qkv_weight,
        qkv_bias,
        heads,
        dim,
        heads_pass,
        scale,
        selectors,
    )
    attended = image_columns(rows, length, count)
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
                activation,
            ),
        )


def finish_tokens(x, first, attended, projection, norm, mlp_weights, activation):
    """What follows attention, for a block of tokens -> SBUF rows [128, tiles, width] in x's dtype.

    attended: columns [128, chunks of heads * d, count] of HBM rows [first, first + count) of x.
    """
    proj_weight, proj_bias, scale1 = projection
    fc1_weight, fc1_bias, fc2_weight, fc2_bias, scale2 = mlp_weights
    count = attended.shape[2]
    stream = residual_rows(x, first, count)
    project_rows(
        stream, attended, proj_weight.shape[0], proj_weight, "in_out", proj_bias, scale1, stream
    )
    columns = norm_columns(stream, 0, count, x.dtype, norm)
    result = nl.ndarray(stream.shape, dtype=x.dtype, buffer=nl.sbuf)
    mlp_rows(
        result,
        columns,
        fc1_weight,
        fc1_bias,
        fc2_weight,
        fc2_bias,
        activation,
        "in_out",
        scale2,
        stream,
    )
    return result


def norm_columns(source, first, count, dtype, norm):
    """norm of `count` tokens from `first` on -> SBUF columns [128, chunks, count] in dtype.

    source: HBM rows [tokens, width], or SBUF rows [128, tiles, width] with `first` at a tile.
    """
    width = source.shape[-1]
    weight, bias, eps, kind = norm
    weight_columns = load_columns(weight, 0, width, PARTITIONS)
    bias_columns = load_columns(bias, 0, width, PARTITIONS)
    columns = nl.ndarray(
        (PARTITIONS, ceil_div(width, PARTITIONS), count), dtype=dtype, buffer=nl.sbuf
    )
    for low in range(0, count, PARTITIONS):
        high = min(low + PARTITIONS, count)
        if nl.is_sbuf(source.buffer):
            rows = source[0 : high - low, (first + low) // PARTITIONS, :]
        else:
            rows = load_rows(source, first + low, high - low, width, source.dtype)
        norm_transpose(columns[:, :, low:high], rows, weight_columns, bias_columns, eps, kind)
    return columns


def norm_transpose(dst, rows, weight, bias, eps, norm):
    """columns dst = norm(rows) * weight + bias for SBUF rows [count, width] of any float dtype."""
    scratch = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.sbuf)
    normed = nl.ndarray(rows.shape, dtype=dst.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=scratch, src=rows)
    normalize_rows(normed, scratch, None, None, eps, norm)
    transpose_rows(dst, normed, weight, bias)


def residual_rows(x, first, count):
    """HBM rows [first, first + count) -> SBUF float32 rows [128, tiles, width]."""
    width = x.shape[1]
    residual = nl.ndarray(
        (PARTITIONS, ceil_div(count, PARTITIONS), width), dtype=nl.float32, buffer=nl.sbuf
    )
    for low in range(0, count, PARTITIONS):
        size = min(PARTITIONS, count - low)
        rows = load_rows(x, first + low, size, width, x.dtype)
        nisa.tensor_copy(dst=residual[0:size, low // PARTITIONS, :], src=rows)
    return residual


def attention_rows(columns, length, weight, bias, heads, dim, heads_pass, scale, selectors):
    """Attention of the images of a group, from norm1 columns to SBUF rows.

    columns: SBUF [128, chunks of width, images * length]; weight: HBM [width, 3 * heads * dim];
    bias: HBM [3 * heads * dim] or None. Returns rows [128, images * query tiles, heads * dim]; each
    image starts a tile of its own.
    """
    total = columns.shape[2]
    embed = heads * dim
    tiles = ceil_div(length, PARTITIONS)
    images = total // length
    rows = nl.ndarray((PARTITIONS, images * tiles, embed), dtype=columns.dtype, buffer=nl.sbuf)
    for first in range(0, heads, heads_pass):
        count = min(heads_pass, heads - first)
        target = rows[:, :, first * dim : (first + count) * dim].reshape_dim(2, (count, dim))
        selector = selectors[0] if count == heads_pass else selectors[1]
        attend_images(target, columns, length, weight, bias, first * dim, embed, scale, selector)
    return rows


def attend_images(dst, columns, length, weight, bias, first, embed, scale, selector):
    """Some heads of all images of a group: rows dst [128, images * query tiles, heads, d].

    first: the first column of these heads in each of the three parts of the QKV weight.
    """
    heads, dim = dst.shape[2], dst.shape[3]
    tiles = ceil_div(length, PARTITIONS)
    queries = project_heads(columns, weight, bias, first, heads, dim)
    keys = project_heads(columns, weight, bias, embed + first, heads, dim)
    values = project_values(columns, length, weight, bias, 2 * embed + first, heads, dim)
    block = query_block(length, length, dtype_bytes(columns.dtype))
    for image in range(columns.shape[2] // length):
        token = image * length
        tile = image * tiles
        for start in range(0, length, block):
            size = min(block, length - start)
            begin = tile + start // PARTITIONS
            attend(
                dst[:, begin : begin + ceil_div(size, PARTITIONS), :, :],
                queries[:, :, token + start : token + start + size],
                keys[:, :, token : token + length],
                values[:, tile : tile + tiles, :, :],
                scale,
                selector,
            )


def image_columns(rows, length, count):
    """Rows in which each image starts a tile -> columns [128, chunks, count], images packed."""
    width = rows.shape[2]
    tiles = ceil_div(length, PARTITIONS)
    columns = nl.ndarray(
        (PARTITIONS, ceil_div(width, PARTITIONS), count), dtype=rows.dtype, buffer=nl.sbuf
    )
    for image in range(count // length):
        for tile in range(tiles):
            low = tile * PARTITIONS
            size = min(PARTITIONS, length - low)
            token = image * length + low
            transpose_rows(
                columns[:, :, token : token + size],
                rows[0:size, image * tiles + tile, :],
                None,
                None,
            )
    return columns


def project_heads(columns, weight, bias, first, heads, dim):
    """Queries or keys [d, heads, tokens] from weight columns [first, first + heads * d).

    Heads that share a chunk of partitions are projected together and moved to partition 0 by the
    eviction that adds their bias.
    """
    width = weight.shape[0]
    total = columns.shape[2]
    packed = heads_per_chunk(dim)
    result = nl.ndarray((dim, heads, total), dtype=columns.dtype, buffer=nl.sbuf)
    bias_columns = load_columns(bias, first, heads * dim, packed * dim)
    slab = load_weight(weight, "in_out", width, first, heads * dim)
    for start in range(0, heads, packed):
        stop = min(start + packed, heads)
        for token in range(0, total, BANK):
            count = min(BANK, total - token)
            psum = nl.ndarray(((stop - start) * dim, count), dtype=nl.float32, buffer=nl.psum)
            contract(
                psum,
                slab[:, :, start * dim : stop * dim],
                columns[:, :, token : token + count],
                width,
            )
            for head in range(start, stop):
                low = (head - start) * dim
                target = result[:, head, token : token + count]
                if bias_columns == None:
                    nisa.tensor_copy(dst=target, src=psum[low : low + dim, :])
                else:
                    chunk = start // packed
                    nisa.tensor_scalar(
                        dst=target,
                        data=psum[low : low + dim, :],
                        op0=nl.add,
                        operand0=bias_columns[low : low + dim, chunk : chunk + 1],
                    )
    return result


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
