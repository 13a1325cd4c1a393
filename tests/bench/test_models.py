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
}

DEFAULTS = {
    "vit-b16": transformers.ViTConfig,
    "deit-b16": transformers.DeiTConfig,
    "clip-b32": transformers.CLIPVisionConfig,
    "siglip-b16": transformers.SiglipVisionConfig,
    "dinov2-b14": transformers.Dinov2Config,
}
ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu"}


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
    assert shape.eps == config.layer_norm_eps
    assert (shape.patch, shape.resolution) == (config.patch_size, config.image_size)
    assert shape.activation == ACTIVATIONS[config.hidden_act]
    assert shape.layer_scale == hasattr(config, "layerscale_value")


@pytest.mark.parametrize("shape", MODELS.values(), ids=MODELS)
def test_row_is_consistent(shape):
    assert MODELS[shape.name] is shape
    assert shape.heads * shape.head_dim == shape.hidden
    assert shape.name.endswith(str(shape.patch)) or shape.name == "internvit-300m"
    assert shape.tokens() == shape.tokens(shape.resolution)
    assert shape.source


def test_unknown_name_suggests_near_ones():
    with pytest.raises(UnknownModel, match=r"'vit-b61': did you mean vit-b16 or .*--list"):
        find("vit-b61")


def test_unknown_name_with_nothing_near():
    with pytest.raises(UnknownModel, match="no name comes close"):
        find("resnet50")


def test_resolution_below_one_patch():
    with pytest.raises(ValueError, match="resolution=15 is smaller than one patch of vit-b16"):
        MODELS["vit-b16"].tokens(15)
