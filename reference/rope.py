"""Rotary position embeddings from tables.

Traffic in elements for B images of S tokens and H heads of size d: reads B*S*H*d and two tables,
writes B*S*H*d.
"""

import torch
from torch import Tensor

from .precision import wide


def rotate(x: Tensor, cos: Tensor, sin: Tensor, rope: str) -> Tensor:
    """x * cos + turned(x) * sin for the last tokens, in float32 or wider.

    x: [B, H, S, d]; cos, sin: [T, d] or [B, T, d] with T <= S. The first S - T tokens, a class
    token or registers, stay as they are. `rope` says what turned(x) is, with d even:

    - "half": [-x2, x1] for the halves x1, x2 of a head;
    - "interleaved": [-x[1], x[0], -x[3], x[2], ...].
    """
    x = wide(x)
    first = x.shape[-2] - cos.shape[-2]
    kept, moved = x[..., :first, :], x[..., first:, :]
    if cos.dim() == 3:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    if rope == "half":
        low, high = moved.chunk(2, dim=-1)
        turned = torch.cat([-high, low], dim=-1)
    elif rope == "interleaved":
        turned = torch.stack([-moved[..., 1::2], moved[..., ::2]], dim=-1).flatten(-2)
    else:
        raise ValueError(f"rope is {rope!r}; it must be 'half' or 'interleaved'")
    return torch.cat([kept, moved * wide(cos) + turned * wide(sin)], dim=-2)
