"""Two matrix products with an activation between them, plain or gated, and an optional norm.

Traffic in elements for T rows of width D, I hidden units and O outputs: reads T*D + D*I + I*O (+ I
+ O for the biases; another D*I + I with a gate), writes T*O. The T*I hidden values are written and
read again only when the products run as separate operations.
"""

from typing import Optional

import torch
from torch import Tensor
from torch.nn import functional as F

from .linear import linear
from .norm import layer_norm, rms_norm
from .precision import wide


def mlp(
    x: Tensor,
    fc1_weight: Tensor,
    fc1_bias: Optional[Tensor],
    fc2_weight: Tensor,
    fc2_bias: Optional[Tensor],
    activation: str,
    weight_layout: str,
    norm_weight: Optional[Tensor] = None,
    norm_bias: Optional[Tensor] = None,
    norm_eps: float = 0.0,
    norm: Optional[str] = None,
) -> Tensor:
    """y = norm(activate(x W1 + b1)) W2 + b2.

    x: [..., D]; W1: D to I; W2: I to O; result: [..., O]. Both weights are stored in
    `weight_layout`, see `linear`; `activation` is one of those in `activate`. norm: None, or
    "layer" or "rms" for a norm of the I hidden features with `norm_weight`, `norm_bias` ([I] or
    None) and `norm_eps`.
    """
    hidden = activate(linear(x, fc1_weight, fc1_bias, weight_layout), activation)
    hidden = _normalize(hidden, norm_weight, norm_bias, norm_eps, norm)
    return linear(hidden, fc2_weight, fc2_bias, weight_layout)


def swiglu_mlp(
    x: Tensor,
    gate_weight: Optional[Tensor],
    gate_bias: Optional[Tensor],
    up_weight: Optional[Tensor],
    up_bias: Optional[Tensor],
    down_weight: Tensor,
    down_bias: Optional[Tensor],
    activation: str,
    weight_layout: str,
    norm_weight: Optional[Tensor] = None,
    norm_bias: Optional[Tensor] = None,
    norm_eps: float = 0.0,
    norm: Optional[str] = None,
) -> Tensor:
    """y = norm(activate(x Wg + bg) * (x Wu + bu)) Wd + bd.

    x: [..., D]; Wg, Wu: D to I; Wd: I to O; result: [..., O]. If `up_weight` is None, `gate_weight`
    and `gate_bias` hold 2*I features, the gate first; if `gate_weight` is None, `up_weight` and
    `up_bias` do, the gate last. The other arguments are those of `mlp`.
    """
    if up_weight is None:
        gate, up = linear(x, gate_weight, gate_bias, weight_layout).chunk(2, dim=-1)
    elif gate_weight is None:
        up, gate = linear(x, up_weight, up_bias, weight_layout).chunk(2, dim=-1)
    else:
        gate = linear(x, gate_weight, gate_bias, weight_layout)
        up = linear(x, up_weight, up_bias, weight_layout)
    hidden = activate(gate, activation) * up
    hidden = _normalize(hidden, norm_weight, norm_bias, norm_eps, norm)
    return linear(hidden, down_weight, down_bias, weight_layout)


def _normalize(
    hidden: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    eps: float,
    norm: Optional[str],
) -> Tensor:
    if norm is None:
        return hidden
    if norm == "layer":
        return layer_norm(hidden, weight, bias, None, eps)
    if norm == "rms":
        return rms_norm(hidden, weight, None, eps)
    raise ValueError(f"norm is {norm!r}; it must be None, 'layer' or 'rms'")


def activate(x: Tensor, activation: str) -> Tensor:
    """One of the activations, computed in float32 and rounded to the dtype of x.

    - "gelu": x * Phi(x), with the distribution function of the normal distribution;
    - "gelu_tanh": 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));
    - "quick_gelu": x * sigmoid(1.702 x);
    - "silu": x * sigmoid(x);
    - "relu": max(x, 0).
    """
    value = wide(x)
    if activation == "gelu":
        value = F.gelu(value)
    elif activation == "gelu_tanh":
        value = F.gelu(value, approximate="tanh")
    elif activation == "quick_gelu":
        value = value * torch.sigmoid(1.702 * value)
    elif activation == "silu":
        value = F.silu(value)
    elif activation == "relu":
        value = F.relu(value)
    else:
        raise ValueError(
            f"activation is {activation!r}; it must be 'gelu', 'gelu_tanh', 'quick_gelu', 'silu' "
            "or 'relu'"
        )
    return value.to(x.dtype)
