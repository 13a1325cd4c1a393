"""Whole blocks of transformers' models from the Hub, through transformers' own `KernelConfig`.

transformers 5.22 takes a KernelConfig on accelerators only: its list of device types lacks "cpu".
The clients here add it, and nothing else is changed.
"""

import pytest

from neuron_vit import layouts

pytest.importorskip("transformers")

# One test process, with those that load the same package.
pytestmark = pytest.mark.xdist_group("hub_load")

MODELS = """
import logging, tempfile
import transformers
from transformers import KernelConfig, logging as messages
from transformers.utils import kernel_config
from transformers.models.internvl.modeling_internvl import InternVLVisionModel
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel
from transformers.models.aimv2.modeling_aimv2 import Aimv2VisionModel
from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionModel
from kernels import get_kernel

messages.set_verbosity_error()
messages.disable_progress_bar()
logging.disable(logging.WARNING)
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
kernel_config.KERNELS_SUPPORTED_DEVICE_TYPES.append("cpu")

WIDTHS = dict(hidden_size=32, num_attention_heads=2, intermediate_size=48, num_hidden_layers=2)
IMAGE = dict(image_size=16, patch_size=4)
QWEN = dict(depth=2, num_heads=2, patch_size=2, temporal_patch_size=1)
pixels = torch.randn(2, 3, 16, 16)
GRID = dict(grid_thw=torch.tensor([[1, 4, 6], [1, 8, 4]]))
packed = dict(hidden_states=torch.randn(56, 12), **GRID)
patches = dict(
    pixel_values=torch.randn(2, 16, 48),
    pixel_attention_mask=(torch.arange(16) < torch.tensor([[16], [12]])).long(),
    spatial_shapes=torch.tensor([[4, 4], [3, 4]]),
)

# layer: the model, its config, its input.
MODELS = {
    "ViTLayer": (transformers.ViTModel, dict(WIDTHS, **IMAGE), pixels),
    "DeiTLayer": (transformers.DeiTModel, dict(WIDTHS, **IMAGE), pixels),
    "Dinov2Layer": (
        transformers.Dinov2Model, dict(WIDTHS, **IMAGE, layerscale_value=0.5), pixels
    ),
    "Dinov2WithRegistersLayer": (
        transformers.Dinov2WithRegistersModel,
        dict(WIDTHS, **IMAGE, layerscale_value=0.5, use_swiglu_ffn=True),
        pixels,
    ),
    "DINOv3ViTLayer": (
        transformers.DINOv3ViTModel, dict(WIDTHS, **IMAGE, num_register_tokens=3), pixels
    ),
    "CLIPEncoderLayer": (transformers.CLIPVisionModel, dict(WIDTHS, **IMAGE), pixels),
    "SiglipEncoderLayer": (transformers.SiglipVisionModel, dict(WIDTHS, **IMAGE), pixels),
    "Siglip2EncoderLayer": (
        Siglip2VisionModel, dict(WIDTHS, patch_size=4, num_patches=16), patches
    ),
    "InternVLVisionLayer": (
        InternVLVisionModel,
        dict(WIDTHS, image_size=[16, 16], patch_size=[4, 4], use_qk_norm=True,
             norm_type="rms_norm", layer_scale_init_value=0.5),
        pixels,
    ),
    "Aimv2EncoderLayer": (Aimv2VisionModel, dict(WIDTHS, **IMAGE), pixels),
    "PixtralAttentionLayer": (transformers.PixtralVisionModel, dict(WIDTHS, **IMAGE), pixels),
    "Qwen2VLVisionBlock": (
        Qwen2VisionTransformerPretrainedModel,
        dict(QWEN, embed_dim=32, hidden_size=16, mlp_ratio=2),
        packed,
    ),
    "Qwen2_5_VLVisionBlock": (
        Qwen2_5_VisionTransformerPretrainedModel,
        dict(QWEN, hidden_size=32, intermediate_size=48, out_hidden_size=16, window_size=8,
             fullatt_block_indexes=[1]),
        packed,
    ),
    "Qwen3VLVisionBlock": (
        Qwen3VLVisionModel,
        dict(QWEN, hidden_size=32, intermediate_size=48, out_hidden_size=16,
             num_position_embeddings=64, deepstack_visual_indexes=[0]),
        packed,
    ),
}


def make(name):
    kind, config, _ = MODELS[name]
    torch.manual_seed(0)
    model = kind(kind.config_class(**config))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def run(model, name, **options):
    given = MODELS[name][2]
    given = given if isinstance(given, dict) else dict(pixel_values=given)
    with torch.no_grad():
        return model(**given, **options)


def load(folder, name, key="^{}$"):
    source = ("org/neuron-vit:" + name, {"version": 1, "trust_remote_code": True})
    config = KernelConfig({key.format(name): source})
    kind = MODELS[name][0]
    return kind.from_pretrained(
        folder, kernel_config=config, use_kernels=True, dtype=torch.float64
    )


def layers(model, name):
    return [m for m in model.modules() if type(m).__name__ in (name, name + "Layout")]


def error(found, expected):
    return (found.last_hidden_state - expected.last_hidden_state).abs().max().item()

nv = get_kernel("org/neuron-vit", version=1, trust_remote_code=True)
"""


