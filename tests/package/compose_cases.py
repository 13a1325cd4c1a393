"""Every public function in small calls, as pure functions of tensors, for the tests of what
PyTorch does around a call: compilation, export, autocast, transforms."""

import dataclasses

import torch

import neuron_vit as nv

WIDTH, HEADS, SIZE, HIDDEN, IMAGES, TOKENS = 12, 2, 4, 20, 2, 5


def new(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def block_params(dtype=torch.float32, **options):
    embed = HEADS * SIZE
    return nv.BlockParams(
        **{
            "norm1_weight": new(WIDTH, dtype=dtype),
            "norm1_bias": new(WIDTH, dtype=dtype),
            "qkv_weight": new(WIDTH, 3 * embed, dtype=dtype) / 4,
            "qkv_bias": new(3 * embed, dtype=dtype),
            "proj_weight": new(embed, WIDTH, dtype=dtype) / 4,
            "norm2_weight": new(WIDTH, dtype=dtype),
            "fc1_weight": new(WIDTH, HIDDEN, dtype=dtype) / 4,
            "fc2_weight": new(HIDDEN, WIDTH, dtype=dtype) / 4,
            "num_heads": HEADS,
            "eps": 1e-6,
            "attention_scale": 0.5,
            **options,
        }
    )


def heads(x):
    """[images, heads, tokens, 4] views on [images, tokens, 12]."""
    return x.unflatten(-1, (3, SIZE)).transpose(1, 2)


def blocks(x, weight, kind="plain", count=1):
    """A block (or an encoder of some) whose first product has `weight`."""
    options, calls = {}, {}
    if kind == "rotary":
        options = {"rope": "half", "qk_norm": "rms"}
        ones = torch.ones(SIZE, dtype=x.dtype)
        options.update(q_norm_weight=ones, k_norm_weight=ones)
        angles = torch.arange(TOKENS * SIZE).reshape(TOKENS, SIZE) / 7
        calls = {"rope": (angles.cos(), angles.sin())}
    torch.manual_seed(5)
    params = [block_params(x.dtype, **options) for _ in range(count)]
    params = [dataclasses.replace(one, fc1_weight=weight) for one in params]
    if kind == "lengths":
        calls = {"kv_lens": torch.tensor([TOKENS, 3])}
    if kind == "mask":
        calls = {"attn_mask": torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()}
    if count > 1:
        return lambda x, weight: nv.vit_encoder(
            x, [dataclasses.replace(one, fc1_weight=weight) for one in params], **calls
        )
    return lambda x, weight: nv.vit_block(
        x, dataclasses.replace(params[0], fc1_weight=weight), **calls
    )


def cases(dtype=torch.float32):
    """Name -> (function, tensors): the function of the tensors, the first of which is
    [images, tokens, width]."""

    def tensors(*shapes):
        return tuple(new(*shape, dtype=dtype) for shape in ((IMAGES, TOKENS, WIDTH), *shapes))

    mask = torch.rand(IMAGES, 1, TOKENS, TOKENS) < 0.7
    mask[..., 0] = True
    bias = torch.randn(TOKENS, TOKENS)
    lens = torch.tensor([3, TOKENS])
    bounds = torch.tensor([0, 4, IMAGES * TOKENS])
    rows = (IMAGES, WIDTH)
    square, vector, wide = (WIDTH, WIDTH), (WIDTH,), (HIDDEN, WIDTH)

    def attend(x, y, **options):
        return nv.scaled_dot_product_attention(heads(x), heads(y), heads(x), **options)

    def varlen(x, y):
        q, k = (t.reshape(-1, 3, SIZE) for t in (x, y))
        return nv.flash.flash_attn_varlen_func(q, k, q, bounds, bounds)

    def flash(x, y):
        q, k = (t.unflatten(-1, (3, SIZE)) for t in (x, y))
        return nv.flash.flash_attn_func(q, k, k)

    def narrow_value(x, y):
        return nv.scaled_dot_product_attention(heads(x), heads(y), heads(y)[..., :3])

    image = (IMAGES, TOKENS, WIDTH)
    found = {
        "layer_norm": (lambda x, w, b: nv.layer_norm(x, WIDTH, w, b), (vector, vector)),
        "layer_norm + residual": (
            lambda x, r, w: nv.layer_norm(x, WIDTH, w, residual=r),
            (image, vector),
        ),
        "rms_norm": (lambda x, w: nv.rms_norm(x, WIDTH, w, 1e-5), (vector,)),
        "rms_norm + residual": (lambda x, r: nv.rms_norm(x, WIDTH, residual=r), (image,)),
        "ada_layer_norm": (nv.ada_layer_norm, (rows, rows)),
        "ada_layer_norm + residual": (
            lambda x, s, t, r, g: nv.ada_layer_norm(x, s, t, residual=r, gate=g),
            (rows, rows, image, rows),
        ),
        "ada_rms_norm": (
            lambda x, s, t, w: nv.ada_rms_norm(x, s, t, weight=w),
            (rows, rows, vector),
        ),
        "ada_rms_norm + residual": (
            lambda x, s, t, r: nv.ada_rms_norm(x, s, t, residual=r),
            (rows, rows, image),
        ),
        "linear": (nv.linear, (square, vector)),
        "linear, packed": (lambda x, w: nv.linear(x, w.t()), (square,)),
        "mlp": (
            lambda x, w1, b1, w2: nv.mlp(x, w1, b1, w2, None, "gelu_tanh"),
            (wide, (HIDDEN,), (WIDTH, HIDDEN)),
        ),
        "swiglu_mlp": (
            lambda x, w, w3, n: nv.swiglu_mlp(x, *_halves(w), w3, None, norm_weight=n, norm="rms"),
            ((2 * HIDDEN, WIDTH), (WIDTH, HIDDEN), (HIDDEN,)),
        ),
        "attention": (attend, (image,)),
        "attention, mask": (lambda x, y: attend(x, y, attn_mask=mask), (image,)),
        "attention, bias": (lambda x, y: attend(x, y, attn_mask=bias.to(x.dtype)), (image,)),
        "attention, lengths": (lambda x, y: attend(x, y, kv_lens=lens), (image,)),
        "attention, causal": (lambda x, y: attend(x, y, is_causal=True), (image,)),
        "attention, narrow value": (narrow_value, (image,)),
        # All dropped, so that there is one right answer.
        "attention, dropout": (lambda x, y: attend(x, y, dropout_p=1.0), (image,)),
        "flash_attn_func": (flash, (image,)),
        "flash_attn_varlen_func": (varlen, (image,)),
    }
    built = {name: (function, tensors(*shapes)) for name, (function, shapes) in found.items()}
    for name, kind, count in (
        ("vit_block", "plain", 1),
        ("vit_block, rotary", "rotary", 1),
        ("vit_block, lengths", "lengths", 1),
        ("vit_block, mask", "mask", 1),
        ("vit_encoder", "plain", 2),
    ):
        x, weight = tensors((WIDTH, HIDDEN))
        built[name] = (blocks(x, weight, kind, count), (x, weight))
    packed = nv.EncoderParams.from_blocks([block_params(dtype), block_params(dtype)])
    built["vit_encoder, packed"] = (
        lambda x, shift: nv.vit_encoder(x + shift, packed),
        tensors(vector),
    )
    return built


NAMES = tuple(cases())


def _halves(weight):
    gate, up = weight.chunk(2)
    return gate, None, up, None


def flat(result):
    """The results of a call as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def total(result):
    """One number that depends on every value of a result."""
    return sum(
        (one * torch.arange(one.numel()).reshape(one.shape).cos()).sum() for one in flat(result)
    )
