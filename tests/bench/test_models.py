"""The shape table against the published configurations."""

import pytest
import transformers

from bench.models import MODELS, UnknownModel, find

# Tokens of one image, counted from the papers' patch grids and prefix tokens.
TOKENS = [
    ("vit-b32", 224, 50),
    ("vit-ti16", 224, 197),
    ("vit-b16", 384, 577),
    ("vit-h14", 224, 257),
    ("deit-b16", 224, 198),
    ("clip-l14", 336, 577),
    ("siglip-b16", 224, 196),
    ("siglip-b16", 512, 1024),
    ("siglip-so400m14", 224, 256),
    ("siglip-so400m14", 384, 729),
    ("dinov2-b14", 518, 1370),
    ("dinov2-reg-b14", 224, 261),
    ("dinov2-reg-b14", 518, 1374),
    ("internvit-300m", 448, 1025),
    ("dinov3-b16", 224, 201),
    ("dinov3-b16", 512, 1029),
    ("eva02-b14", 224, 257),
    ("aimv2-l14", 224, 256),
    ("so150m2-16", 256, 257),
]

# hidden, heads, head size, MLP width, depth.
WIDTHS = {
    "vit-ti16": (192, 3, 64, 768, 12),
    "vit-s16": (384, 6, 64, 1536, 12),
    "vit-b16": (768, 12, 64, 3072, 12),
    "vit-l16": (1024, 16, 64, 4096, 24),
    "vit-h14": (1280, 16, 80, 5120, 32),
    "vit-g14": (1408, 16, 88, 6144, 40),
    "clip-bigg14": (1664, 16, 104, 8192, 48),
    "siglip-so400m14": (1152, 16, 72, 4304, 27),
    "siglip-g16": (1536, 16, 96, 6144, 40),
    "dinov2-l14": (1024, 16, 64, 4096, 24),
    "dinov3-hplus16": (1280, 20, 64, 5120, 32),
    "eva02-l14": (1024, 16, 64, 2730, 24),
    "aimv2-3b14": (3072, 24, 128, 8192, 24),
    "qwen25vl-14": (1280, 16, 80, 3420, 32),
    "internvit-6b14": (3200, 25, 128, 12800, 45),
}

# What the survey of families calls tiers 1 and 2, by how the names begin.
FAMILIES = (
    "vit-", "deit-", "clip-", "siglip-", "dinov2-", "internvit-", "dinov3-", "eva02-", "aimv2-",
    "pixtral-", "qwen2vl-", "qwen25vl-", "qwen3vl-", "pe-core-", "so150m",
)  # fmt: skip
BEYOND = {
    "vit-b16": "",
    "dinov2-g14": "",
    "dinov3-b16": "rotary embeddings",
    "dinov3-7b16": "rotary embeddings",
    "eva02-b14": "rotary embeddings",
    "aimv2-h14": "",
    "internvit-6b14": "",
}

DEFAULTS = {
    "dinov3-s16": transformers.DINOv3ViTConfig,
    "aimv2-l14": transformers.Aimv2VisionConfig,
    "pixtral-400m16": transformers.PixtralVisionConfig,
    "vit-b16": transformers.ViTConfig,
    "deit-b16": transformers.DeiTConfig,
    "clip-b32": transformers.CLIPVisionConfig,
    "siglip-b16": transformers.SiglipVisionConfig,
    "dinov2-b14": transformers.Dinov2Config,
}
RENAMED = {"gelu_pytorch_tanh": "gelu_tanh"}


@pytest.mark.parametrize("name, resolution, tokens", TOKENS)
def test_tokens(name, resolution, tokens):
    assert MODELS[name].tokens(resolution) == tokens


@pytest.mark.parametrize("name", WIDTHS)
def test_widths(name):
    shape = MODELS[name]
    widths = (shape.hidden, shape.heads, shape.head_dim, shape.mlp, shape.depth)
    assert widths == WIDTHS[name]


@pytest.mark.parametrize("name", DEFAULTS)
def test_row_is_the_default_configuration(name):
    shape, config = MODELS[name], DEFAULTS[name]()
    mlp = getattr(config, "intermediate_size", None) or config.hidden_size * config.mlp_ratio
    assert (shape.hidden, shape.heads, shape.mlp) == (
        config.hidden_size,
        config.num_attention_heads,
        mlp,
    )
    assert shape.depth == config.num_hidden_layers
    eps = ("layer_norm_eps", "rms_norm_eps")
    assert shape.eps == next((getattr(config, one) for one in eps if hasattr(config, one)), 1e-5)
    assert shape.rope_theta == getattr(
        config, "rope_theta", (getattr(config, "rope_parameters", None) or {}).get("rope_theta", 0)
    )
    assert (shape.patch, shape.resolution) == (config.patch_size, config.image_size)
    assert shape.activation == RENAMED.get(config.hidden_act, config.hidden_act)
    assert shape.layer_scale == hasattr(config, "layerscale_value")


@pytest.mark.parametrize("shape", MODELS.values(), ids=MODELS)
def test_row_is_consistent(shape):
    assert MODELS[shape.name] is shape
    assert shape.heads * shape.head_dim == shape.hidden
    assert shape.name.endswith(str(shape.patch)) or shape.name == "internvit-300m"
    assert shape.tokens() == shape.tokens(shape.resolution)
    assert shape.source


def test_every_family_is_there():
    assert all(any(name.startswith(family) for name in MODELS) for family in FAMILIES)
    assert all(name.startswith(FAMILIES) for name in MODELS)


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_eager_launches(name):
    assert MODELS[name].beyond_eager_launches == BEYOND[name]


def test_unknown_name_suggests_near_ones():
    with pytest.raises(UnknownModel, match=r"'vit-b61': did you mean vit-b16 or .*--list"):
        find("vit-b61")


def test_unknown_name_with_nothing_near():
    with pytest.raises(UnknownModel, match="no name comes close"):
        find("resnet50")


def test_resolution_below_one_patch():
    with pytest.raises(ValueError, match="resolution=15 is smaller than one patch of vit-b16"):
        MODELS["vit-b16"].tokens(15)
