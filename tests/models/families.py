"""One block of every family, from transformers or timm, with seeded weights.

A family knows how to make its layer at any size, how its library calls it, and its real sizes: the
widths of released models and the sequence lengths of their images.
"""

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional, Tuple

import torch
import transformers
from torch import nn
from transformers.models.aimv2 import modeling_aimv2 as aimv2
from transformers.models.clip import modeling_clip as clip
from transformers.models.deit import modeling_deit as deit
from transformers.models.dinov2 import modeling_dinov2 as dinov2
from transformers.models.dinov2_with_registers import modeling_dinov2_with_registers as registers
from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3
from transformers.models.internvl import modeling_internvl as internvl
from transformers.models.pixtral import modeling_pixtral as pixtral
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen2_5
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3
from transformers.models.siglip import modeling_siglip as siglip
from transformers.models.siglip2 import modeling_siglip2 as siglip2
from transformers.models.vit import modeling_vit as vit

from .timm_blocks import timm

Tables = Tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Size:
    """Sizes of a block, and of one call of it."""

    width: int
    heads: int
    hidden: int
    tokens: int
    batch: int = 1


@dataclass(frozen=True)
class Family:
    """make(size) is the layer. call(layer, x, tables) runs it as its library does. rope: None, or
    how it rotates; prefix: tokens that are not rotated. small: sizes with the family's traits that
    run in a moment; real: those of released models."""

    make: Callable[[Size], nn.Module]
    call: Callable[[nn.Module, torch.Tensor, Optional[Tables]], torch.Tensor]
    small: Size
    real: Dict[str, Size] = field(default_factory=dict)
    rope: Optional[str] = None
    prefix: int = 0


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def _plain(layer, x, tables):
    return _first(layer(x, attention_mask=None))


def _alone(layer, x, tables):
    return layer(x)


def _rotated(layer, x, tables):
    return layer(x, attention_mask=None, position_embeddings=tables)


def _packed(layer, x, tables):
    """One sequence: these layers take the tokens of all images in a row."""
    return layer(
        x[0], cu_seqlens=torch.tensor([0, x.shape[1]]), position_embeddings=tables
    )[None]


def _timm_rotated(layer, x, tables):
    return layer(x, rope=torch.cat([tables[1], tables[0]], dim=-1))


def _of(layer: type, config: type, names: Tuple[str, str, str], **fixed: Any):
    """What makes `layer` from a config whose width, heads and hidden width have these names."""

    def make(size: Size) -> nn.Module:
        sizes = dict(zip(names, (size.width, size.heads, size.hidden)))
        made = config(**sizes, **fixed)
        made._attn_implementation = "sdpa"
        return layer(made)

    return make


_NAMES = ("hidden_size", "num_attention_heads", "intermediate_size")


