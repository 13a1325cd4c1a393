"""A small model of every family, built from its config, and an input for it."""

from dataclasses import dataclass
from typing import Any, Callable, Dict

import torch
import transformers
from torch import nn
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen2_5
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3

from .timm_blocks import timm

WIDTH, HEADS, HIDDEN, LAYERS = 64, 2, 96, 2
IMAGE, PATCH = 32, 8


@dataclass(frozen=True)
class Model:
    """make() is the model. inputs(dtype) are the keyword arguments of a call. blocks: how many
    transformer blocks it has; records: whether it returns hidden states when asked to."""

    make: Callable[[], nn.Module]
    inputs: Callable[[torch.dtype], Dict[str, Any]]
    blocks: int = LAYERS
    records: bool = True


def _pixels(dtype):
    return {"pixel_values": _random(2, 3, IMAGE, IMAGE).to(dtype)}


def _random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _of(model: type, config: type, **extra: Any) -> Callable[[], nn.Module]:
    sizes = {
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "image_size": IMAGE,
        "patch_size": PATCH,
    }
    return lambda: model(config(**{**sizes, **extra}))


def _swin(window: int) -> Callable[[], nn.Module]:
    sizes = {"embed_dim": 32, "depths": [2, 2], "num_heads": [1, 2], "mlp_ratio": 2.0}
    return lambda: transformers.SwinModel(
        transformers.SwinConfig(image_size=IMAGE, patch_size=4, window_size=window, **sizes)
    )


def _padded_images(dtype):
    """SigLIP 2: patches of two images, the second one shorter."""
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 12:] = 0
    return {
        "pixel_values": _random(2, 16, 3 * PATCH * PATCH).to(dtype),
        "pixel_attention_mask": mask,
        "spatial_shapes": torch.tensor([[4, 4], [3, 4]]),
    }


