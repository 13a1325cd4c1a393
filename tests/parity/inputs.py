"""Seeded inputs for every kernel: the positional arguments that kernel, reference and expression
take, built from a few settings.

Every tensor lies inside a larger buffer that is NaN before its first element and behind its last,
so its storage offset is not zero and whatever is read past an end is seen. No bias is zero.
"""

import math

import torch

GUARD = 256  # NaN elements on either side of a tensor: more than one row of any tile's tail

VALUES = ("normal", "offset", "outliers", "equal", "faint", "huge")
ATTENTION_VALUES = ("normal", "logits", "same_keys", "zero_queries", "sink", "outliers")
MASKS = ("bool", "bias", "bias32", "shift", "infinite", "huge")
LAYOUTS = ("dense", "transposed", "packed", "padded", "mixed")


class Draw:
    """Random tensors of one dtype from one seed, drawn in float32 and rounded to the dtype."""

    def __init__(self, dtype, seed):
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape, std=1.0):
        return self.place(torch.randn(shape, generator=self.generator) * std)

    def integers(self, bound, *shape):
        values = torch.randint(-bound, bound + 1, shape, generator=self.generator)
        return self.place(values.float())

    def away_from_zero(self, size, centre=0.0):
        """Magnitudes of 0.25 to 1.25 with random signs around `centre`: a lost term is seen."""
        magnitude = 0.25 + torch.rand(size, generator=self.generator)
        sign = torch.randint(0, 2, (size,), generator=self.generator) * 2 - 1
        return self.place(centre + magnitude * sign)

    def place(self, values):
        """`values` in the dtype, dense, with NaN before and behind them in memory."""
        buffer = torch.full((values.numel() + 2 * GUARD,), float("nan"), dtype=self.dtype)
        inside = buffer[GUARD : GUARD + values.numel()].view(values.shape)
        return inside.copy_(values)

    def rows(self, count, width, values, eps):
        """Activations [count, width] of one kind of VALUES."""
        x = torch.randn(count, width, generator=self.generator)
        if values == "offset":  # the variance is a difference of large numbers
            x = x + 1e3
        elif values == "outliers":  # a few channels a hundred times the rest, as in trained ViTs
            x[:, torch.arange(0, width, 1 + width // 3)] *= 100
        elif values == "equal":  # variance 0; every other row has a value with a long mantissa
            level = torch.linspace(-3, 3, count).reshape(-1, 1)
            level[::2] = level[::2].round()
            x = level.expand(count, width)
        elif values == "faint":  # a variance of the size of eps, where forgetting eps is seen
            x = x * math.sqrt(eps)
        elif values == "huge":  # squares stay in the range of float32 statistics and of rsqrt
            x = x * (1e4 if self.dtype == torch.float16 else 1e12)
        elif values != "normal":
            raise ValueError(f"values is {values!r}; known are {VALUES}")
        return self.place(x)


def layer_norm(draw, rows=64, width=192, residual=False, affine=True, values="normal", eps=1e-6):
    x = draw.rows(rows, width, values, eps)
    weight = draw.away_from_zero(width, centre=1.5) if affine else None
    bias = draw.away_from_zero(width) if affine else None
    return x, weight, bias, draw.normal(rows, width) if residual else None, eps


def rms_norm(draw, rows=64, width=192, residual=False, affine=True, values="normal", eps=1e-6):
    x, weight, _, residual, eps = layer_norm(draw, rows, width, residual, affine, values, eps)
    return x, weight, residual, eps


def linear(
    draw, tokens=64, in_features=192, out_features=192, layout="in_out", bias=True, values="normal"
):
    x = draw.rows(tokens, in_features, values, eps=None)
    weight = _weight(draw, in_features, out_features, layout)
    return x, weight, draw.away_from_zero(out_features) if bias else None, layout


def mlp(
    draw, tokens=64, width=192, hidden=512, out=None, activation="gelu", layout="in_out",
    bias=True, values="normal", spread=1.0, norm=None, eps=1e-6,
):  # fmt: skip
    """`spread` is the standard deviation of what the activation sees; norm: that of the hidden
    features, None, "layer" or "rms"."""
    out = out or width
    x = draw.rows(tokens, width, values, eps=None)
    fc1_weight = _weight(draw, width, hidden, layout, gain=spread)
    fc2_weight = _weight(draw, hidden, out, layout)
    fc1_bias = draw.away_from_zero(hidden) if bias else None
    fc2_bias = draw.away_from_zero(out) if bias else None
    weights = (fc1_weight, fc1_bias, fc2_weight, fc2_bias)
    return x, *weights, activation, layout, *_inner_norm(draw, hidden, norm, bias, eps)


def swiglu_mlp(
    draw, tokens=64, width=192, hidden=512, out=None, activation="silu", layout="in_out",
    packed=None, bias=True, values="normal", spread=1.0, norm=None, eps=1e-6,
):  # fmt: skip
    """packed: "gate first" or "gate last" for gate and up in one matrix; the rest as in `mlp`."""
    out = out or width
    x = draw.rows(tokens, width, values, eps=None)
    features = hidden if packed is None else 2 * hidden
    gains = {None: (spread, 1.0), "gate first": (spread, None), "gate last": (None, spread)}[packed]
    projections = []
    for gain in gains:
        if gain is None:
            projections += [None, None]
        else:
            projections.append(_weight(draw, width, features, layout, gain=gain))
            projections.append(draw.away_from_zero(features) if bias else None)
    down_weight = _weight(draw, hidden, out, layout)
    down_bias = draw.away_from_zero(out) if bias else None
    inner = _inner_norm(draw, hidden, norm, bias, eps)
    return x, *projections, down_weight, down_bias, activation, layout, *inner


def _inner_norm(draw, hidden, norm, bias, eps):
    weight = draw.away_from_zero(hidden, centre=1.5) if norm else None
    return weight, draw.away_from_zero(hidden) if norm == "layer" and bias else None, eps, norm


def ada_layer_norm(
    draw, tokens=64, width=192, batch=2, affine=False, residual=False, gate=False, values="normal",
    eps=1e-6,
):  # fmt: skip
    x = draw.rows(batch * tokens, width, values, eps).view(batch, tokens, width)
    rows = [draw.away_from_zero(batch * width).view(batch, width) for _ in range(3)]
    weight = draw.away_from_zero(width, centre=1.5) if affine else None
    bias = draw.away_from_zero(width) if affine else None
    added = draw.normal(batch, tokens, width) if residual else None
    return x, *rows[:2], weight, bias, added, rows[2] if gate else None, eps


def ada_rms_norm(draw, **settings):
    arguments = ada_layer_norm(draw, **settings)
    return *arguments[:4], *arguments[5:]


def attention(
    draw, tokens=64, head_dim=64, keys=None, batch=1, heads=2, layout="dense", scale=None,
    values="normal", kv_heads=None, mask=None, axes="BHQ", lens=None, segments=None,
    key_segments=None,
):  # fmt: skip
    """mask: one of MASKS, whose first three axes have the size 1 where `axes` has no letter but 1.
    lens: of the keys of each image. segments, key_segments: the lengths of those of the queries
    and, if they are others, of the keys; they make up all tokens. "ones" is a segment a token.

    layout: one of LAYOUTS.

    dense        [B, H, S, D], passed without a view
    transposed   [B, S, H, D] memory
    packed       q, k and v are slices of one [B, S, 3, H, D] buffer, as a fused QKV leaves them
    padded       [B, H, S + 3, D + 8] memory with NaN in the rows and columns that do not belong
    mixed        dense q, transposed k, padded v
    """
    keys = tokens if keys is None else keys
    scale = head_dim**-0.5 if scale is None else scale
    groups = heads if kv_heads is None else kv_heads
    q = _attention_values(draw, (batch, heads, tokens, head_dim), values, "q")
    k = _attention_values(draw, (batch, groups, keys, head_dim), values, "k")
    v = _attention_values(draw, (batch, groups, keys, head_dim), values, "v")
    if layout == "packed":
        shape = (batch, tokens, 3, heads, head_dim)
        packed = torch.stack([tensor.transpose(1, 2) for tensor in (q, k, v)], dim=2)
        packed = draw.place(packed.reshape(shape))
        operands = [_window(packed[:, :, index].transpose(1, 2)) for index in range(3)]
    else:
        kinds = ("dense", "transposed", "padded") if layout == "mixed" else (layout,) * 3
        operands = [_laid_out(draw, *item) for item in zip((q, k, v), kinds)]
    tensors, views = zip(*operands)
    if mask is not None:
        sizes = [1 if axis == "1" else size for axis, size in zip(axes, (batch, heads, tokens))]
        mask = _mask(draw, (*sizes, keys), mask)
    if lens is not None:
        lens = torch.tensor(lens, dtype=torch.int32)
    bounds = [None, None]
    if segments is not None:
        for index, lengths in enumerate((segments, key_segments or segments)):
            if lengths == "ones":
                lengths = (1,) * tokens
            bounds[index] = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return *tensors, scale, *views, mask, lens, *bounds


def vit_block(
    draw, tokens=64, width=192, heads=3, head_dim=64, hidden=512, batch=1, norm="layer",
    activation="gelu", bias=True, layer_scale=False, values="normal", eps=1e-6, logits=None,
    gate=False, inner_norm=None, qk_norm=None, full=False, rope=None, prefix=0, tables="shared",
    mask=None, axes="BHQ", lens=None, segments=None,
):  # fmt: skip
    """`logits`: attention scores of about plus and minus this size, decided beyond rounding.

    Tokens then come in pairs x, -x and keys equal queries, so that a token attends to itself: its
    own score is the largest by far in any dtype, while exp of any unshifted score overflows.

    full: the norm of queries and keys is one of all heads together. rope: None, "half" or
    "interleaved", for all tokens but the first `prefix`; tables: "shared", "own" (of each image) or
    "float32" (shared, whatever the dtype). mask, axes, lens, segments: as for `attention`.
    """
    inner = heads * head_dim
    x = draw.rows(batch * tokens, width, values, eps).view(batch, tokens, width)
    qkv_weight = _weight(draw, width, 3 * inner, "in_out", gain=1.5)
    qkv_bias = draw.away_from_zero(3 * inner) if bias else None
    norm_bias = bias and norm == "layer"
    norm1_bias = draw.away_from_zero(width) if norm_bias else None
    scale = head_dim**-0.5
    if logits is not None:
        x[:, 1::2] = -x[:, : tokens // 2 * 2 : 2]
        qkv_weight[:, inner : 2 * inner] = qkv_weight[:, :inner]
        qkv_bias, norm1_bias = None, None
        # A query has about 1.5^2 * E[weight^2] = 6 of squared length per channel of its head.
        scale = logits / (6 * head_dim)
    return (
        x,
        draw.away_from_zero(width, centre=1.5),
        norm1_bias,
        qkv_weight,
        qkv_bias,
        # Attention averages over tokens, which makes its output small; the gain keeps this branch
        # as visible in the sum as the others.
        _weight(draw, inner, width, "in_out", gain=4.0),
        draw.away_from_zero(width) if bias else None,
        draw.away_from_zero(width) if layer_scale else None,
        draw.away_from_zero(width, centre=1.5),
        draw.away_from_zero(width) if norm_bias else None,
        _weight(draw, width, hidden, "in_out"),
        draw.away_from_zero(hidden) if bias else None,
        _weight(draw, hidden, width, "in_out"),
        draw.away_from_zero(width) if bias else None,
        draw.away_from_zero(width) if layer_scale else None,
        heads,
        eps,
        norm,
        activation,
        scale,
        _weight(draw, width, hidden, "in_out") if gate else None,
        draw.away_from_zero(hidden) if gate and bias else None,
        *_norm_vectors(draw, hidden, inner_norm),
        *_norm_vectors(draw, inner if full else head_dim, qk_norm),
        *_norm_vectors(draw, inner if full else head_dim, qk_norm),
        *_tables(draw, tokens - prefix, head_dim, rope, batch, tables),
        *_restrictions(draw, (batch, heads, tokens), mask, axes, lens, segments),
        inner_norm,
        1e-2,
        qk_norm,
        1e-3,
        rope or "half",
    )


def vit_encoder(draw, layers=2, **settings):
    """`layers` blocks of the settings of `vit_block`, stacked; the first one's x and tables.

    What the branches add is small beside x, as in a trained model: rounding would otherwise grow
    from block to block, in PyTorch's bfloat16 as in the kernel's.
    """
    blocks = [vit_block(draw, **settings) for _ in range(layers)]
    x, *arguments = blocks[0]
    # After the 14 weights of a block come 5 scalars, 8 more weights, and what all layers share.
    for index in (*range(14), *range(19, 27)):
        if arguments[index] is not None:
            stack = torch.stack([block[1 + index] for block in blocks]).float()
            branch = index in (4, 11)  # the projection and the second matrix of the MLP
            arguments[index] = draw.place(stack * (0.125 if branch else 1.0))
    return (x, *arguments)


BUILDERS = {
    builder.__name__: builder
    for builder in (
        *(layer_norm, rms_norm, ada_layer_norm, ada_rms_norm),
        *(linear, mlp, swiglu_mlp, attention, vit_block, vit_encoder),
    )
}


def _weight(draw, in_features, out_features, layout, gain=1.0):
    shape = (in_features, out_features) if layout == "in_out" else (out_features, in_features)
    return draw.normal(*shape, std=gain * in_features**-0.5)


def _mask(draw, shape, kind):
    """A mask, or a bias, of one kind. Some queries see nothing, or only the first or last key."""
    seen = torch.rand(shape, generator=draw.generator) < 0.7
    if shape[2] > 3:
        seen[..., :3, :] = False
        seen[..., 1, 0] = True
        seen[..., 2, -1] = True
        seen[..., -1, :] = False
    if kind == "bool":
        return seen.to(torch.uint8)
    bias = torch.randn(shape, generator=draw.generator) * 2
    if kind == "bias32":
        return bias
    if kind == "shift":  # windows that wrap around, as Swin marks them
        bias = bias - 100.0 * (torch.arange(shape[3]) % 7 > 3)
    elif kind == "infinite":
        bias = bias.masked_fill(~seen, float("-inf"))
    elif kind == "huge":
        bias = 1e4 * torch.sign(bias) + 64.0 * torch.round(bias)
    elif kind != "bias":
        raise ValueError(f"mask is {kind!r}; known are {MASKS}")
    return draw.place(bias)


def _norm_vectors(draw, size, norm):
    """Weight and bias of a norm, None where it has none."""
    return (
        None if norm is None else draw.away_from_zero(size, centre=1.5),
        draw.away_from_zero(size) if norm == "layer" else None,
    )


def _tables(draw, positions, head_dim, rope, batch, tables):
    """(cos, sin) of angles that differ everywhere, so that a misplaced value is seen."""
    if rope is None:
        return None, None
    shape = (batch, positions, head_dim) if tables == "own" else (positions, head_dim)
    angles = 7 * torch.rand(shape, generator=draw.generator)
    if tables == "float32":
        draw = Draw(torch.float32, seed=0)
    return draw.place(angles.cos()), draw.place(angles.sin())


def _restrictions(draw, sizes, mask, axes, lens, segments):
    """(mask, kv_lens, cu_seqlens) of a block, at most one of which is not None."""
    if mask is not None:
        shape = [1 if axis == "1" else size for axis, size in zip(axes, sizes)]
        mask = _mask(draw, (*shape, sizes[2]), mask)
    if lens is not None:
        lens = torch.tensor(lens, dtype=torch.int32)
    if segments is not None:
        segments = torch.tensor([0, *segments]).cumsum(0).to(torch.int32)
    return mask, lens, segments


def _attention_values(draw, shape, values, which):
    if values == "logits":
        # Whole numbers, whose products are exact in float32 at any magnitude that occurs, so that
        # rounding of the scores themselves does not decide a near tie.
        bound = {"q": 30, "k": 30, "v": 9}[which]
        return draw.integers(bound, *shape)
    if values == "same_keys" and which == "k":
        return draw.normal(*shape[:2], 1, shape[3]).expand(shape)
    if values == "zero_queries" and which == "q":
        return torch.zeros(shape)
    if values == "sink" and which != "q":  # one key takes most of the weight and gives nothing
        tensor = draw.normal(*shape)
        tensor[:, :, 0] *= 20 if which == "k" else 0.01
        return tensor
    if values == "outliers" and which != "v":  # a few channels a hundred times the rest
        tensor = draw.normal(*shape)
        tensor[..., :: 1 + shape[3] // 2] *= 100 if which == "k" else 1
        return tensor
    if values not in ATTENTION_VALUES:
        raise ValueError(f"values is {values!r}; known are {ATTENTION_VALUES}")
    # PyTorch rounds scores to the dtype, an error that grows with them and widens what the rule
    # allows; with small ones a row that misses one key of 577 is beyond it even in bfloat16.
    tensor = draw.normal(*shape, std=0.6 if which == "q" else 1.0)
    if which == "v":
        tensor[:, :, -1] += 4  # the key that a mask off by one loses is worth noticing
    return tensor


def _laid_out(draw, values, kind):
    """`values` [B, H, S, D] in memory of one kind, as (tensor, view)."""
    batch, heads, tokens, head_dim = values.shape
    if kind == "dense":
        return draw.place(values), None
    if kind == "transposed":
        return _window(draw.place(values.transpose(1, 2)).transpose(1, 2))
    if kind == "padded":
        nan = torch.full((batch, heads, tokens + 3, head_dim + 8), float("nan"))
        inside = draw.place(nan)[:, :, 1 : tokens + 1, 4 : head_dim + 4]
        return _window(inside.copy_(values))
    raise ValueError(f"layout is {kind!r}; known are {LAYOUTS}")


def _window(tensor):
    """The flat window that holds a strided tensor, and (shape, strides) to find it there."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    return tensor.as_strided((span,), (1,), tensor.storage_offset()), (shape, strides)
