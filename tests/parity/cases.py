"""The table of parity cases: one row a case, in every dtype.

A row names a kernel and the settings of its builder in `inputs.py` that differ from the defaults;
adding a row adds its test for the kernel, for its twin in `reference/`, in three dtypes.

GRID covers the shapes of the Vision Transformer families. The cheap kernels get the full cross
product; of the expensive ones every value of every axis meets every dtype and the cross product is
LONG. HOSTILE holds values that break careless kernels, LAYOUT and OPTIONS what a caller may pass.
"""

import itertools
import zlib
from dataclasses import dataclass

import torch

from . import inputs

# The order gives float16, the slowest on a CPU, the smaller cases where a grid rotates by dtype.
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}

# Token counts of windows, and of 224 and 384 pixel images with patches of 14 and 16, with and
# without a class token; head sizes, widths and MLP widths from ViT-Ti to SigLIP SO400M and ViT-g.
TOKENS = (1, 49, 50, 64, 196, 197, 257, 577)
HEAD_DIMS = (32, 64, 72, 80, 88, 128)
WIDTHS = (192, 384, 768, 1152)
HIDDENS = (512, 3072, 4304)
ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu")
GATES = ("silu", "gelu", "gelu_tanh", "quick_gelu", "relu")
EPS = (1e-12, 1e-6, 1e-5)

# (width, heads, head size) of blocks: every width and head size, also with heads * size != width.
BLOCKS = (
    (192, 3, 64),
    (384, 12, 32),
    (768, 6, 128),
    (1152, 16, 72),
    (192, 2, 80),
    (768, 12, 64),
    (384, 4, 88),
    (1152, 18, 64),
)


# (width, hidden, bias, norm, packed) of gated MLPs: EVA02 Ti, B and L, Qwen2.5-VL, DINOv3 H+,
# AIMv2 L and DINOv2 g, as their models store them.
GATED = {
    "eva02_ti": (192, 512, True, None, "gate first"),
    "eva02_s": (384, 1024, True, None, "gate first"),
    "eva02_b": (768, 2048, True, "layer", None),
    "eva02_l": (1024, 2730, True, "layer", None),
    "qwen2_5_vl": (1280, 3420, True, None, None),
    "dinov3_hplus": (1280, 5120, True, None, None),
    "aimv2_l": (1024, 2816, False, None, None),
    "dinov2_g": (1536, 4096, True, None, "gate first"),
}


@dataclass(frozen=True)
class Case:
    """One kernel, one dtype, one set of inputs, and the programs that share the launch (`lnc`, 1 or
    2). `settings` are (name, value) pairs."""

    kernel: str
    dtype: str
    settings: tuple
    long: bool
    lnc: int

    @property
    def id(self):
        parts = [f"{name}:{value}" for name, value in self.settings]
        if self.lnc > 1:
            parts.append(f"lnc:{self.lnc}")
        return "-".join([self.kernel, self.dtype, *parts])

    def build(self):
        """The positional arguments; the seed is the case's name, so every case has its own."""
        draw = inputs.Draw(DTYPES[self.dtype], seed=zlib.crc32(self.id.encode()))
        return inputs.BUILDERS[self.kernel](draw, **dict(self.settings))


def row(kernel, dtypes=tuple(DTYPES), long=False, lnc=1, **settings):
    """The cases of one row of the table; the settings are those of the kernel's builder."""
    return [Case(kernel, dtype, tuple(settings.items()), long, lnc) for dtype in dtypes]


def norm_grid():
    for index, (rows, width) in enumerate(itertools.product(TOKENS, WIDTHS)):
        eps = EPS[index % 3]
        yield from row("layer_norm", rows=rows, width=width, eps=eps, residual=index % 2 == 0)
        yield from row("rms_norm", rows=rows, width=width, eps=eps, residual=index % 2 == 1)


def attention_grid():
    for index, (tokens, head_dim) in enumerate(itertools.product(TOKENS, HEAD_DIMS)):
        layout = inputs.LAYOUTS[index % len(inputs.LAYOUTS)]
        yield from row("attention", tokens=tokens, head_dim=head_dim, layout=layout)


