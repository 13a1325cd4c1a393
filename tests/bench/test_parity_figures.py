"""cos and max_abs_err."""

import math

import pytest
import torch

from bench.parity import compare


def test_equal_tensors():
    x = torch.randn(5, 7)
    parity = compare(x, x.double())
    assert parity.cos == pytest.approx(1.0, abs=1e-12)
    assert parity.cos <= 1.0
    assert parity.max_abs_err == 0.0


def test_largest_difference_and_angle():
    parity = compare(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]))
    assert parity.cos == pytest.approx(math.sqrt(0.5))
    assert parity.max_abs_err == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_parity(bad):
    parity = compare(torch.tensor([1.0, bad]), torch.ones(2))
    assert math.isnan(parity.cos) and math.isnan(parity.max_abs_err)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"\(2, 3\), expected \(3, 2\)"):
        compare(torch.ones(2, 3), torch.ones(3, 2))
