"""A matrix product with an optional bias.

Traffic in elements for T rows: reads T*K + K*N (+ N for the bias), writes T*N.
"""

from typing import Optional

from torch import Tensor
from torch.nn import functional as F


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor], weight_layout: str) -> Tensor:
    """y = x W + bias.

    x: [..., K]; bias: [N]; result: [..., N]. `weight_layout` says how W is stored: "in_out" is
    [K, N], "out_in" is [N, K], the layout of `torch.nn.Linear`.
    """
    return F.linear(x, weight.t() if weight_layout == "in_out" else weight, bias)