def linear_grid():
    features = WIDTHS + HIDDENS
    for number, dtype in enumerate(DTYPES):
        for index, tokens in enumerate(2 * TOKENS):
            yield from row(
                "linear",
                dtypes=(dtype,),
                tokens=tokens,
                in_features=features[(index + 2 * number) % 7],
                out_features=features[(3 * index + number + 2) % 7],
                layout=("in_out", "out_in")[(index + index // 8 + number) % 2],
            )
    # Not from one MLP width to another: no model does, and it may exceed the chip.
    pairs = {*itertools.product(features, WIDTHS), *itertools.product(WIDTHS, features)}
    full = itertools.product(TOKENS, sorted(pairs), ("in_out", "out_in"))
    for tokens, (in_features, out_features), layout in full:
        yield from row(
            "linear", long=True, tokens=tokens, in_features=in_features,
            out_features=out_features, layout=layout,
        )  # fmt: skip


def mlp_grid():
    shapes = list(itertools.product(TOKENS, WIDTHS, HIDDENS))
    for index, (tokens, width, hidden) in enumerate(shapes):
        yield from row(
            "mlp", tokens=tokens, width=width, hidden=hidden,
            activation=ACTIVATIONS[index // 3 % 3], layout=("in_out", "out_in")[index % 2],
        )  # fmt: skip
    options = itertools.product(shapes, ACTIVATIONS, ("in_out", "out_in"))
    for (tokens, width, hidden), activation, layout in options:
        yield from row(
            "mlp", long=True, tokens=tokens, width=width, hidden=hidden, activation=activation,
            layout=layout,
        )  # fmt: skip


def gated_grid():
    for index, (width, hidden, bias, norm, packed) in enumerate(GATED.values()):
        # One family a token count in the short grid, all of them in the long one.
        for tokens in TOKENS:
            long = tokens != TOKENS[(index + 1) % 8]
            yield from row(
                "swiglu_mlp", long=long, tokens=tokens, width=width, hidden=hidden, bias=bias,
                norm=norm, packed=packed, layout=("in_out", "out_in")[index // 2 % 2],
            )  # fmt: skip


def ada_grid():
    # The tokens of DiT-XL/2 at 256 and 512 pixels, and of windows and class tokens beside them.
    shapes = itertools.product((*TOKENS, 256), WIDTHS)
    for index, (tokens, width) in enumerate(shapes):
        for kernel, form in (("ada_layer_norm", index % 3), ("ada_rms_norm", (index + 1) % 3)):
            yield from row(
                kernel, tokens=tokens, width=width, batch=1 + index % 3, affine=index % 2 == 1,
                residual=form > 0, gate=form > 1, eps=EPS[index // 3 % 3],
            )  # fmt: skip


def block_grid():
    for number, dtype in enumerate(DTYPES):
        for index, tokens in enumerate(2 * TOKENS):
            width, heads, head_dim = BLOCKS[(index + index // 8 + 3 * number) % 8]
            yield from row(
                "vit_block",
                dtypes=(dtype,),
                tokens=tokens,
                width=width,
                heads=heads,
                head_dim=head_dim,
                hidden=HIDDENS[(index + number) % 3],
                activation=ACTIVATIONS[(index + 2 * number) % 3],
                norm=("layer", "rms")[(index // 2 + number) % 2],
                layer_scale=(index + number) % 2 == 0,
            )
    for tokens, (width, heads, head_dim), hidden in itertools.product(TOKENS, BLOCKS, HIDDENS):
        yield from row(
            "vit_block", long=True, tokens=tokens, width=width, heads=heads, head_dim=head_dim,
            hidden=hidden,
        )  # fmt: skip


def block_options():
    """Rotations, norms of queries and keys, gates, inner norms and masks of a block."""
    ropes, norms, head_dims = ("half", "interleaved"), (None, "layer", "rms"), (32, 64, 72, 80, 128)
    for index, (rope, norm, head_dim) in enumerate(itertools.product(ropes, norms, head_dims)):
        yield from row(
            "vit_block", tokens=(50, 130, 197)[index % 3], width=200, heads=3, head_dim=head_dim,
            hidden=300, rope=rope, prefix=(0, 1, 5)[index // 2 % 3], qk_norm=norm,
            batch=1 + index % 2, bias=index % 4 > 0, tables=("shared", "own", "float32")[index % 3],
        )  # fmt: skip
    # Prefixes that end with a tile or behind it, a table of one position; an odd number of heads.
    for tokens, prefix in ((129, 128), (260, 130), (17, 16)):
        yield from row(
            "vit_block", tokens=tokens, width=136, heads=5, head_dim=32, hidden=200, prefix=prefix,
            rope="half",
        )  # fmt: skip
    for norm, full, head_dim in (
        ("layer", False, 88), ("rms", False, 64), ("rms", True, 128), ("rms", True, 40),
    ):  # fmt: skip
        for bias in (True, False):
            yield from row(
                "vit_block", tokens=130, width=264, heads=3, head_dim=head_dim, hidden=300, batch=2,
                qk_norm=norm, full=full, bias=bias, norm="rms",
            )  # fmt: skip
    # More values than a bank of PSUM holds.
    yield from row(
        "vit_block", dtypes=("fp32",), tokens=50, width=136, heads=9, head_dim=64, hidden=200,
        qk_norm="rms", full=True,
    )  # fmt: skip
    # More heads than a bank of PSUM or a pass holds, and more columns than a slab.
    yield from row(
        "vit_block", dtypes=("bf16",), tokens=17, width=136, heads=70, head_dim=32, hidden=200,
        qk_norm="rms", full=True, rope="half",
    )  # fmt: skip
    for inner_norm, hidden in ((None, 342), ("layer", 342), ("rms", 2730)):
        for activation in ("silu", "gelu"):
            yield from row(
                "vit_block", tokens=65, width=200, heads=2, head_dim=64, hidden=hidden, gate=True,
                inner_norm=inner_norm, activation=activation, layer_scale=activation == "silu",
            )  # fmt: skip
    yield from row("vit_block", tokens=65, inner_norm="layer", batch=2, bias=False)
    for mask, axes in (
        ("bool", "B11"), ("bool", "1HQ"), ("bias", "1HQ"), ("bias32", "B1Q"), ("infinite", "BHQ"),
    ):  # fmt: skip
        yield from row("vit_block", tokens=130, batch=2, hidden=300, mask=mask, axes=axes)
    yield from row("vit_block", tokens=50, batch=3, hidden=300, lens=(50, 17, 0), rope="half")
    yield from row("vit_block", tokens=197, hidden=300, segments=(1, 64, 131, 1), rope="half")
    yield from row("vit_block", tokens=577, hidden=300, segments=(256, 321), qk_norm="layer")


GRID = [
    *norm_grid(),
    *attention_grid(),
    *linear_grid(),
    *mlp_grid(),
    *gated_grid(),
    *ada_grid(),
    *block_grid(),
    *row("attention", tokens=1025, head_dim=64, heads=1),
    *row("attention", tokens=4096, head_dim=64, heads=1),  # limits.SEQUENCE_MAX
]

HOSTILE = [
    # Variance 0, a variance of the size of eps, a mean far from 0, outliers, the ends of the range.
    *(
        case
        for kernel in ("layer_norm", "rms_norm")
        for eps in EPS
        for values in ("equal", "faint")
        for case in row(kernel, rows=130, width=768, values=values, eps=eps)
    ),
    *(
        case
        for kernel in ("layer_norm", "rms_norm")
        for values in ("offset", "outliers", "huge")
        for residual in (False, True)
        for case in row(kernel, rows=130, width=1152, values=values, residual=residual)
    ),
    # Scores of plus and minus 1e4, overflowing any exp that is not shifted by the row's maximum.
    *row("attention", tokens=197, values="logits", scale=1.0),
    *row("attention", tokens=64, keys=577, head_dim=128, values="logits", scale=0.5),
    *row("attention", tokens=130, head_dim=32, values="logits", scale=2.0, layout="packed"),
    # Uniform weights: nothing but the count of keys and the mean of the values decides.
    *row("attention", tokens=197, values="same_keys"),
    *row("attention", tokens=257, head_dim=80, values="zero_queries"),
    *row("attention", tokens=50, scale=1e-6),
    # A negative scale: the largest weight belongs to the smallest product.
    *row("attention", tokens=50, scale=-1.0),
    *row("attention", tokens=50, values="logits", scale=-1.0),
    # One key that takes most of the weight; a few channels a hundred times the rest.
    *row("attention", tokens=197, values="sink"),
    *row("attention", tokens=150, head_dim=32, values="sink", mask="bool"),
    *row("attention", tokens=197, values="outliers"),
    *row("attention", tokens=50, head_dim=80, values="outliers", mask="shift", axes="1HQ"),
    # Masks over scores of 1e4, biases of 1e4, minus infinity, queries that see no key.
    *(
        case
        for mask in inputs.MASKS
        for case in [
            *row("attention", tokens=130, head_dim=32, keys=70, mask=mask),
            *row("attention", tokens=64, head_dim=80, mask=mask, values="logits", scale=1.0),
        ]
    ),
    *row("attention", tokens=130, mask="bool", values="logits", scale=-1.0),
    *row("attention", tokens=130, mask="infinite", scale=-0.2),
    *(
        case
        for mask, scale in itertools.product(("bool", "infinite"), (2.0**-10, 2.0**10))
        for case in row("attention", tokens=130, mask=mask, scale=scale)
    ),
    *row("attention", tokens=577, mask="bool", axes="11Q", values="logits", scale=0.7),
    # Images without a key, with one, with one tile and one more or less.
    *row("attention", tokens=50, keys=257, batch=6, lens=(0, 1, 128, 129, 256, 257)),
    *row("attention", tokens=50, keys=513, batch=2, lens=(512, 513), values="logits", scale=0.3),
    # Segments of one token, more of them than partitions, without keys, over scores of 1e4.
    *row("attention", tokens=300, segments="ones"),
    *row("attention", tokens=150, head_dim=32, segments=(1, 100, 1, 1, 47)),
    *row("attention", tokens=150, head_dim=72, segments=(1, 100, 49), values="logits", scale=1.0),
    *row(
        "attention",
        tokens=150,
        keys=30,
        head_dim=32,
        segments=(1, 100, 1, 1, 47),
        key_segments=(4, 1, 0, 5, 20),
    ),
    *row("linear", tokens=130, in_features=768, values="outliers"),
    *row("linear", tokens=130, in_features=768, values="offset"),
    *row("linear", tokens=130, in_features=768, values="huge", layout="out_in"),
    # The activations far into both tails, and with outlier channels.
    *(
        case
        for activation in ACTIVATIONS
        for case in row("mlp", tokens=50, hidden=512, activation=activation, spread=30.0)
    ),
    *row("mlp", tokens=130, width=384, values="outliers"),
    *row("mlp", tokens=130, width=384, values="outliers", norm="layer"),
    *(
        case
        for activation in GATES
        for case in row("swiglu_mlp", tokens=50, activation=activation, spread=30.0)
    ),
    *(
        case
        for norm in (None, "layer", "rms")
        for case in [
            *row("swiglu_mlp", tokens=130, width=384, values="outliers", norm=norm),
            # The hidden values of about 1e6 are beyond float16.
            *row(
                "swiglu_mlp", dtypes=("bf16", "fp32"), tokens=130, width=384, values="offset",
                norm=norm,
            ),
        ]  # fmt: skip
    ),
    *(
        case
        for kernel in ("ada_layer_norm", "ada_rms_norm")
        for values in ("equal", "faint", "offset", "outliers", "huge")
        for case in row(kernel, tokens=65, width=768, values=values)
    ),
    *row("ada_layer_norm", tokens=65, width=768, values="outliers", residual=True, gate=True),
    *row("vit_block", tokens=50, logits=1e4),
    *row("vit_block", tokens=197, heads=2, head_dim=80, logits=1e4, norm="rms"),
    *(
        case
        for values, eps in itertools.product(("equal", "faint"), EPS)
        for case in row("vit_block", tokens=50, values=values, eps=eps)
    ),
    *row("vit_block", tokens=50, values="offset"),
    *row("vit_block", tokens=50, values="outliers", norm="rms"),
    *row("vit_block", tokens=129, values="outliers", layer_scale=True),
]

LAYOUT = [
    *(
        case
        for layout in inputs.LAYOUTS
        for case in row("attention", tokens=50, head_dim=72, batch=2, heads=3, layout=layout)
    ),
    *(
        case
        for layout in ("in_out", "out_in")
        for bias in (True, False)
        for case in [
            *row("linear", tokens=65, in_features=200, out_features=130, layout=layout, bias=bias),
            *row("mlp", tokens=65, width=200, hidden=300, layout=layout, bias=bias),
            *row("swiglu_mlp", tokens=65, width=200, hidden=300, layout=layout, bias=bias),
        ]
    ),
]

OPTIONS = [
    *(
        case
        for layout, packed, norm, bias in itertools.product(
            ("in_out", "out_in"), ("gate first", "gate last"), (None, "layer"), (True, False)
        )
        for case in row(
            "swiglu_mlp", tokens=65, width=200, hidden=300, layout=layout, packed=packed,
            norm=norm, bias=bias,
        )  # fmt: skip
    ),
    *row("swiglu_mlp", tokens=50, activation="gelu", norm="rms", out=130),
    *row("swiglu_mlp", tokens=600, width=130, hidden=200, norm="rms", bias=False),
    *row("mlp", tokens=50, hidden=300, activation="silu"),
    *row("mlp", tokens=50, hidden=300, activation="relu"),
    *(
        case
        for norm, bias in itertools.product(("layer", "rms"), (True, False))
        for case in row("mlp", tokens=150, width=200, hidden=300, norm=norm, bias=bias)
    ),
    # An image a row, images that end inside tiles, more columns than a block.
    *row("ada_layer_norm", tokens=1, batch=5, affine=True),
    *row("ada_layer_norm", tokens=256, width=1152, batch=2, residual=True, gate=True),  # DiT-XL/2
    *row("ada_layer_norm", tokens=130, batch=3, residual=True, gate=True, affine=True),
    *row("ada_layer_norm", tokens=3, width=3200, residual=True, gate=True),
    *row("ada_rms_norm", tokens=130, batch=3, residual=True),
    *row("ada_rms_norm", tokens=3, width=3200, affine=True),
    *(
        case
        for kernel in ("layer_norm", "rms_norm")
        for residual in (False, True)
        for case in row(kernel, rows=65, width=200, affine=False, residual=residual)
    ),
    # Wider than a block of columns, with a tail.
    *row("layer_norm", rows=3, width=3200, residual=True),
    *row("rms_norm", rows=3, width=3200, residual=True),
    # Queries and keys of different lengths, batches, more heads than one pass holds.
    *row("attention", tokens=1, keys=197),
    *row("attention", tokens=197, keys=1),
    *row("attention", tokens=64, keys=577, head_dim=32, layout="transposed"),
    *row("attention", tokens=577, keys=49, head_dim=88, layout="padded"),
    *row("attention", tokens=50, batch=3, heads=5, head_dim=104),
    *row("attention", tokens=17, batch=1, heads=70, head_dim=32, layout="packed"),
    *row("attention", tokens=197, scale=0.3),
    # Masks and biases of every axis that may be missing; several blocks, and passes of heads.
    *(
        case
        for index, axes in enumerate(("BHQ", "1HQ", "B1Q", "11Q", "BH1", "B11", "111"))
        for case in row(
            "attention",
            tokens=150,
            keys=140,
            head_dim=(32, 64, 72)[index % 3],
            batch=2,
            heads=3,
            mask=("bool", "bias", "infinite")[index // 3],
            axes=axes,
            layout="mixed",
        )
    ),
    *row("attention", tokens=600, keys=577, head_dim=72, mask="bias"),
    *row("attention", tokens=1200, keys=40, batch=2, heads=1, head_dim=32, mask="bool", axes="11Q"),
    *row("attention", tokens=17, heads=70, head_dim=32, mask="bias"),
    # Windows of Swin, which are many images.
    *row("attention", tokens=49, batch=8, heads=3, head_dim=32, mask="shift", layout="packed"),
    *row("attention", tokens=64, batch=4, heads=4, head_dim=32, mask="shift", layout="packed"),
    *row("attention", tokens=144, batch=2, heads=6, head_dim=32, mask="shift", axes="1HQ"),
    # BEiT, SigLIP2 NaFlex, a Qwen-VL image in windows.
    *row("attention", tokens=197, batch=2, heads=12, mask="bias", axes="1HQ", layout="packed"),
    *row("attention", tokens=256, batch=2, heads=4, head_dim=72, mask="bool", axes="B1Q"),
    *row("attention", tokens=256, heads=2, head_dim=80, segments=(64,) * 4, layout="packed"),
    # Fewer heads of keys and values than of queries, and more images times heads than 512.
    *row("attention", tokens=50, heads=6, kv_heads=2, head_dim=32, layout="mixed"),
    *row("attention", tokens=130, batch=2, heads=4, kv_heads=1, head_dim=80, mask="bias"),
    *row("attention", tokens=17, heads=70, kv_heads=35, head_dim=32, layout="transposed"),
    *row("attention", tokens=5, batch=33, heads=16),
    *row("attention", tokens=5, batch=33, heads=16, mask="bool", axes="B11"),
    # Windows of Swin, and other short images, that share tiles in a block; an odd number of them.
    *row("vit_block", tokens=49, batch=5, heads=3, head_dim=32, width=96, mask="shift", axes="BHQ"),
    *row("vit_block", tokens=64, batch=4, heads=4, head_dim=32, mask="bias", axes="1HQ"),
    *row("vit_block", tokens=49, batch=3, heads=2, mask="infinite", axes="B1Q", rope="half"),
    *row("vit_block", tokens=32, batch=6, heads=2, qk_norm="layer", mask="bias32", axes="BHQ"),
    *row("vit_block", tokens=16, batch=7, heads=3, head_dim=32, mask="bool", axes="BHQ"),
    *row("vit_block", tokens=49, batch=3, heads=3, head_dim=32, logits=1e4),
    *row("vit_encoder", tokens=49, batch=3, heads=3, head_dim=32, mask="shift", axes="1HQ"),
    # Two programs: they share images, heads, or the tokens of one image.
    *row("attention", lnc=2, tokens=130, batch=3, heads=2, head_dim=32, mask="bias"),
    *row("attention", lnc=2, tokens=130, heads=3, head_dim=72, segments=(1, 100, 29)),
    *row("vit_block", lnc=2, tokens=197, batch=3, mask="bool", axes="B1Q", rope="half"),
    *row("vit_block", lnc=2, tokens=300, heads=2, mask="bias", layer_scale=True, hidden=200),
    *row("vit_block", lnc=2, tokens=577, rope="interleaved", prefix=1, qk_norm="rms", gate=True),
    *row("vit_block", lnc=2, tokens=257, heads=3, head_dim=72, lens=(200,), inner_norm="layer"),
    *row("vit_block", lnc=2, tokens=256, heads=2, segments=(64, 1, 191), norm="rms"),
    *row("vit_encoder", lnc=2, tokens=50, batch=3, heads=2, head_dim=32, hidden=200),
    *row("vit_encoder", lnc=2, tokens=300, layers=3, heads=2, rope="half", hidden=200),
    *row("linear", tokens=700, in_features=130, out_features=1000),
    *row("mlp", tokens=50, hidden=512, out=130, activation="gelu_tanh"),
    *row("mlp", tokens=600, width=130, hidden=200),
    *row("vit_encoder", tokens=50, batch=3, hidden=300),
    *row("vit_encoder", tokens=130, norm="rms", layer_scale=True, hidden=300),
    *row("vit_encoder", tokens=65, batch=2, gate=True, inner_norm="layer", hidden=200),
    *row("vit_encoder", tokens=65, batch=3, qk_norm="layer", rope="half", tables="own", prefix=1),
    *row("vit_block", tokens=50, bias=False),
    *row("vit_block", tokens=50, bias=False, norm="rms", layer_scale=True),
    *row("vit_block", tokens=50, batch=3, layer_scale=True, activation="quick_gelu"),
    *row("vit_block", tokens=197, batch=2, norm="rms", activation="gelu_tanh"),
    *row("vit_block", tokens=17, batch=9, width=200, heads=3, head_dim=104, hidden=300),
    *block_options(),
]

# A row of a long cross product that is in the short grid as well counts once, as short.
CASES = list({case.id: case for case in reversed([*GRID, *HOSTILE, *LAYOUT, *OPTIONS])}.values())
