"""Two matrix products with an activation between them.

Traffic in elements for T rows of width D, I hidden units and O outputs: reads T*D + D*I + I*O (+ I
+ O for the biases), writes T*O. The T*I hidden values are written and read again only when the two
products run as separate operations.
"""

from typing import Optional

import torch
from torch import Tensor
from torch.nn import functional as F

from .linear import linear
from .precision import wide


def mlp(
    x: Tensor,
    fc1_weight: Tensor,
    fc1_bias: Optional[Tensor],
    fc2_weight: Tensor,
    fc2_bias: Optional[Tensor],
    activation: str,
    weight_layout: str,
) -> Tensor:
    """y = activate(x W1 + b1) W2 + b2.

    x: [..., D]; W1: D to I; W2: I to O; result: [..., O]. Both weights are stored in
    `weight_layout`, see `linear`; `activation` is one of those in `activate`.
    """
    hidden = activate(linear(x, fc1_weight, fc1_bias, weight_layout), activation)
    return linear(hidden, fc2_weight, fc2_bias, weight_layout)


def activate(x: Tensor, activation: str) -> Tensor:
    """One of three GELUs or SiLU, computed in float32 and rounded to the dtype of x.

    - "gelu": x * Phi(x), with the distribution function of the normal distribution;
    - "gelu_tanh": 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));
    - "quick_gelu": x * sigmoid(1.702 x);
    - "silu": x * sigmoid(x).
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
    else:
        raise ValueError(
            f"activation is {activation!r}; it must be 'gelu', 'gelu_tanh', 'quick_gelu' or 'silu'"
        )
    return value.to(x.dtype)