def _two_sizes(dtype):
    """Pixtral: two images in one sequence, the second one smaller."""
    return {**_pixels(dtype), "image_sizes": torch.tensor([[IMAGE, IMAGE], [IMAGE // 2, IMAGE]])}


def _patches(size):
    """Qwen: the patches of two images in a row."""

    def inputs(dtype):
        grid = torch.tensor([[1, 4, 4], [1, 4, 6]])
        return {"hidden_states": _random(40, 3 * 2 * size * size).to(dtype), "grid_thw": grid}

    return inputs


def _timm(factory: Callable[..., nn.Module], **extra: Any) -> Model:
    sizes = {
        "img_size": IMAGE,
        "patch_size": PATCH,
        "embed_dim": WIDTH,
        "depth": LAYERS,
        "num_heads": HEADS,
        "num_classes": 10,
    }
    return Model(
        lambda: factory(**{**sizes, **extra}),
        lambda dtype: {"x": _random(2, 3, IMAGE, IMAGE).to(dtype)},
        records=False,
    )


def _qwen(model: type, config: type, **sizes: Any) -> Callable[[], nn.Module]:
    return lambda: model(config(patch_size=PATCH, spatial_merge_size=2, **sizes))


MODELS = {
    "vit": Model(_of(transformers.ViTModel, transformers.ViTConfig), _pixels),
    "deit": Model(_of(transformers.DeiTModel, transformers.DeiTConfig), _pixels),
    "dinov2": Model(
        _of(transformers.Dinov2Model, transformers.Dinov2Config, mlp_ratio=2), _pixels
    ),
    "dinov2-swiglu": Model(
        _of(transformers.Dinov2Model, transformers.Dinov2Config, mlp_ratio=2, use_swiglu_ffn=True),
        _pixels,
    ),
    "dinov2-registers": Model(
        _of(
            transformers.Dinov2WithRegistersModel,
            transformers.Dinov2WithRegistersConfig,
            mlp_ratio=2,
        ),
        _pixels,
    ),
    "dinov3": Model(
        _of(transformers.DINOv3ViTModel, transformers.DINOv3ViTConfig, num_register_tokens=4),
        _pixels,
    ),
    "clip": Model(_of(transformers.CLIPVisionModel, transformers.CLIPVisionConfig), _pixels),
    "siglip": Model(_of(transformers.SiglipVisionModel, transformers.SiglipVisionConfig), _pixels),
    "siglip2": Model(
        _of(transformers.Siglip2VisionModel, transformers.Siglip2VisionConfig, num_patches=16),
        _padded_images,
    ),
    "internvl": Model(
        _of(
            transformers.InternVLVisionModel,
            transformers.InternVLVisionConfig,
            image_size=[IMAGE, IMAGE],
            patch_size=[PATCH, PATCH],
            use_qk_norm=True,
            norm_type="rms_norm",
        ),
        _pixels,
    ),
    "aimv2": Model(_of(transformers.Aimv2VisionModel, transformers.Aimv2VisionConfig), _pixels),
    "pixtral": Model(
        _of(transformers.PixtralVisionModel, transformers.PixtralVisionConfig), _two_sizes
    ),
    "qwen2-vl": Model(
        _qwen(
            qwen2.Qwen2VisionTransformerPretrainedModel,
            qwen2.Qwen2VLVisionConfig,
            embed_dim=WIDTH,
            hidden_size=48,
            num_heads=HEADS,
            depth=LAYERS,
            mlp_ratio=2,
        ),
        _patches(PATCH),
    ),
    "qwen2.5-vl": Model(
        _qwen(
            qwen2_5.Qwen2_5_VisionTransformerPretrainedModel,
            qwen2_5.Qwen2_5_VLVisionConfig,
            hidden_size=WIDTH,
            out_hidden_size=48,
            num_heads=HEADS,
            intermediate_size=HIDDEN,
            depth=LAYERS,
            window_size=4 * PATCH,
            fullatt_block_indexes=[1],
        ),
        _patches(PATCH),
    ),
    "qwen3-vl": Model(
        _qwen(
            qwen3.Qwen3VLVisionModel,
            qwen3.Qwen3VLVisionConfig,
            hidden_size=WIDTH,
            out_hidden_size=48,
            num_heads=HEADS,
            intermediate_size=HIDDEN,
            depth=LAYERS,
            num_position_embeddings=64,
            deepstack_visual_indexes=[0],
        ),
        _patches(PATCH),
    ),
    "beit": Model(
        _of(transformers.BeitModel, transformers.BeitConfig, use_relative_position_bias=True),
        _pixels,
    ),
    "beit-shared": Model(
        _of(
            transformers.BeitModel,
            transformers.BeitConfig,
            use_shared_relative_position_bias=True,
            layer_scale_init_value=0.0,
        ),
        _pixels,
    ),
    # 8 x 8 patches in windows of 4, the second layer of the first stage shifted.
    "swin": Model(_swin(4), _pixels, blocks=4),
    # Windows of 3 do not tile 8 x 8 patches.
    "swin-padded": Model(_swin(3), _pixels, blocks=4),
    "timm-vit": _timm(timm.models.vision_transformer.VisionTransformer, init_values=0.1),
    "timm-vit-qk-norm": _timm(
        timm.models.vision_transformer.VisionTransformer, qk_norm=True, pre_norm=True
    ),
    "timm-eva": _timm(
        timm.models.eva.Eva,
        use_rot_pos_emb=True,
        swiglu_mlp=True,
        scale_mlp=True,
        qkv_fused=False,
    ),
    "timm-eva-plain": _timm(timm.models.eva.Eva, init_values=0.1),
    "timm-beit": _timm(timm.models.beit.Beit, use_rel_pos_bias=True, init_values=0.1),
    "timm-beit-shared": _timm(timm.models.beit.Beit, use_shared_rel_pos_bias=True),
}


def build(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model with weights as training leaves them, in evaluation mode."""
    torch.manual_seed(0)
    model = MODELS[name].make()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 2 and "table" not in key and "embed" not in key:
                draw = 1.3 * draw * parameter.shape[1] ** -0.5
            elif parameter.dim() == 1 and not key.endswith("bias"):
                scales = any(part in key for part in ("lambda", "gamma", "ls1", "ls2"))
                draw = 0.3 + 0.1 * draw if scales else 1.0 + 0.2 * draw
            else:
                draw = 0.2 * draw
            parameter.copy_(draw)
    return model.to(dtype).eval()


def run(name: str, model: nn.Module, dtype: torch.dtype, **arguments: Any) -> Any:
    """What the model returns, without gradients, for inputs of `dtype`, in its own dtype."""
    inputs = MODELS[name].inputs(dtype)
    working = next(model.parameters()).dtype
    for key, value in inputs.items():
        if value.is_floating_point():
            inputs[key] = value.to(working)
    with torch.no_grad():
        return model(**inputs, **arguments)


def tensors(name: str, model: nn.Module, dtype: torch.dtype) -> Dict[str, torch.Tensor]:
    """The outputs by name: the last hidden state and all others where they are recorded, or the
    one output of a model of timm."""
    if not MODELS[name].records:
        return {"output": run(name, model, dtype)}
    output = run(name, model, dtype, output_hidden_states=True)
    hidden = {f"hidden_states.{i}": state for i, state in enumerate(output.hidden_states)}
    return {"last_hidden_state": output.last_hidden_state, **hidden}
