"""A matrix product with an optional bias.

Traffic in elements for T rows: reads T*K + K*N (+ N for the bias), writes T*N.
"""

from typing import Optional

import torch
from torch import Tensor
from torch.nn import functional as F


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], weight_layout: str) -> Tensor:
    """y = x W + bias.

    x: [..., K]; bias: [N]; result: [..., N]. `weight_layout` says how W is stored: "in_out" is
    [K, N], "out_in" is [N, K], the layout of `torch.nn.Linear`.
    """
    if weight_layout == "in_out":
        weight = weight.t()
        if weight.dtype == torch.float16 and weight.device.type == "cpu":
            # PyTorch multiplies float16 by a transposed view twenty times slower than by a copy.
            weight = weight.contiguous()
    return F.linear(x, weight, bias)
