"""The weights of a transformer block, packed once as the block kernel reads them."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, Optional

import torch
from torch import Tensor

from . import _validate


@dataclass(frozen=True, eq=False)
class BlockParams:
    """The weights and constants of one pre-norm block; see `vit_block` for what it computes.

    With D the width, H the heads, d the head size and I the hidden width of the MLP. All tensors
    have one dtype and one device. Build it from a layer of a model with `from_module`.

    Attributes:
        norm1_weight, norm2_weight: [D].
        norm1_bias, norm2_bias: [D] or None.
        qkv_weight: [D, 3*H*d], columns: query heads, key heads, value heads.
        qkv_bias: [3*H*d] or None.
        proj_weight: [H*d, D]. proj_bias: [D] or None.
        fc1_weight: [D, I]. fc1_bias: [I] or None.
        fc2_weight: [I, D]. fc2_bias: [D] or None.
        scale1, scale2: [D], LayerScale after attention and after the MLP, or None.
        num_heads: H.
        eps: of both norms.
        attention_scale: factor on the attention scores.
        norm: "layer" or "rms"; "rms" has no biases.
        activation: "gelu" (exact), "gelu_tanh", "quick_gelu", "silu" or "relu".

    All weights are stored [in, out], the transpose of `torch.nn.Linear`.
    """

    norm1_weight: Tensor
    qkv_weight: Tensor
    proj_weight: Tensor
    norm2_weight: Tensor
    fc1_weight: Tensor
    fc2_weight: Tensor
    num_heads: int
    eps: float
    attention_scale: float
    norm1_bias: Optional[Tensor] = None
    qkv_bias: Optional[Tensor] = None
    proj_bias: Optional[Tensor] = None
    scale1: Optional[Tensor] = None
    norm2_bias: Optional[Tensor] = None
    fc1_bias: Optional[Tensor] = None
    fc2_bias: Optional[Tensor] = None
    scale2: Optional[Tensor] = None
    norm: str = "layer"
    activation: str = "gelu"

    def __post_init__(self) -> None:
        _check(self)

    @property
    def width(self) -> int:
        """D, the size of a token."""
        return self.qkv_weight.shape[0]

    @property
    def head_dim(self) -> int:
        """d, the size of a head."""
        return self.qkv_weight.shape[1] // (3 * self.num_heads)

    @property
    def hidden(self) -> int:
        """I, the hidden width of the MLP."""
        return self.fc1_weight.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.qkv_weight.dtype

    @property
    def device(self) -> torch.device:
        return self.qkv_weight.device

    def to(self, *args: Any, **kwargs: Any) -> "BlockParams":
        """A copy with every tensor passed through `torch.Tensor.to` with these arguments."""
        moved = {name: tensor.to(*args, **kwargs) for name, tensor in self._tensors().items()}
        return dataclasses.replace(self, **moved)

    @classmethod
    def from_module(cls, layer: torch.nn.Module) -> "BlockParams":
        """The packed weights of a layer of a model.

        Takes transformers' ViTLayer, DeiTLayer, Dinov2Layer, Dinov2WithRegistersLayer,
        CLIPEncoderLayer and SiglipEncoderLayer. Epsilon, activation, biases, head count, score
        factor and LayerScale come from the layer's modules, not from the name of the model. The
        result holds copies: training the layer afterwards does not change it.

        Raises:
            NeuronVitUnsupported: the layer, or a part of it, is none of those; the message says
                which part and what was found.
        """
        from ._layer_reader import read_layer

        return cls(**read_layer(layer))

    def _tensors(self) -> Dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _check(params: BlockParams) -> None:
    function = "BlockParams"
    _validate.floating_tensor(function, "qkv_weight", params.qkv_weight, "exactly 2")
    width, columns = params.qkv_weight.shape
    if params.num_heads < 1 or columns % (3 * params.num_heads):
        raise _validate.fail(
            function,
            "num_heads",
            f"is {params.num_heads}",
            f"qkv_weight has {columns} columns, which must be 3 * num_heads * head_dim",
            "Check the head count and the packing of qkv_weight",
        )
    _validate.epsilon(function, params.eps)
    _validate.one_of(function, "norm", params.norm, _validate.NORMS)
    _validate.one_of(function, "activation", params.activation, _validate.ACTIVATIONS)
    if params.norm == "rms" and not (params.norm1_bias is None and params.norm2_bias is None):
        raise _validate.fail(
            function, "norm", "is 'rms'", "then the norms have no biases", "Pass None for them"
        )
    hidden = params.fc1_weight.shape[-1]
    shapes = {
        "norm1_weight": (width,),
        "norm1_bias": (width,),
        "qkv_bias": (columns,),
        "proj_weight": (columns // 3, width),
        "proj_bias": (width,),
        "scale1": (width,),
        "norm2_weight": (width,),
        "norm2_bias": (width,),
        "fc1_weight": (width, hidden),
        "fc1_bias": (hidden,),
        "fc2_weight": (hidden, width),
        "fc2_bias": (width,),
        "scale2": (width,),
    }
    for name, tensor in params._tensors().items():
        if name in shapes:
            _validate.parameter(
                function,
                name,
                tensor,
                shapes[name],
                "stored [in, out]" if len(shapes[name]) == 2 else "one value a column",
                "qkv_weight",
                params.qkv_weight,
            )
