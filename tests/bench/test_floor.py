"""T_min of whole encoders."""

import pytest

from bench.floor import t_min
from bench.models import MODELS


def encoder(name, batch, dtype="bf16", target="trn2", lnc=1):
    shape = MODELS[name]
    return t_min(shape, shape.depth, shape.tokens(224), batch, dtype, target, lnc)


def test_products_and_weights_of_vit_b():
    """By hand: 2 operations a multiply-add at 78.6 TFLOP/s, 2 bytes a weight at 368 GB/s."""
    weights = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    flops = 16 * 2 * (197 * weights + 12 * 2 * 197 * 197 * 768)
    assert encoder("vit-b16", 16) == pytest.approx(flops / 78.6e6, rel=1e-3)
    assert encoder("vit-b16", 1) == pytest.approx(2 * weights / 368e3, rel=1e-6)


def test_a_gate_is_a_third_matrix():
    plain, gated = MODELS["dinov2-l14"], MODELS["dinov2-g14"]
    assert plain.matrix_elements == 4 * 1024**2 + 2 * 1024 * 4096
    assert gated.matrix_elements == 4 * 1536**2 + 3 * 1536 * 4096


def test_float32_takes_four_passes_and_two_cores_half():
    one = encoder("vit-b16", 16)
    assert encoder("vit-b16", 16, "fp32") == pytest.approx(4 * one)
    assert encoder("vit-b16", 16, lnc=2) == pytest.approx(one / 2)
    assert encoder("vit-b16", 1, target="trn3") < encoder("vit-b16", 1)
