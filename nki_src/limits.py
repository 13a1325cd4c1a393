"""What fits on the chip: one place for every limit and on-chip budget of the kernels.

The kernels plan with these budgets while they are traced; the PyTorch package calls the functions
named like the kernels before it launches. Both therefore apply the same rule, and a shape that
does not fit is refused with the numbers before anything is compiled.

Imports nothing: it is read on hosts without `nki`, and it stays inside the Python subset that
the NKI compiler accepts. Sizes are bytes per SBUF partition unless a name says otherwise.
"""

# Partitions of SBUF and PSUM, and the largest contraction and stationary width of a matmul
# (NKI 0.6 reference, nki.language.tile_size: pmax, gemm_stationary_fmax).
PARTITIONS = 128

# float32 values in one PSUM bank of one partition, and the largest moving width of a matmul on
# NeuronCore-v3 (NKI 0.6 reference, tile_size: psum_bank_fmax, gemm_moving_fmax).
BANK = 512

# SBUF bytes of one partition (Trainium2 and Trainium3 architecture guides: 28 and 32 MiB / 128).
SBUF_BYTES = {"trn2": 224 * 1024, "trn3": 256 * 1024}

# Share of SBUF that the budgets below may plan with. The rest covers alignment and the small
# per-row statistics that the formulas leave out. Our choice.
USABLE = 0.95

# Weights are streamed through SBUF in column slabs of about this size. Two slabs are live while
# one is replaced by the next. At 36 KiB an MLP matrix of ViT-B fits as a whole; it is read in rows
# of 1 KiB or more, where DMA rows below 512 bytes are inefficient (NKI DMA bandwidth guide). Our
# choice.
SLAB_BYTES = 36 * 1024

# A slab arrives in transfers of about this size: the products of the first part need not wait for
# the rest, and the issue of a transfer (0.6 us, Trainium2 architecture guide, DGE) stays hidden
# behind the transfer before it. At 9 KiB its rows have 1 KiB or more for widths up to 1152. Our
# choice.
WEIGHT_PART = 9 * 1024

# Parts of the next slab that arrive while a slab is in use. Our choice.
RING_AHEAD = 2

# Softmax numerators of one block of queries that are kept at a time. Our choice.
SCORES_BYTES = 8 * 1024

# Columns of a row tile that the norms load and store at once. Our choice.
NORM_BLOCK = 2048

# Row tiles whose norms `vit_block` has in flight: one in each of the four steps of `NormColumns`,
# and one that waits before the last of them.
NORM_FLIGHT = 5

# Tokens that one group of images of `vit_block`, and a block of tokens of `mlp`, aim for: enough to
# stream each weight slab once for several images. Our choice.
GROUP_TOKENS = 1024

# Work in flight leaves gaps between its tiles; its budget is raised by this. Our choice.
OVERLAP_SLACK = 1.05

# Instructions that a launch may unroll; above, layers and then images become loops on the device.
# The encoder of ViT-B/16 takes about 116,000 at batch 16. Our choice: the compiler's time grows
# with it, and each iteration of a loop begins with loads that nothing hides.
INSTRUCTIONS_MAX = 160 * 1024

# A bias or mask of attention is loaded for as many heads at a time as this holds. Our choice.
BIAS_STAGE = 16 * 1024

# The factors on the scores that a bias can be divided by in every dtype, as powers of two.
BIAS_SCALE_MAX = 1024.0

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

HEAD_SIZE_MAX = PARTITIONS

# The shift of a head takes two of the 128 partitions (see attend.py).
HEADS_PER_PASS_MAX = PARTITIONS // 2

# Row tiles of the tensor engine that subtract the maxima of as many heads side by side: of 32 rows,
# the smallest of NeuronCore-v3 (NKI 0.6 reference, nc_matmul: row tiling).
SHIFT_TILES = 4

SEQUENCE_MAX = 4096


def ceil_div(a, b):
    return (a + b - 1) // b


def heads_per_chunk(head_dim):
    """Heads whose rows share one 128-partition chunk.

    Compute engines reach only partitions 0, 32, 64 and 96 as a first partition, so heads are
    packed when the head size is a multiple of 32; any other head has a chunk of its own.
    """
    if head_dim % 32 == 0:
        return PARTITIONS // head_dim
    return 1


