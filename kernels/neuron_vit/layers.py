"""Layers for `kernels.kernelize`: only a `forward`, on the members of the layer they replace.

`LayerNorm`, `RMSNorm` and `MLP` replace a norm or an MLP, in models that `hook_layers` has seen. A
lone activation has no layer here, "GeLU" and its like keep transformers' forward pass: a launch
that only reads and writes a tensor costs more than it saves, and `MLP` holds the activation. It is
read from the module, never assumed.

The classes with the names of transformers' layers replace
a whole block by one launch; `layouts` says how transformers takes them, and what they do where the
kernel does not cover a call. Each of those has a companion, `ViTLayerLayout` beside `ViTLayer`,
made when it is asked for, because it derives from transformers' class.
"""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor, nn

from .layer_hooks import run_mlp
from .layouts import layout, run_block
from .normalization import layer_norm, rms_norm

_Tables = Tuple[Tensor, Tensor]


def __getattr__(name: str) -> Any:
    found = layout(name, __name__)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


class LayerNorm(nn.Module):
    """Replaces `torch.nn.LayerNorm`; see `layer_norm`."""

    can_torch_compile = True
    has_backward = True

    normalized_shape: Tuple[int, ...]
    weight: Optional[Tensor]
    bias: Optional[Tensor]
    eps: float

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Replaces what transformers names "RMSNorm"; see `rms_norm`. Its epsilon is
    `variance_epsilon`, in few models `eps`."""

    can_torch_compile = True
    has_backward = True

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        name = "variance_epsilon" if hasattr(self, "variance_epsilon") else "eps"
        return rms_norm(hidden_states, self.weight.shape, self.weight, getattr(self, name))


class MLP(nn.Module):
    """Replaces an MLP of transformers, gated or not, by one launch; see `mlp` and `swiglu_mlp`."""

    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return run_mlp(self, hidden_states)


class _Block(nn.Module):
    """A block that is called with tokens and a mask."""

    can_torch_compile = True
    has_backward = False

    def forward(
        self, hidden_states: Tensor, attention_mask: Optional[Tensor] = None, **kwargs: Any
    ) -> Tensor:
        return run_block(self, hidden_states, {"attention_mask": attention_mask, **kwargs})


class _UnmaskedBlock(nn.Module):
    """A block that is called with nothing but tokens."""

    can_torch_compile = True
    has_backward = False

    def forward(self, hidden_states: Tensor) -> Tensor:
        return run_block(self, hidden_states, {})


class _RotatedBlock(nn.Module):
    """A block that is called with tokens, a mask and rotary tables."""

    can_torch_compile = True
    has_backward = False

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Optional[Tensor] = None,
        position_embeddings: Optional[_Tables] = None,
        **kwargs: Any,
    ) -> Tensor:
        given = {"attention_mask": attention_mask, "position_embeddings": position_embeddings}
        return run_block(self, hidden_states, {**given, **kwargs})


class _SegmentedBlock(nn.Module):
    """A block that is called with the tokens of all images in a row, and their bounds."""

    can_torch_compile = True
    has_backward = False

    def forward(
        self,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: Optional[_Tables] = None,
        **kwargs: Any,
    ) -> Tensor:
        given = {"cu_seqlens": cu_seqlens, "position_embeddings": position_embeddings}
        return run_block(self, hidden_states, {**given, **kwargs})


class ViTLayer(_Block):
    """A block of ViT."""


class DeiTLayer(_Block):
    """A block of DeiT."""


class Dinov2Layer(_Block):
    """A block of DINOv2."""


class Dinov2WithRegistersLayer(_Block):
    """A block of DINOv2 with registers."""


class CLIPEncoderLayer(_Block):
    """A block of CLIP."""


class SiglipEncoderLayer(_Block):
    """A block of SigLIP."""


class Siglip2EncoderLayer(_Block):
    """A block of SigLIP 2."""


class Aimv2EncoderLayer(_Block):
    """A block of AIMv2."""


class InternVLVisionLayer(_UnmaskedBlock):
    """A block of InternVL."""


class DINOv3ViTLayer(_RotatedBlock):
    """A block of DINOv3."""


class PixtralAttentionLayer(_RotatedBlock):
    """A block of Pixtral."""


class Qwen2VLVisionBlock(_SegmentedBlock):
    """A block of Qwen2-VL."""


class Qwen2_5_VLVisionBlock(_SegmentedBlock):
    """A block of Qwen2.5-VL."""


class Qwen3VLVisionBlock(_SegmentedBlock):
    """A block of Qwen3-VL."""
