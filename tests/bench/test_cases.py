"""What the benchmark runs: the package's side computes what the eager side does."""

import dataclasses

import pytest
import torch

import neuron_vit
import nki_emulator
from bench.blocks import ACTIVATIONS, PreNormBlock, RotaryEmbedding, pack
from bench.cases import build_cases
from bench.eager import EagerLaunches
from bench.models import MODELS
from bench.parity import compare
from bench.paths import cpu_path, emulated_nki
from bench.weights import fill_like_trained

TINY = dataclasses.replace(MODELS["vit-ti16"], hidden=64, heads=2, head_dim=32, mlp=96, depth=3)


def block_and_input(activation="gelu", layer_scale=False):
    shape = dataclasses.replace(TINY, activation=activation, layer_scale=layer_scale)
    block = PreNormBlock.of(shape).eval().requires_grad_(False)
    fill_like_trained(block, seed=3)
    return block, torch.randn(2, 5, 64)


@pytest.mark.parametrize("layer_scale", [False, True])
@pytest.mark.parametrize("activation", sorted(set(ACTIVATIONS) - {"silu"}))
def test_a_packed_block_computes_the_same(activation, layer_scale):
    block, x = block_and_input(activation, layer_scale)
    with cpu_path():
        result = neuron_vit.vit_block(x, pack(block, neuron_vit))
    torch.testing.assert_close(result, block(x), rtol=1e-5, atol=1e-5)


def test_packing_copies_the_weights():
    block, x = block_and_input()
    params = pack(block, neuron_vit)
    before = neuron_vit.vit_block(x, params)
    for parameter in block.parameters():
        parameter.zero_()
    torch.testing.assert_close(neuron_vit.vit_block(x, params), before, rtol=0, atol=0)


@pytest.mark.parametrize("path", [cpu_path, emulated_nki])
@pytest.mark.parametrize("level, count", [("op", 6), ("block", 1), ("encoder", 1)])
def test_cases_agree_with_float64(level, count, path):
    cases = build_cases(TINY, level, 32, 2, torch.float32, neuron_vit)
    assert len(cases) == count
    for case in cases:
        exact = case.exact()
        assert exact.dtype == torch.float64
        with path():
            result = case.package()
        assert result.dtype == torch.float32
        for side in (case.eager(), result):
            assert compare(side, exact).cos > 0.999999, case.op
            assert compare(side, exact).max_abs_err < 1e-4, case.op


def test_cases_are_the_same_every_time():
    first, second = (build_cases(TINY, "block", 32, 1, torch.bfloat16, neuron_vit) for _ in "ab")
    assert torch.equal(first[0].eager(), second[0].eager())


def test_an_encoder_is_all_blocks_with_weights_of_their_own():
    (encoder,) = build_cases(TINY, "encoder", 32, 1, torch.float32, neuron_vit)
    (block,) = build_cases(TINY, "block", 32, 1, torch.float32, neuron_vit)
    with emulated_nki():
        neuron_vit.reset_launches()
        encoder.package()
        assert neuron_vit.launches() == {"vit_encoder": 1}
    again = block.exact()
    assert not torch.allclose(encoder.exact(), again)


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("layer_scale, launches", [(False, 10), (True, 12)])
def test_the_eager_baseline_is_the_same_block_as_one_launch_an_operation(
    layer_scale, launches, lnc
):
    shape = dataclasses.replace(TINY, layer_scale=layer_scale)
    (case,) = build_cases(shape, "block", 160, 2, torch.float32, neuron_vit)
    with emulated_nki(lnc=lnc), nki_emulator.profiling() as profiles:
        result = case.launches(EagerLaunches(neuron_vit, lnc))
    assert compare(result, case.exact()).max_abs_err < 1e-4
    kernels = [profile.kernel for profile in profiles]
    scale = ["scale"] if layer_scale else []
    assert kernels == [
        "layer_norm", "linear", "attention", "linear", *scale, "add",
        "layer_norm", "linear", "activate", "linear", *scale, "add",
    ]  # fmt: skip
    assert len(kernels) == launches