def slab_columns(depth, features, item, slabs=1):
    """Columns of a weight slab [depth, columns]: whole 128-chunks, at least one, at most all.

    slabs: matrices whose slabs are used together and share SLAB_BYTES.
    """
    columns = SLAB_BYTES // slabs // (ceil_div(depth, PARTITIONS) * item)
    if columns >= features:
        return features
    if columns >= BANK:
        columns = columns // BANK * BANK
    else:
        columns = max(PARTITIONS, columns // PARTITIONS * PARTITIONS)
    return min(columns, features)


def part_chunks(columns, item):
    """Chunks of the depth of one part of a slab with so many columns."""
    return max(1, WEIGHT_PART // (columns * item))


def part_columns(depth, item):
    """Columns of one part of a slab with all of the depth: whole chunks."""
    return max(1, WEIGHT_PART // (ceil_div(depth, PARTITIONS) * item * PARTITIONS)) * PARTITIONS


def ring_slots(width, hidden, embed, item, gated):
    """(slots, elements a slot) of the ring through which the weights of `block.Rest` stream: room
    for the largest slab, or pair of slabs of a gated MLP, and RING_AHEAD parts of the next one."""
    slabs = 2 if gated else 1
    columns = slab_columns(width, hidden, item, slabs)
    wide = min(columns, part_columns(width, item))
    slots = slabs * ceil_div(columns, wide)
    size = ceil_div(width, PARTITIONS) * wide
    for depth in (hidden, embed):
        columns = slab_columns(depth, width, item)
        tall = min(ceil_div(depth, PARTITIONS), part_chunks(columns, item))
        slots = max(slots, ceil_div(ceil_div(depth, PARTITIONS), tall))
        size = max(size, tall * columns)
    return slots + RING_AHEAD, size


def slab_bytes(depth, features, item, out_in, slabs=1):
    """Two slabs of each of `slabs` matrices, one if it is the whole weight, and for the "out_in"
    layout two tiles of the weight rows that are transposed."""
    columns = slab_columns(depth, features, item, slabs)
    size = slabs * ceil_div(depth, PARTITIONS) * columns * item
    if columns < features:
        size = 2 * size
    if out_in:
        size = size + 2 * depth * item
    return size


def norm_bytes(width, item):
    """`layer_norm` and `rms_norm`: a float32 row, the row in the output dtype, weight and bias
    rows, and two blocks of input columns (x and residual)."""
    block = min(width, NORM_BLOCK)
    return width * (4 + item + 2 * item) + 2 * block * item


def norm_columns_bytes(width, item, flight):
    """Tiles of `norm.NormColumns`: the results of NORM_FLIGHT of them, float32 rows of those that
    are not scaled yet; without flight there is one tile."""
    if not flight:
        return width * (4 + item)
    return width * (NORM_FLIGHT * item + (NORM_FLIGHT - 2) * 4)


def ada_norm_bytes(width, item):
    """`ada_layer_norm` and `ada_rms_norm`: as `norm_bytes`, with the weight and bias rows of an
    image in float32 beside the norm's own, a gate row, and a scale row while they are made."""
    return norm_bytes(width, item) + width * (8 + item)


def linear_bytes(tokens, depth, features, item, out_in):
    """`linear`: a transposed block of tokens, a row tile, the outputs, a bias row, the slabs."""
    block = min(tokens, BANK)
    tiles = ceil_div(block, PARTITIONS)
    columns = ceil_div(depth, PARTITIONS) * block * item
    return (
        columns
        + depth * item
        + (tiles + 1) * features * item
        + slab_bytes(depth, features, item, out_in)
    )


def mlp_bytes(block, width, hidden, out, item, out_in, gated=False, inner_norm=False, flight=False):
    """The two halves of `mlp` or `swiglu_mlp` (gated) for a block of tokens: input and hidden
    columns, output rows, and the larger of what the halves need.

    The first half has its slabs; with a gate also the activated gate of one stationary load and of
    the next; with a norm of the hidden features, their rows and the tiles of `NormColumns`, several
    in flight or one. The second half has its slabs, a bias and a scale row and a row of the input.
    """
    tiles = ceil_div(block, PARTITIONS)
    columns = ceil_div(width, PARTITIONS) * block * item
    hidden_columns = ceil_div(hidden, PARTITIONS) * block * item
    slabs = 2 if gated else 1
    scratch = BANK * 8
    first = slab_bytes(width, hidden, item, out_in, slabs) + scratch
    if gated:
        first = first + 2 * min(block, 2 * BANK) * 4
    if inner_norm:
        rows = tiles * hidden * item + slabs * hidden * item
        first = first + rows + norm_columns_bytes(hidden, item, flight)
    second = slab_bytes(hidden, out, item, out_in) + 2 * out * item + width * item + scratch
    return columns + hidden_columns + tiles * out * item + max(first, second)


def mlp_columns_bytes(block, width, hidden, item, gated):
    """Input and hidden columns of the MLP for a block of tokens, and what their evictions need."""
    columns = (ceil_div(width, PARTITIONS) + ceil_div(hidden, PARTITIONS)) * block * item
    if gated:
        columns = columns + 2 * min(block, 2 * BANK) * 4
    return columns + BANK * 8


def mlp_plan(tokens, width, hidden, out, item, out_in, gated, inner_norm, available):
    """(tokens a block, flight) for which the MLP fits; the block is 0 if none does.

    Prefers large blocks, in whole tiles, then a norm with tiles in flight (see `mlp_bytes`). With a
    norm, smaller blocks are a few per cent faster in the timing model.
    """
    largest = BANK if inner_norm else GROUP_TOKENS
    block = min(largest, ceil_div(tokens, PARTITIONS) * PARTITIONS)
    while block > 0:
        for flight in (True, False):
            needed = mlp_bytes(
                min(block, tokens), width, hidden, out, item, out_in, gated, inner_norm, flight
            )
            if needed <= available:
                return block, flight
        block = block - PARTITIONS
    return 0, False


def windows_per_tile(length):
    """Images of so many tokens whose attention shares a tile in `vit_block`, each from a partition
    on that compute engines reach: as many as fit."""
    if length <= PARTITIONS // 4:
        return 4
    return 2 if length <= PARTITIONS // 2 else 1


def window_units(images, length):
    """Units of attention of a group of images of at most one query block."""
    return ceil_div(images, windows_per_tile(length))


def window_span(length):
    """Partitions, or columns of the tensor engine, from one image of a tile to the next."""
    return PARTITIONS // windows_per_tile(length)


def spare_tokens(images, length):
    """Columns behind the tokens of a group, of which the last image of a tile takes up some for
    the rest of its span."""
    if images == 1 or windows_per_tile(length) == 1:
        return 0
    return window_span(length) - length


def query_block(q_len, k_len, item):
    """Queries whose softmax numerators are computed at a time: whole tiles within one PSUM bank,
    fewer when many keys would outgrow SCORES_BYTES."""
    block = min(BANK, q_len)
    while block > PARTITIONS and ceil_div(k_len, PARTITIONS) * block * item > SCORES_BYTES:
        block = ceil_div(block, PARTITIONS) * PARTITIONS - PARTITIONS
    return block


def scores_heads(heads, q_len, k_len, item):
    """Heads whose numerators are kept at a time: a multiple of SHIFT_TILES if there is room."""
    one = ceil_div(k_len, PARTITIONS) * query_block(q_len, k_len, item) * item
    most = max(1, SCORES_BYTES // one)
    count = ceil_div(heads, ceil_div(heads, most))
    return min(heads, max(count, min(most, ceil_div(count, SHIFT_TILES) * SHIFT_TILES)))


def head_slots(heads, head_dim):
    """Columns a token that queries or keys of some heads take: heads share partitions."""
    return ceil_div(heads, heads_per_chunk(head_dim))


def attend_bytes(units, heads, q_len, k_len, item, shared=False):
    """`attend` for `heads` heads of some units: numerators, shift rows, the selectors (of a full
    and of a short pass) with their identities, the maxima of all query tiles of a unit and the
    shift pairs made of them, inverse denominators.

    With more than one unit or step of heads, numerators are made while the last are used; with
    more than one unit, so are the shift rows. shared: several images to a tile, which have
    longer shift rows and a few spare numerators.
    """
    block = query_block(q_len, k_len, item)
    one = ceil_div(k_len, PARTITIONS) * block * item
    numerators = scores_heads(heads, q_len, k_len, item) * one
    shift = block * item
    if shared:
        numerators = numerators + PARTITIONS * item
        shift = PARTITIONS * item
    if units > 1 or heads > scores_heads(heads, q_len, k_len, item):
        numerators = 2 * numerators
    if units > 1:
        shift = 2 * shift
    columns = ceil_div(heads, SHIFT_TILES) * SHIFT_TILES
    maxima = columns * (ceil_div(block, PARTITIONS) * ceil_div(k_len, BANK) + 2) * 4
    return numerators + shift + 2 * (columns + 2 * PARTITIONS) * item + maxima + BANK


def bias_fill(half):
    """Minus the logit that stands for a masked key; half: in float16, which ends at 65504.

    A row whose largest logit is below minus half of it counts as fully masked.
    """
    return 61440.0 if half else 4194304.0


def bias_scale_fits(scale):
    """Whether scores that are multiplied by `scale` can have a bias."""
    size = scale if scale >= 0.0 else -scale
    return 1.0 / BIAS_SCALE_MAX <= size <= BIAS_SCALE_MAX


def bias_bytes(bias_heads, q_len, k_len, item, shared=False):
    """The score bias of a block of queries (score_bias.py) of `bias_heads` heads, 0 if there is
    none: the tiles, what one of them is made from, the identities. `attend` over several units
    whose biases differ has the tiles of two.

    Tiles are made from as many heads as BIAS_STAGE holds, or from a float32 row of positions or
    segments and, for a moment, the starts of at most as many segments as keys. shared: several
    images to a tile (see `attend_bytes`).
    """
    if bias_heads == 0:
        return 0
    tiles = ceil_div(query_block(q_len, k_len, item), PARTITIONS)
    row = k_len * 4
    stage = min(bias_heads * row, max(BIAS_STAGE, row))
    spare = PARTITIONS * item if shared else 0
    return tiles * bias_heads * k_len * item + spare + stage + 3 * PARTITIONS * item


def value_bytes(heads, length, head_dim, item):
    """Value rows of one image, or those that share a tile, with the column of ones."""
    return ceil_div(length, PARTITIONS) * heads * (head_dim + 1) * item


def attention_bytes(heads, q_len, k_len, head_dim, item, bias_heads=0):
    """`attention` for a pass of heads: query and key columns, value rows, output rows (two blocks,
    one on its way out), the score bias, and the larger of a loaded row tile and `attend`."""
    operands = head_slots(heads, head_dim) * (q_len + k_len) * item
    operands = operands + value_bytes(heads, k_len, head_dim, item)
    block = query_block(q_len, k_len, item)
    tiles = ceil_div(block, PARTITIONS)
    row = heads * head_dim * item
    blocks = min(2, ceil_div(q_len, block))
    attend = attend_bytes(1, heads, q_len, k_len, item)
    bias = bias_bytes(bias_heads, q_len, k_len, item)
    return operands + blocks * tiles * row + bias + max(2 * row, attend)


def attention_heads(heads, q_len, k_len, head_dim, item, available, bias_heads=0):
    """Most heads that one pass of `attention` can hold; 0 if not even one fits.

    bias_heads: 0 without a score bias, 1 if the heads share it, else `heads`.
    """
    count = min(heads, HEADS_PER_PASS_MAX)
    while count > 0:
        biased = min(bias_heads, count)
        if attention_bytes(count, q_len, k_len, head_dim, item, biased) <= available:
            return count
        count = count - 1
    return 0


# The sizes of a block, as the functions below take them in `sizes`:
#
#     (length, width, heads, head_dim, hidden, item, gated, inner_norm, queries, bias_heads)
#
# gated, inner_norm: of its MLP. queries: how queries and keys are made, a `queries_kind`.
# bias_heads: of the score bias (0: there is none, 1: one for all heads, or one for each).


# How queries and keys are made (`queries_kind`): as columns; as rows (heads.py) with a norm of each
# head or a rotation; as rows with a norm of all heads together; as plain rows, because heads of
# this size cannot share the partitions, which would leave many columns of the tensor engine idle in
# a projection to columns; as columns that are rotated (rotate.py).
AS_COLUMNS = 0
AS_ROWS = 1
AS_ROWS_TOGETHER = 2
AS_PLAIN_ROWS = 3
AS_TURNED_COLUMNS = 4


def queries_kind(norm, rope, head_dim):
    """How queries and keys are made, one of the numbers above.

    norm: 0 none, 1 of each head, 2 of all together; rope: 0 none, 1 with tables for all images, 2
    with tables of each image.
    """
    alone = head_dim % 32 != 0
    if norm == 2:
        return AS_ROWS_TOGETHER
    if norm == 1 or rope == 2 or (rope == 1 and alone):
        return AS_ROWS
    if alone:
        return AS_PLAIN_ROWS
    return AS_TURNED_COLUMNS if rope == 1 else AS_COLUMNS


def rotation_bytes(queries, length, head_dim, item):
    """What the rotation of columns keeps for a whole launch (rotate.py)."""
    if queries != AS_TURNED_COLUMNS:
        return 0
    return 2 * length * 4 + heads_per_chunk(head_dim) * head_dim * item


def head_rows_bytes(images, heads_pass, sizes):
    """What queries and keys of a pass need beyond their columns and weights when they are rotated,
    or made as rows (heads.py): four float32 rows and four rounded ones of the tiles in the
    pipeline, two pairs of tables with what they are made from, the parameters of the norm; for a
    norm of all heads together also the deviations and, if that is more, what makes them."""
    length, width, heads, head_dim, hidden, item, gated, inner_norm, queries, bias_heads = sizes
    if queries == AS_COLUMNS:
        return 0
    if queries == AS_TURNED_COLUMNS:
        # The two products of a part, of two parts.
        return 2 * 2 * BANK * 4
    row = heads_pass * head_dim
    if queries == AS_PLAIN_ROWS:
        return 4 * row * item
    tables = 2 * 2 * head_dim * (4 + item)
    size = row * (4 * 4 + 5 * item) + tables + 2 * head_dim * item
    if queries == AS_ROWS_TOGETHER:
        tiles = images * ceil_div(length, PARTITIONS)
        embed = heads * head_dim
        step = slab_columns(width, embed, item)
        parts = ceil_div(step, BANK) * ceil_div(embed, step)
        scratch = slab_bytes(width, embed, item, False) + 2 * step * item + 2 * BANK * 4
        size = max(size, scratch + tiles * (parts + 1) * 4) + 2 * tiles * 4
    return size


def block_attention_bytes(images, heads_pass, flight, sizes):
    """Peak of the task `block.Attention` for a group of images and a pass of heads, with the
    output that it leaves behind. flight: see `block_bytes`."""
    length, width, heads, head_dim, hidden, item, gated, inner_norm, queries, bias_heads = sizes
    embed = heads * head_dim
    total = images * length
    vectors = 8 * ceil_div(width, PARTITIONS)
    columns = ceil_div(width, PARTITIONS) * total * item
    norm = columns + norm_columns_bytes(width, item, flight) + vectors
    if not flight:
        norm = norm + width * item
    row_tiles = window_units(images, length) * ceil_div(length, PARTITIONS)
    rows = row_tiles * embed * item
    attended = ceil_div(embed, PARTITIONS) * total * item
    shared = images > 1 and windows_per_tile(length) > 1
    blocks = ceil_div(length, query_block(length, length, item))
    units = window_units(images, length) * blocks if flight else 1
    operands = 2 * head_slots(heads_pass, head_dim) * (total + spare_tokens(images, length)) * item
    operands = operands + window_units(images, length) * value_bytes(
        heads_pass, length, head_dim, item
    )
    pass_width = heads_pass * head_dim * item
    weights = ceil_div(width, PARTITIONS) * pass_width + pass_width + BANK * item
    weights = weights + head_rows_bytes(images, heads_pass, sizes)
    scratch = attend_bytes(units, heads_pass, length, length, item, shared)
    # The bias of a unit is kept while the next heads are made, if both use the same; in flight
    # there are those of two units.
    bias = bias_bytes(min(bias_heads, heads_pass), length, length, item, shared)
    if flight:
        bias = 2 * bias
    attend = columns + operands + weights
    if heads_pass < heads:
        attend = attend + rows
    attend = max(attend, (columns if heads_pass < heads else 0) + rows + operands + scratch)
    if flight:
        own = attended + ceil_div(total, PARTITIONS) * width * item
        # The norm of the group that follows, with its rows.
        norm = norm + own + ceil_div(total, PARTITIONS) * width * item
        attend = attend + own
    return max(norm, attend, rows + attended) + bias


def block_rest_bytes(images, block, flight, sizes):
    """Peak of the task `block.Rest` for a group of images and a block of tokens. flight: see
    `block_bytes`."""
    length, width, heads, head_dim, hidden, item, gated, inner_norm, queries, bias_heads = sizes
    embed = heads * head_dim
    total = images * length
    block = min(block, total)
    tiles = ceil_div(block, PARTITIONS)
    vectors = 8 * ceil_div(width, PARTITIONS)
    attended = ceil_div(embed, PARTITIONS) * total * item
    stream = tiles * width * 4
    if flight:
        stream = stream + ceil_div(total, PARTITIONS) * width * item
    normed = ceil_div(width, PARTITIONS) * block * item
    normed = normed + norm_columns_bytes(width, item, flight) + vectors
    project = slab_bytes(embed, width, item, False) + 2 * width * item + BANK * 8
    mlp = mlp_bytes(block, width, hidden, width, item, False, gated, inner_norm, flight)
    if flight:
        # The weights are in the ring, the result in the rows of the group.
        project = project - slab_bytes(embed, width, item, False)
        mlp = mlp_columns_bytes(block, width, hidden, item, gated)
        if inner_norm:
            slabs = slab_bytes(width, hidden, item, False, 2 if gated else 1)
            mlp = mlp + slabs + tiles * hidden * item + norm_columns_bytes(hidden, item, flight)
    merge = stream + max(3 * width * item, normed + project)
    peak = attended + max(merge, stream + mlp)
    if flight:
        # The next layer's norm takes the finished rows, three tiles of it in flight; the input
        # columns are gone, and those of attention after the last block.
        following = ceil_div(width, PARTITIONS) * (total - block) * item + 3 * width * (item + 4)
        if block < total:
            following = following + attended
        peak = max(peak, stream + mlp + following)
    return peak


def block_bytes(beside, images, heads_pass, block, flight, sizes):
    """Peak of `vit_block` for a group of images, a pass of heads and a block of tokens.

    beside: the images of another group, at most as many, whose attention goes along with the rest
    of this one, and the other way round; 0 if there is no other. flight: several norm tiles and two
    units of attention exist at a time, and the columns of attention from the start; otherwise one
    norm tile and one unit, and these columns when all heads are done.
    """
    length, width, heads, head_dim, hidden, item, gated, inner_norm, queries, bias_heads = sizes
    attention = block_attention_bytes(images, heads_pass, flight, sizes)
    rest = block_rest_bytes(images, block, flight, sizes)
    # The vectors of a layer (parameters.py): those of both tasks in flight, else of one at a time.
    vectors = heads * head_dim * item
    rest_vectors = 5 * width * item + (2 * hidden * item if inner_norm else 0)
    kept = 4 * (4 * ceil_div(width, PARTITIONS) + 4 * ceil_div(hidden, PARTITIONS))
    kept = kept + rotation_bytes(queries, length, head_dim, item)
    if bias_heads > 0:
        kept = kept + 2 * length * 4
    if not flight:
        return max(attention + vectors, rest + rest_vectors) + kept
    slots, size = ring_slots(width, hidden, heads * head_dim, item, gated)
    kept = kept + slots * size * item + vectors + rest_vectors
    if beside == 0:
        return max(attention, rest) * OVERLAP_SLACK + kept
    other = block_attention_bytes(beside, heads_pass, flight, sizes)
    other_rest = block_rest_bytes(beside, block, flight, sizes)
    return max(attention + other_rest, other + rest) * OVERLAP_SLACK + kept


def banks(depth, features, item, slabs=1):
    """Parts in which the features of a projection to rows leave PSUM."""
    return ceil_div(features, min(BANK, slab_columns(depth, features, item, slabs)))


def block_instructions(images, plan, sizes):
    """At most so many instructions does one layer take for a chunk of images (encoder.py)."""
    length, width, heads, head_dim, hidden, item, gated, inner_norm, queries, bias_heads = sizes
    tokens = images * length
    groups = 1 if images <= plan[0] and plan[4] == 0 else 2
    blocks = ceil_div(plan[0] * length, plan[2])
    tiles = groups * (plan[0] * ceil_div(length, PARTITIONS) + blocks)
    wide = groups * blocks * ceil_div(ceil_div(tokens, groups * blocks), BANK)
    chunks = ceil_div(width, PARTITIONS)
    inner = ceil_div(heads * head_dim, PARTITIONS)
    deep = ceil_div(hidden, PARTITIONS)
    slots = 2 * head_slots(heads, head_dim) + 2 * ceil_div(heads, plan[1])
    columns = (chunks + 2) * (slots + deep * (2 if gated else 1)) * wide
    # Rows are made a bank of columns at a time, or a slab where that is narrower.
    rows = ceil_div(width, BANK) * 2 * chunks
    rows = rows + banks(heads * head_dim, width, item) * inner
    rows = tiles * (rows + banks(hidden, width, item) * (deep + 12))
    if inner_norm:
        cuts = banks(width, hidden, item, 2 if gated else 1)
        rows = rows + tiles * (cuts * (2 * chunks + 8) + 2 * deep + 16)
    norms = tiles * (3 * chunks + inner + 16)
    if queries == AS_TURNED_COLUMNS:
        # A product, two multiplications and a sum for each part of a slot; the tables, which a
        # launch makes once.
        norms = norms + slots * images * ceil_div(length, BANK) * 4
        norms = norms + 16 * ceil_div(length, PARTITIONS)
    elif queries != AS_COLUMNS:
        # The number of the kind is at least how often the heads are projected.
        norms = norms + tiles * (2 * inner * (chunks + 4) * queries + slots + 64)
    key_tiles = ceil_div(length, PARTITIONS)
    block = ceil_div(length, query_block(length, length, 4))
    each = key_tiles * (3 * block + ceil_div(length, BANK) + key_tiles + 4)
    if bias_heads > 0:
        each = each + 4 * key_tiles * key_tiles + 16
    attention = images * heads * each
    return columns + rows + norms + attention + 96 * groups * blocks + images * 64


def vit_block_plan(batch, sizes, available):
    """(images a group, heads a pass, tokens a block, flight, images of the group beside it) that
    fit `available`; the first is 0 if none do, the last is 0 if one group is worked on at a time.

    Prefers a pair of groups, in the pair of sizes with the fewest row tiles an image, then the most
    even one, unless a single group can have many more images; then work in flight (see
    `block_bytes`), then as many images of up to GROUP_TOKENS tokens, large blocks, and many heads
    as possible.
    """
    length = sizes[0]
    most = max(1, min(batch, GROUP_TOKENS // length))
    best = (0, 0, 0, False, 0)
    least = 0.0
    for images in range(most, 0, -1):
        for beside in range(min(images, batch - images), 0, -1):
            tiles = ceil_div(images * length, PARTITIONS) + ceil_div(beside * length, PARTITIONS)
            waste = tiles / (images + beside)
            if best[0] == 0 or waste <= least:
                block, heads_pass = block_and_pass(beside, images, True, sizes, available)
                if block > 0:
                    best = (images, heads_pass, block, True, beside)
                    least = waste
    for flight in (True, False):
        for images in range(most, 0, -1):
            # Small groups read the weights too often to gain from the other one.
            if 4 * (best[0] + best[4]) >= 3 * images and best[0] > 0:
                return best
            block, heads_pass = block_and_pass(0, images, flight, sizes, available)
            if block > 0:
                return images, heads_pass, block, flight, 0
    return best


def smaller_pass(heads_pass, head_dim):
    """The next smaller number of heads a pass: whole slots of packed heads; 0 if there is none."""
    packed = heads_per_chunk(head_dim)
    return ceil_div(heads_pass, packed) * packed - packed


def block_and_pass(beside, images, flight, sizes, available):
    """(tokens a block, heads a pass) for `vit_block_plan`; (0, 0) if none fit. With another group
    beside it a block has the whole group and a pass all heads: smaller groups cost less than
    smaller passes."""
    heads, head_dim = sizes[2], sizes[3]
    block = ceil_div(images * sizes[0], PARTITIONS) * PARTITIONS
    while block > 0:
        heads_pass = heads
        if heads > HEADS_PER_PASS_MAX:
            heads_pass = HEADS_PER_PASS_MAX
        while heads_pass > 0:
            if block_bytes(beside, images, heads_pass, block, flight, sizes) <= available:
                return block, heads_pass
            heads_pass = smaller_pass(heads_pass, head_dim) if beside == 0 else 0
        block = block - PARTITIONS if beside == 0 else 0
    return 0, 0


# ---------------------------------------------------------------------------------------------
# What the package asks before a launch: (ok, reason, remedy)


def fits(name, needed, target):
    available = USABLE * SBUF_BYTES[target]
    if needed <= available:
        return True, "", ""
    reason = (
        f"{name} needs {needed} bytes of each SBUF partition, {target} has {int(available)} usable"
    )
    return False, reason, "use a smaller width or split the layer"


def layer_norm(width, dtype_name, target):
    return fits("layer_norm", norm_bytes(width, DTYPE_BYTES[dtype_name]), target)


def rms_norm(width, dtype_name, target):
    return fits("rms_norm", norm_bytes(width, DTYPE_BYTES[dtype_name]), target)


def ada_layer_norm(width, dtype_name, target):
    return fits("ada_layer_norm", ada_norm_bytes(width, DTYPE_BYTES[dtype_name]), target)


def ada_rms_norm(width, dtype_name, target):
    return fits("ada_rms_norm", ada_norm_bytes(width, DTYPE_BYTES[dtype_name]), target)


def linear(tokens, in_features, out_features, dtype_name, target):
    return fits(
        "linear",
        linear_bytes(tokens, in_features, out_features, DTYPE_BYTES[dtype_name], True),
        target,
    )


def mlp(tokens, width, hidden, out, dtype_name, target, inner_norm=False):
    return mlp_fits("mlp", tokens, width, hidden, out, dtype_name, target, False, inner_norm)


def swiglu_mlp(tokens, width, hidden, out, dtype_name, target, inner_norm=False):
    return mlp_fits("swiglu_mlp", tokens, width, hidden, out, dtype_name, target, True, inner_norm)


def mlp_fits(name, tokens, width, hidden, out, dtype_name, target, gated, inner_norm):
    smallest = min(tokens, PARTITIONS)
    item = DTYPE_BYTES[dtype_name]
    return fits(
        name, mlp_bytes(smallest, width, hidden, out, item, True, gated, inner_norm), target
    )


def head_size(name, head_dim):
    if head_dim <= HEAD_SIZE_MAX:
        return True, "", ""
    reason = f"{name} head_dim={head_dim} > {HEAD_SIZE_MAX} (partitions of the tensor engine)"
    if name == "attention":
        remedy = "use torch.nn.functional.scaled_dot_product_attention for this layer"
    else:
        remedy = (
            "run attention as PyTorch operations, and what is around it with layer_norm or "
            "rms_norm, linear, and mlp or swiglu_mlp"
        )
    return False, reason, remedy


def sequence(name, argument, length):
    if length <= SEQUENCE_MAX:
        return True, "", ""
    reason = f"{name} {argument}={length} > {SEQUENCE_MAX} tokens"
    return False, reason, "split the sequence, or use the PyTorch operator for this layer"


def attention(batch, heads, q_len, k_len, head_dim, dtype_name, target, bias_heads=0):
    for found in (
        head_size("attention", head_dim),
        sequence("attention", "q_len", q_len),
        sequence("attention", "k_len", k_len),
    ):
        if not found[0]:
            return found
    item = DTYPE_BYTES[dtype_name]
    biased = min(bias_heads, 1)
    return fits("attention", attention_bytes(1, q_len, k_len, head_dim, item, biased), target)


def vit_block(
    batch,
    tokens,
    width,
    heads,
    head_dim,
    hidden,
    dtype_name,
    target,
    gated=False,
    inner_norm=False,
    qk_norm=0,
    rope=0,
    bias_heads=0,
):
    queries = queries_kind(qk_norm, rope, head_dim)
    sizes = (tokens, width, heads, head_dim, hidden, gated, inner_norm, queries, bias_heads)
    return block_fits("vit_block", sizes, dtype_name, target)


def vit_encoder(
    batch,
    tokens,
    width,
    heads,
    head_dim,
    hidden,
    dtype_name,
    target,
    gated=False,
    inner_norm=False,
    qk_norm=0,
    rope=0,
    bias_heads=0,
):
    # As one block, whatever the depth: every layer uses the space of the one before.
    queries = queries_kind(qk_norm, rope, head_dim)
    sizes = (tokens, width, heads, head_dim, hidden, gated, inner_norm, queries, bias_heads)
    return block_fits("vit_encoder", sizes, dtype_name, target)


def block_fits(name, block_sizes, dtype_name, target):
    tokens, width, heads, head_dim, hidden, gated, inner_norm, queries, bias_heads = block_sizes
    for found in (head_size(name, head_dim), sequence(name, "tokens", tokens)):
        if not found[0]:
            return found
    item = DTYPE_BYTES[dtype_name]
    sizes = (
        tokens,
        width,
        heads,
        head_dim,
        hidden,
        item,
        gated,
        inner_norm,
        queries,
        bias_heads,
    )
    heads_pass = min(heads, heads_per_chunk(head_dim))
    smallest = block_bytes(0, 1, heads_pass, min(tokens, PARTITIONS), False, sizes)
    return fits(name, smallest, target)