def _by_ratio(layer: type, config: type, width: str, heads: str, **fixed: Any):
    """As `_of` where the config has the ratio of hidden width and width, a whole number."""

    def make(size: Size) -> nn.Module:
        sizes = {width: size.width, heads: size.heads, "mlp_ratio": size.hidden // size.width}
        made = config(**sizes, **fixed)
        made._attn_implementation = "sdpa"
        return layer(made)

    return make


def _timm_block(**fixed: Any):
    def make(size: Size) -> nn.Module:
        return timm.models.vision_transformer.Block(
            size.width, size.heads, mlp_ratio=size.hidden / size.width, qkv_bias=True, **fixed
        )

    return make


def _eva_block(**fixed: Any):
    def make(size: Size) -> nn.Module:
        return timm.models.eva.EvaBlock(
            size.width, size.heads, mlp_ratio=size.hidden / size.width, **fixed
        )

    return make


FAMILIES = {
    "vit": Family(
        _of(vit.ViTLayer, transformers.ViTConfig, _NAMES),
        _plain,
        Size(192, 3, 768, 50),
        {"b16-224": Size(768, 12, 3072, 197), "l16-384": Size(1024, 16, 4096, 577)},
    ),
    "deit": Family(
        _of(deit.DeiTLayer, transformers.DeiTConfig, _NAMES),
        _plain,
        Size(192, 3, 768, 50),
        {"s16-224": Size(384, 6, 1536, 198)},
    ),
    "dinov2": Family(
        _by_ratio(
            dinov2.Dinov2Layer, transformers.Dinov2Config, "hidden_size", "num_attention_heads"
        ),
        _plain,
        Size(128, 2, 512, 65),
        {"s14-224": Size(384, 6, 1536, 257), "b14-518": Size(768, 12, 3072, 1370)},
    ),
    "dinov2-registers": Family(
        _by_ratio(
            registers.Dinov2WithRegistersLayer,
            transformers.Dinov2WithRegistersConfig,
            "hidden_size",
            "num_attention_heads",
        ),
        _plain,
        Size(128, 2, 512, 69),
        {"l14-224": Size(1024, 16, 4096, 261)},
    ),
    "dinov2-swiglu": Family(
        # The ratio is that of an MLP without a gate: of its width, two thirds are kept.
        _by_ratio(
            dinov2.Dinov2Layer,
            transformers.Dinov2Config,
            "hidden_size",
            "num_attention_heads",
            use_swiglu_ffn=True,
        ),
        _plain,
        Size(192, 3, 768, 65),
        {"g14-224": Size(1536, 24, 6144, 257)},
    ),
    "dinov3": Family(
        _of(dinov3.DINOv3ViTLayer, transformers.DINOv3ViTConfig, _NAMES),
        _rotated,
        Size(192, 3, 512, 54),
        {"b16-224": Size(768, 12, 3072, 201), "l16-512": Size(1024, 16, 4096, 1029)},
        rope="half",
        prefix=5,
    ),
    "dinov3-gated": Family(
        _of(
            dinov3.DINOv3ViTLayer,
            transformers.DINOv3ViTConfig,
            _NAMES,
            use_gated_mlp=True,
            hidden_act="silu",
        ),
        _rotated,
        Size(192, 3, 320, 54),
        {"s16plus-224": Size(384, 6, 1536, 201), "h16plus-224": Size(1280, 20, 5120, 201)},
        rope="half",
        prefix=5,
    ),
    "clip": Family(
        _of(clip.CLIPEncoderLayer, transformers.CLIPVisionConfig, _NAMES),
        _plain,
        Size(192, 3, 768, 50),
        {"b32-224": Size(768, 12, 3072, 50), "l14-336": Size(1024, 16, 4096, 577)},
    ),
    "siglip": Family(
        _of(siglip.SiglipEncoderLayer, transformers.SiglipVisionConfig, _NAMES),
        _plain,
        Size(144, 2, 538, 49),
        {"so400m14-384": Size(1152, 16, 4304, 729)},
    ),
    "siglip2": Family(
        _of(siglip2.Siglip2EncoderLayer, transformers.Siglip2VisionConfig, _NAMES),
        _plain,
        Size(192, 2, 768, 64),
        {"g16-256": Size(1536, 16, 6144, 256)},
    ),
    "internvit": Family(
        _of(
            internvl.InternVLVisionLayer,
            transformers.InternVLVisionConfig,
            _NAMES,
            attention_bias=True,
        ),
        _alone,
        Size(128, 2, 512, 50),
        {"300m-448": Size(1024, 16, 4096, 1025)},
    ),
    "internvit-6b": Family(
        _of(
            internvl.InternVLVisionLayer,
            transformers.InternVLVisionConfig,
            _NAMES,
            norm_type="rms_norm",
            use_qk_norm=True,
        ),
        _alone,
        Size(384, 3, 512, 50),
        {"6b-448": Size(3200, 25, 12800, 1025)},
    ),
    "aimv2": Family(
        _of(aimv2.Aimv2EncoderLayer, transformers.Aimv2VisionConfig, _NAMES),
        _plain,
        Size(256, 2, 344, 64),
        {"l14-224": Size(1024, 8, 2816, 256), "h14-448": Size(1536, 12, 4096, 1024)},
    ),
    "pixtral": Family(
        _of(pixtral.PixtralAttentionLayer, transformers.PixtralVisionConfig, _NAMES),
        _rotated,
        Size(192, 3, 520, 48),
        {"12b-512": Size(1024, 16, 4096, 1024)},
        rope="half",
    ),
    "qwen2-vl": Family(
        _by_ratio(
            qwen2.Qwen2VLVisionBlock,
            qwen2.Qwen2VLVisionConfig,
            "embed_dim",
            "num_heads",
        ),
        _packed,
        Size(160, 2, 640, 64),
        {"448": Size(1280, 16, 5120, 1024)},
        rope="half",
    ),
    "qwen2.5-vl": Family(
        _of(
            qwen2_5.Qwen2_5_VLVisionBlock,
            qwen2_5.Qwen2_5_VLVisionConfig,
            ("hidden_size", "num_heads", "intermediate_size"),
        ),
        _packed,
        Size(160, 2, 428, 64),
        {"448": Size(1280, 16, 3420, 1024)},
        rope="half",
    ),
    "qwen3-vl": Family(
        _of(
            qwen3.Qwen3VLVisionBlock,
            qwen3.Qwen3VLVisionConfig,
            ("hidden_size", "num_heads", "intermediate_size"),
        ),
        _packed,
        Size(144, 2, 538, 64),
        {"512": Size(1152, 16, 4304, 1024)},
        rope="half",
    ),
    "timm-vit": Family(
        _timm_block(),
        _alone,
        Size(192, 3, 768, 50),
        {"b16-224": Size(768, 12, 3072, 197), "h14-224": Size(1280, 16, 5120, 257)},
    ),
    "timm-vit-qk-norm": Family(
        _timm_block(qk_norm=True, init_values=0.1),
        _alone,
        Size(192, 3, 768, 50),
        {"b16-224": Size(768, 12, 3072, 197)},
    ),
    "timm-vit-rms": Family(
        _timm_block(
            qk_norm=True,
            norm_layer=timm.layers.RmsNorm,
            mlp_layer=timm.layers.SwiGLUPacked,
            act_layer=nn.SiLU,
        ),
        _alone,
        Size(192, 3, 384, 50),
        {"b16-224": Size(768, 12, 4096, 197)},
    ),
    "eva02": Family(
        _eva_block(swiglu_mlp=True),
        _timm_rotated,
        Size(192, 3, 256, 50),
        {"ti14-336": Size(192, 3, 512, 577), "s14-336": Size(384, 6, 1024, 577)},
        rope="interleaved",
        prefix=1,
    ),
    "eva02-inner-norm": Family(
        _eva_block(swiglu_mlp=True, scale_mlp=True, qkv_fused=False),
        _timm_rotated,
        Size(128, 2, 342, 50),
        {"b14-448": Size(768, 12, 2048, 1025), "l14-224": Size(1024, 16, 2730, 257)},
        rope="interleaved",
        prefix=1,
    ),
    "pe-core": Family(
        _eva_block(attn_type="rope", init_values=0.1),
        _timm_rotated,
        Size(192, 2, 512, 50),
        {"b16-224": Size(768, 12, 3072, 197)},
        rope="interleaved",
        prefix=1,
    ),
}


def block(family: Family, size: Size, dtype: torch.dtype, seed: int = 0) -> nn.Module:
    """The layer with weights as training leaves them, in evaluation mode.

    Matrices keep the size of what they multiply; norm weights are around 1, LayerScale well below;
    no bias is zero.
    """
    torch.manual_seed(seed)
    layer = family.make(size)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 2:
                draw = 1.3 * draw * parameter.shape[1] ** -0.5
            elif name.endswith("bias"):
                draw = 0.2 * draw
            elif "lambda" in name or "gamma" in name:
                draw = 0.3 + 0.1 * draw
            else:
                draw = 1.0 + 0.2 * draw
            parameter.copy_(draw)
    return layer.to(dtype).eval()


def stream(size: Size, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """A residual stream [batch, tokens, width] with a few channels far larger than the rest."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size.batch, size.tokens, size.width, generator=generator)
    x[:, :, 3 :: 1 + size.width // 3] *= 20.0
    return x.to(dtype)


def tables(family: Family, size: Size, dtype: torch.dtype) -> Optional[Tables]:
    """(cos, sin) of two axes for a grid that is as square as the number of tokens allows."""
    if family.rope is None:
        return None
    count, quarter = size.tokens - family.prefix, size.width // size.heads // 4
    columns = max(side for side in range(1, count + 1) if count % side == 0 and side**2 <= count)
    rows = torch.arange(count) // columns
    frequencies = 100.0 ** -(torch.arange(quarter) / quarter)
    axes = [position[:, None] * frequencies for position in (rows, torch.arange(count) % columns)]
    angles = torch.cat(axes, dim=-1)
    if family.rope == "half":
        angles = angles.tile(2)
    else:
        angles = angles.repeat_interleave(2, dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)
