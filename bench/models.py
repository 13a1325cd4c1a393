"""The shapes of the Vision Transformer families: one table for the benchmark and the tests.

Every entry is a plain pre-norm encoder: LayerNorm with bias, one QKV projection with biases,
softmax attention without a mask, projection, a two-layer MLP, optional LayerScale on both branches.
That is what one `vit_block` kernel computes. A shape describes the published model; what a *loaded*
model computes (eps, activation, biases) is read from its modules by `BlockParams`, never from here.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class VitShape:
    """One encoder. Widths count elements, `patch` and `resolution` pixels (square images).

    `prefix_tokens` counts the tokens in front of the patches (class, distillation, registers).
    `activation` is the name the kernels take: "gelu" (exact), "gelu_tanh" or "quick_gelu".
    `source` says where the row was read.
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
    # No class token; SigLIP 2 keeps the shapes. 384 pixels hold 27 whole patches of 14.
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
)  # fmt: skip

MODELS: dict[str, VitShape] = {shape.name: shape for shape in _SHAPES}
