"""The weights of a transformer block, packed once as the block kernel reads them."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from . import _validate

_QK_WEIGHTS = ("q_norm_weight", "k_norm_weight")


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
        norm: "layer" or "rms"; "rms" has no biases. So for the two other norms below.
        activation: "gelu" (exact), "gelu_tanh", "quick_gelu", "silu" or "relu".
        gate_weight: [D, I] or None, gate_bias: [I] or None. With a gate, what fc2 sees is
            activation(x gate_weight + gate_bias) * (x fc1_weight + fc1_bias).
        inner_norm: None, or the kind of a norm of what fc2 sees; inner_weight, inner_bias: its
            parameters [I] or None; inner_eps: its eps.
        qk_norm: None, or the kind of a norm of queries and keys; q_norm_weight, k_norm_weight:
            its weights, [d] for a norm of each head, [H*d] for an RMS norm over all heads
            together; q_norm_bias, k_norm_bias: such biases or None; qk_eps: its eps.
        rope: None, or how queries and keys are rotated by the tables that `vit_block` is given:
            "half" (value i of a head with i + d/2) or "interleaved" (2i with 2i + 1).

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
    gate_weight: Optional[Tensor] = None
    gate_bias: Optional[Tensor] = None
    inner_weight: Optional[Tensor] = None
    inner_bias: Optional[Tensor] = None
    inner_norm: Optional[str] = None
    inner_eps: float = 1e-6
    q_norm_weight: Optional[Tensor] = None
    q_norm_bias: Optional[Tensor] = None
    k_norm_weight: Optional[Tensor] = None
    k_norm_bias: Optional[Tensor] = None
    qk_norm: Optional[str] = None
    qk_eps: float = 1e-6
    rope: Optional[str] = None

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

        Takes transformers' layers of ViT, DeiT, DINOv2 (also with registers), DINOv3, CLIP,
        SigLIP, SigLIP 2, InternVL, AIMv2, Pixtral, Qwen2-VL, Qwen2.5-VL and Qwen3-VL, and timm's
        Block and EvaBlock. Norms, epsilon, activation, gate, biases, head count, score factor and
        LayerScale come from the layer's modules, not from the name of the model. The result holds
        copies: training the layer afterwards does not change it.

        `rope` of a timm EvaBlock is set, because the block does not know whether its model has
        rotary embeddings; where it has none use `dataclasses.replace(params, rope=None)`.

        Raises:
            NeuronVitUnsupported: the layer, or a part of it, is none of those; the message says
                which part and what was found.
        """
        from ._layer_reader import read_layer

        return cls(**read_layer(layer))

    def _tensors(self) -> Dict[str, Tensor]:
        values = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


# Listed once, because torch.compile does not trace `dataclasses.fields` of a class.
FIELDS = tuple(field.name for field in dataclasses.fields(BlockParams))


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
    _validate.epsilon(function, params.inner_eps, "inner_eps")
    _validate.epsilon(function, params.qk_eps, "qk_eps")
    _validate.one_of(function, "activation", params.activation, _validate.ACTIVATIONS)
    if params.rope is not None:
        _validate.one_of(function, "rope", params.rope, _validate.ROPES)
        if params.head_dim % 2:
            raise _validate.fail(
                function,
                "rope",
                f"is given with a head size of {params.head_dim}",
                "the head size must then be even",
                "Check num_heads",
            )
    _check_norm(params, "norm", ("norm1_bias", "norm2_bias"))
    _check_norm(params, "inner_norm", ("inner_bias",), ("inner_weight",))
    _check_norm(params, "qk_norm", ("q_norm_bias", "k_norm_bias"), _QK_WEIGHTS)
    if params.qk_norm is not None:
        for name in _QK_WEIGHTS:
            _check_together(params, "qk_norm", name)
    _check_together(params, "gate_bias", "gate_weight")
    hidden = params.fc1_weight.shape[-1]
    normed = _normed_width(params)
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
        "gate_weight": (width, hidden),
        "gate_bias": (hidden,),
        "inner_weight": (hidden,),
        "inner_bias": (hidden,),
        "q_norm_weight": (normed,),
        "q_norm_bias": (normed,),
        "k_norm_weight": (normed,),
        "k_norm_bias": (normed,),
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


def _check_norm(
    params: BlockParams, kind: str, biases: Tuple[str, ...], weights: Tuple[str, ...] = ()
) -> None:
    """The kind of a norm and its parameters. `weights`: of a norm that may be None as a whole."""
    value = getattr(params, kind)
    if weights and value is None:
        for name in (*weights, *biases):
            _check_together(params, name, kind)
        return
    _validate.one_of("BlockParams", kind, value, _validate.NORMS)
    if value == "rms" and any(getattr(params, bias) is not None for bias in biases):
        raise _validate.fail(
            "BlockParams",
            kind,
            "is 'rms'",
            f"then {' and '.join(biases)} must be None",
            f"Pass None, or {kind}='layer'",
        )


def _check_together(params: BlockParams, name: str, other: str) -> None:
    if getattr(params, name) is not None and getattr(params, other) is None:
        raise _validate.fail(
            "BlockParams", name, f"is given without {other}", "it needs that", f"Pass {other} too"
        )


def _normed_width(params: BlockParams) -> int:
    """How many values a norm of queries and keys spans: those of a head, or of all heads."""
    weight = params.q_norm_weight
    every = params.num_heads * params.head_dim
    if not isinstance(weight, Tensor) or weight.shape != (every,) or every == params.head_dim:
        return params.head_dim
    if params.qk_norm != "rms":
        raise _validate.fail(
            "BlockParams",
            "qk_norm",
            f"is {params.qk_norm!r} with {every} weights",
            "a norm over all heads together must be 'rms'",
            "Give a norm of each head its head_dim weights",
        )
    return every
