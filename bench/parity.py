"""How far a result is from the one it should equal."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Parity:
    """`cos` is the cosine of the two tensors taken as flat vectors, `max_abs_err` the largest
    difference of one element. Both are NaN when the result holds a NaN or an infinity."""

    cos: float
    max_abs_err: float


def compare(result: torch.Tensor, expected: torch.Tensor) -> Parity:
    """Parity of `result` with `expected` (same shape, any float dtypes), computed in float64."""
    if result.shape != expected.shape:
        raise ValueError(
            f"result has shape {tuple(result.shape)}, expected {tuple(expected.shape)}"
        )
    result = result.detach().to("cpu", torch.float64).flatten()
    expected = expected.detach().to("cpu", torch.float64).flatten()
    if not torch.isfinite(result).all():
        return Parity(float("nan"), float("nan"))
    # Normalised before the product, and bounded: rounding must not print a cosine above 1.
    unit, expected_unit = (v / v.norm().clamp_min(1e-300) for v in (result, expected))
    cosine = min(1.0, float(unit @ expected_unit))
    return Parity(cosine, float((result - expected).abs().max()))