# Two ways of calling a block, and a name that is found in another class's.
SOME = ["ViTLayer", "Dinov2Layer", "Qwen2_5_VLVisionBlock"]
OTHERS = [
    "DINOv3ViTLayer",
    "InternVLVisionLayer",
    "DeiTLayer",
    "Dinov2WithRegistersLayer",
    "CLIPEncoderLayer",
    "SiglipEncoderLayer",
    "Siglip2EncoderLayer",
    "Aimv2EncoderLayer",
    "PixtralAttentionLayer",
    "Qwen2VLVisionBlock",
    "Qwen3VLVisionBlock",
]


def test_every_block_class_is_tested():
    assert sorted(SOME + OTHERS) == sorted(layouts._MODELS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "names", [SOME, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["some", "others"]
)
def test_models_from_pretrained(client, package, names):
    shown = client(
        MODELS
        + f"FAMILIES = {names}"
        + """
calls = []
layouts = sys.modules[nv.__name__ + ".layouts"]
real_block = layouts.vit_block
layouts.vit_block = lambda *a, **k: calls.append(1) or real_block(*a, **k)
found = {}
for name in FAMILIES:
    plain = make(name)
    folder = tempfile.mkdtemp()
    plain.save_pretrained(folder)
    ours = load(folder, name)
    calls.clear()
    expected, got = (run(model, name, output_hidden_states=True) for model in (plain, ours))
    count = len(calls)
    later = MODELS[name][0].from_pretrained(folder, dtype=torch.float64)
    again = run(later, name, output_hidden_states=True)
    fresh = run(make(name), name, output_hidden_states=True)
    found[name] = dict(
        error=error(got, expected),
        blocks=count,
        own=len(layers(plain, name)),
        layouts=[type(layer).__name__ for layer in layers(ours, name)],
        keys=list(plain.state_dict()) == list(ours.state_dict()),
        # A model that is loaded later gets the layouts, but is not kernelized.
        later=error(again, expected),
        fresh=error(fresh, expected),
        later_calls=len(calls) - count,
        states=[len(out.hidden_states) for out in (expected, got, again, fresh)],
    )
show(**found)
"""
    )
    assert list(shown) == names
    for name, found in shown.items():
        # RMS norms of transformers compute in float32.
        assert found["error"] < 1e-6, (name, found)
        assert found["blocks"] == found["own"] == 2, (name, found)
        assert found["layouts"] == [name + "Layout"] * 2, (name, found)
        assert found["keys"], name
        assert max(found["later"], found["fresh"]) < 1e-10, (name, found)
        assert found["later_calls"] == 0, (name, found)
        assert len(set(found["states"])) == 1 and found["states"][0] > 2, (name, found)


def test_a_key_that_is_found_in_other_names_is_refused(client, package):
    shown = client(
        MODELS
        + """
make("Dinov2Layer").save_pretrained("model")
show(error=failure(load, "model", "Dinov2Layer", key="{}"))
"""
    )
    assert shown["error"] == (
        "NeuronVitUnsupported: neuron-vit: transformers has put Dinov2LayerLayout in the place of "
        "Dinov2LayerScale as well, because it takes the key of a KernelConfig as a regular "
        'expression. Write "^Dinov2Layer$" for the key.'
    )