# Blocks that a kernel computes although they are no plain ViT: RMSNorm, fewer biases, gates, norms
# of queries and keys.
COVERED = (
    dict(norm="rms", qkv_bias="none", bias=False),
    dict(qkv_bias="qv", eps=1e-5),
    dict(gated=True, activation="silu"),
    dict(gated=True, activation="silu", mlp_norm=True, bias=False),
    dict(qk_norm=True),
)


@pytest.mark.parametrize("changes", COVERED)
def test_other_norms_and_biases_run_as_kernels(changes):
    shape = dataclasses.replace(TINY, **changes)
    for level in ("op", "block", "encoder"):
        for case in build_cases(shape, level, 32, 2, torch.float32, neuron_vit):
            with emulated_nki():
                result, launched = case.package(), case.launches(EagerLaunches(neuron_vit, 1))
            assert compare(result, case.exact()).max_abs_err < 1e-4, case.op
            assert compare(launched, case.exact()).max_abs_err < 1e-4, case.op


def test_rotary_embeddings_run_as_kernels_without_eager_launches():
    shape = dataclasses.replace(TINY, rope_theta=100.0, prefix_tokens=5)
    for level in ("block", "encoder"):
        (case,) = build_cases(shape, level, 32, 2, torch.float32, neuron_vit)
        assert case.launches is None and case.beyond == "rotary embeddings"
        with emulated_nki():
            result = case.package()
        assert compare(result, case.exact()).max_abs_err < 1e-4
        assert compare(case.eager(), case.exact()).max_abs_err < 1e-4
    cases = {case.op: case for case in build_cases(shape, "op", 32, 2, torch.float32, neuron_vit)}
    with emulated_nki():
        assert compare(cases["attention"].package(), cases["attention"].exact()).cos > 0.999999


def test_rotary_embeddings_turn_patches_by_their_place():
    """Scores depend on the distance of two patches only, and the prefix is left alone."""
    rotary = RotaryEmbedding(prefix=2, theta=100.0)
    query, key = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)
    turned = [rotary(x.expand(1, 1, 2 + 9, 16)) for x in (query, key)]
    assert all(
        torch.equal(t[0, 0, :2], x[0, 0].expand(2, 16)) for t, x in zip(turned, (query, key))
    )
    scores = (turned[0] @ turned[1].transpose(-1, -2))[0, 0, 2:, 2:].view(3, 3, 3, 3)
    assert scores[0, 0, 1, 2] == pytest.approx(scores[1, 0, 2, 2].item(), rel=1e-6)
    assert scores[0, 0, 1, 1] != pytest.approx(scores[0, 0, 1, 2].item(), rel=1e-3)


@pytest.mark.parametrize("name", ["dinov3-s16", "eva02-ti14", "aimv2-l14"])
def test_a_gated_or_rotated_block_is_finite(name):
    shape = dataclasses.replace(MODELS[name], depth=1)
    block = PreNormBlock.of(shape).eval().requires_grad_(False)
    fill_like_trained(block, seed=1)
    x = torch.randn(1, shape.tokens(32), shape.hidden)
    assert torch.isfinite(block(x)).all()
    biases = {key for key, _ in block.named_parameters() if key.endswith("bias")}
    assert ("attn.q_bias" in biases) == (shape.qkv_bias == "qv")
    assert ("mlp.fc1.bias" in biases) == shape.bias


def test_unknown_level():
    with pytest.raises(ValueError, match="level='model'; it must be op, block, encoder"):
        build_cases(TINY, "model", 32, 1, torch.float32, neuron_vit)


def test_weights_are_like_trained_ones():
    block = PreNormBlock.of(dataclasses.replace(MODELS["dinov2-s14"]))
    fill_like_trained(block, seed=0)
    norm = block.norm1.weight
    assert 0.9 < norm.median() < 1.1
    assert norm.max() > 3.0
    biases = [p for name, p in block.named_parameters() if name.endswith("bias")]
    assert len(biases) == 6
    assert all(bias.count_nonzero() == bias.numel() for bias in biases)
    assert 0.05 < block.ls1.gamma.min() and block.ls1.gamma.max() <= 1.0
    assert block.mlp.fc1.weight.std().item() == pytest.approx(1.2 * 384**-0.5, rel=0.02)
