"""The shapes of the Vision Transformer families: one table for the benchmark and the tests.

Every entry is a pre-norm encoder: norm, one QKV projection, softmax attention without a mask,
projection, norm, MLP, optional LayerScale on both branches. Where a family has more than the
benchmark runs as kernels, `VitShape.beyond_the_kernel` says what. A shape describes the published
model; what a *loaded* model computes (eps, activation, biases) is read from its modules by
`BlockParams`, never from here.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class VitShape:
    """One encoder. Widths count elements, `patch` and `resolution` pixels (square images).

    `prefix_tokens` counts the tokens in front of the patches (class, distillation, registers).
    `activation` is the name the kernels take: "gelu" (exact), "gelu_tanh" or "quick_gelu"; "silu"
    in gated MLPs. `source` says where the row was read.

    `norm` is "layer" or "rms". `qkv_bias` is "qkv", "qv" or "none"; `bias` is that of the other
    projections. A `gated` MLP multiplies two halves of its first layer (SwiGLU), with a norm after
    that if it has an `mlp_norm`. `rope_theta` is the base of the rotary embedding of the patches,
    0 without one. `qk_norm`: an RMSNorm over all heads of queries and of keys.
    """

    name: str
    hidden: int
    heads: int
    head_dim: int
    mlp: int
    depth: int
    patch: int
    prefix_tokens: int
    resolution: int
    activation: str
    eps: float
    layer_scale: bool
    source: str
    norm: str = "layer"
    qkv_bias: str = "qkv"
    bias: bool = True
    gated: bool = False
    mlp_norm: bool = False
    rope_theta: float = 0.0
    qk_norm: bool = False

    @property
    def beyond_eager_launches(self) -> str:
        """What the block has that is no launch of its own in the eager baseline, or ""."""
        return "rotary embeddings" if self.rope_theta else ""

    @property
    def matrix_elements(self) -> int:
        """Elements of the weight matrices of one block."""
        return (4 * self.hidden + (2 + self.gated) * self.mlp) * self.hidden

    def tokens(self, resolution: int | None = None) -> int:
        """Tokens in one image: the whole patches that fit, as a convolution of stride `patch` makes
        them, plus the prefix. Raises ValueError when not even one patch fits."""
        resolution = self.resolution if resolution is None else resolution
        if resolution < self.patch:
            raise ValueError(
                f"resolution={resolution} is smaller than one patch of {self.name} "
                f"({self.patch} pixels); use at least {self.patch}"
            )
        return (resolution // self.patch) ** 2 + self.prefix_tokens


class UnknownModel(ValueError):
    """A model name that is not in the table; the message names the nearest ones."""


def find(name: str) -> VitShape:
    """The shape called `name`; UnknownModel, with near names, when there is none."""
    if name in MODELS:
        return MODELS[name]
    near = difflib.get_close_matches(name.lower(), MODELS, n=3, cutoff=0.5)
    advice = f"did you mean {' or '.join(near)}?" if near else "no name comes close."
    raise UnknownModel(f"unknown model {name!r}: {advice} --list shows all {len(MODELS)} names")


def _vit(name, hidden, heads, mlp, depth, patch, source, **changes):
    """A row of the ViT kind: class token, 224 pixels, exact GELU, eps 1e-12, no LayerScale."""
    values = dict(prefix_tokens=1, resolution=224, activation="gelu", eps=1e-12, layer_scale=False)
    values.update(changes)
    return VitShape(
        name=name,
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        mlp=mlp,
        depth=depth,
        patch=patch,
        source=source,
        **values,
    )


_DEIT = dict(prefix_tokens=2)
_CLIP = dict(eps=1e-5, activation="quick_gelu")
_OPEN_CLIP = dict(eps=1e-5)
_SIGLIP = dict(eps=1e-6, activation="gelu_tanh", prefix_tokens=0)
_SIGLIP_256 = dict(_SIGLIP, resolution=256)
_SIGLIP_384 = dict(_SIGLIP, resolution=384)
_DINOV2 = dict(eps=1e-6, layer_scale=True)
_DINOV2_REGISTERS = dict(_DINOV2, prefix_tokens=5)
_INTERNVIT = dict(eps=1e-6, layer_scale=True, resolution=448)
_SWIGLU = dict(gated=True, activation="silu")
# A class token and four registers in front of the patches, which alone are rotated.
_DINOV3 = dict(eps=1e-5, layer_scale=True, prefix_tokens=5, rope_theta=100.0, qkv_bias="qv")
_DINOV3_GATED = dict(_DINOV3, **_SWIGLU)
_EVA02 = dict(_SWIGLU, eps=1e-6, rope_theta=10000.0)
_EVA02_INNER = dict(_EVA02, mlp_norm=True, qkv_bias="qv")
_BARE = dict(norm="rms", qkv_bias="none", bias=False, prefix_tokens=0, eps=1e-5)
_AIMV2 = dict(_SWIGLU, **_BARE)
_PIXTRAL = dict(_BARE, gated=True, rope_theta=10000.0, resolution=1024)
_QWEN = dict(eps=1e-6, prefix_tokens=0, rope_theta=10000.0, resolution=448)
_PE = dict(eps=1e-5, rope_theta=10000.0)

# Columns: name, hidden, heads, mlp, depth, patch, source. Where the source is a class, it is one of
# transformers; "widths" are those the paper gives to the size.
_SHAPES = (
    # timm builds the same models with eps 1e-6, which the kernels take as an argument.
    _vit("vit-ti16", 192, 3, 768, 12, 16, "ViTConfig with the tiny widths of DeiT"),
    _vit("vit-s16", 384, 6, 1536, 12, 16, "ViTConfig with the small widths of DeiT"),
    _vit("vit-b32", 768, 12, 3072, 12, 32, "ViTConfig defaults with patch_size 32"),
    _vit("vit-b16", 768, 12, 3072, 12, 16, "ViTConfig defaults"),
    _vit("vit-l16", 1024, 16, 4096, 24, 16, "ViTConfig of google/vit-large-patch16-224"),
    _vit("vit-h14", 1280, 16, 5120, 32, 14, "ViTConfig of google/vit-huge-patch14-224-in21k"),
    _vit("vit-g14", 1408, 16, 6144, 40, 14, "timm vit_giant_patch14_224", eps=1e-6),
    # The class and the distillation token, which DeiTModel always has.
    _vit("deit-ti16", 192, 3, 768, 12, 16, "DeiTConfig with the tiny widths", **_DEIT),
    _vit("deit-s16", 384, 6, 1536, 12, 16, "DeiTConfig with the small widths", **_DEIT),
    _vit("deit-b16", 768, 12, 3072, 12, 16, "DeiTConfig defaults", **_DEIT),
    # OpenAI's models use quick GELU, the ones trained by LAION the exact one.
    _vit("clip-b32", 768, 12, 3072, 12, 32, "CLIPVisionConfig defaults", **_CLIP),
    _vit("clip-b16", 768, 12, 3072, 12, 16, "CLIPVisionConfig with patch_size 16", **_CLIP),
    _vit("clip-l14", 1024, 16, 4096, 24, 14, "openai/clip-vit-large-patch14", **_CLIP),
    _vit("clip-h14", 1280, 16, 5120, 32, 14, "laion/CLIP-ViT-H-14", **_OPEN_CLIP),
    _vit("clip-bigg14", 1664, 16, 8192, 48, 14, "laion/CLIP-ViT-bigG-14", **_OPEN_CLIP),
    # timm's shape-optimised models.
    _vit(
        "so150m-16", 896, 14, 2304, 18, 16, "timm vit_so150m_patch16_reg4_gap_256", eps=1e-6,
        prefix_tokens=4, resolution=256,
    ),
    _vit(
        "so150m2-16", 832, 13, 2176, 21, 16, "timm vit_so150m2_patch16_reg1_gap_256", eps=1e-6,
        prefix_tokens=1, resolution=256, layer_scale=True,
    ),
    # No class token. SigLIP 2 keeps the shapes, also for images of other proportions (NaFlex).
    # 384 pixels hold 27 whole patches of 14.
    _vit("siglip-b16", 768, 12, 3072, 12, 16, "SiglipVisionConfig defaults", **_SIGLIP),
    _vit("siglip-l16", 1024, 16, 4096, 24, 16, "google/siglip-large-patch16-256", **_SIGLIP_256),
    _vit(
        "siglip-so400m14", 1152, 16, 4304, 27, 14, "google/siglip-so400m-patch14-384",
        **_SIGLIP_384,
    ),
    _vit(
        "siglip-so400m16", 1152, 16, 4304, 27, 16, "google/siglip2-so400m-patch16-256",
        **_SIGLIP_256,
    ),
    _vit(
        "siglip-g16", 1536, 16, 6144, 40, 16, "google/siglip2-giant-opt-patch16-256",
        **_SIGLIP_256,
    ),
    # Trained up to 518 pixels; 224 is what the configuration says.
    _vit("dinov2-s14", 384, 6, 1536, 12, 14, "Dinov2Config with the small widths", **_DINOV2),
    _vit("dinov2-b14", 768, 12, 3072, 12, 14, "Dinov2Config defaults", **_DINOV2),
    _vit("dinov2-l14", 1024, 16, 4096, 24, 14, "Dinov2Config with the large widths", **_DINOV2),
    # The class token and four registers.
    _vit(
        "dinov2-reg-b14", 768, 12, 3072, 12, 14, "Dinov2WithRegistersConfig with patch_size 14",
        **_DINOV2_REGISTERS,
    ),
    _vit(
        "dinov2-reg-l14", 1024, 16, 4096, 24, 14, "Dinov2WithRegistersConfig, large widths",
        **_DINOV2_REGISTERS,
    ),
    _vit("internvit-300m", 1024, 16, 4096, 24, 14, "OpenGVLab/InternViT-300M-448px", **_INTERNVIT),
    # Blocks of which `vit_block` computes a part.
    _vit("dinov2-g14", 1536, 24, 4096, 40, 14, "facebook/dinov2-giant", **_DINOV2, **_SWIGLU),
    _vit("dinov3-s16", 384, 6, 1536, 12, 16, "DINOv3ViTConfig defaults", **_DINOV3),
    _vit("dinov3-splus16", 384, 6, 1536, 12, 16, "facebook/dinov3-vits16plus", **_DINOV3_GATED),
    _vit("dinov3-b16", 768, 12, 3072, 12, 16, "facebook/dinov3-vitb16", **_DINOV3),
    _vit("dinov3-l16", 1024, 16, 4096, 24, 16, "facebook/dinov3-vitl16", **_DINOV3),
    _vit("dinov3-hplus16", 1280, 20, 5120, 32, 16, "facebook/dinov3-vith16plus", **_DINOV3_GATED),
    _vit("dinov3-7b16", 4096, 32, 8192, 40, 16, "facebook/dinov3-vit7b16", **_DINOV3_GATED),
    _vit("eva02-ti14", 192, 3, 512, 12, 14, "timm eva02_tiny_patch14_224", **_EVA02),
    _vit("eva02-s14", 384, 6, 1024, 12, 14, "timm eva02_small_patch14_224", **_EVA02),
    _vit("eva02-b14", 768, 12, 2048, 12, 14, "timm eva02_base_patch14_224", **_EVA02_INNER),
    _vit("eva02-l14", 1024, 16, 2730, 24, 14, "timm eva02_large_patch14_224", **_EVA02_INNER),
    _vit("aimv2-l14", 1024, 8, 2816, 24, 14, "Aimv2VisionConfig defaults", **_AIMV2),
    _vit("aimv2-h14", 1536, 12, 4096, 24, 14, "apple/aimv2-huge-patch14-224", **_AIMV2),
    _vit("aimv2-1b14", 2048, 16, 5632, 24, 14, "apple/aimv2-1B-patch14-224", **_AIMV2),
    _vit("aimv2-3b14", 3072, 24, 8192, 24, 14, "apple/aimv2-3B-patch14-224", **_AIMV2),
    # Its gate is a GELU.
    _vit("pixtral-400m16", 1024, 16, 4096, 24, 16, "PixtralVisionConfig defaults", **_PIXTRAL),
    _vit(
        "qwen2vl-14", 1280, 16, 5120, 32, 14, "Qwen2VLVisionConfig defaults",
        activation="quick_gelu", **_QWEN,
    ),
    # Its full attention; 28 of the 32 blocks attend within windows of 64 tokens.
    _vit(
        "qwen25vl-14", 1280, 16, 3420, 32, 14, "Qwen2.5-VL, vision_config of the 7B model",
        norm="rms", **_SWIGLU, **_QWEN,
    ),
    _vit(
        "qwen3vl-16", 1152, 16, 4304, 27, 16, "Qwen3VLVisionConfig defaults",
        activation="gelu_tanh", **_QWEN,
    ),
    _vit("pe-core-b16", 768, 12, 3072, 12, 16, "timm vit_pe_core_base_patch16_224", **_PE),
    _vit(
        "pe-core-l14", 1024, 16, 4096, 24, 14, "timm vit_pe_core_large_patch14_336",
        resolution=336, **_PE,
    ),
    # 3200 and 25 heads of 128, as published.
    _vit(
        "internvit-6b14", 3200, 25, 12800, 45, 14, "OpenGVLab/InternViT-6B-448px-V2_5",
        norm="rms", qkv_bias="none", qk_norm=True, **_INTERNVIT,
    ),
)  # fmt: skip

MODELS: dict[str, VitShape] = {shape.name: shape for shape in _SHAPES}
