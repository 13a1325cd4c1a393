"""The demo's verdict, and its two models at a size that takes no time."""

import copy

import pytest
import torch
from transformers import ViTConfig, ViTModel

import neuron_vit
from bench.demo import digits, photo, worker
from bench.demo.__main__ import conclude
from bench.demo.gate import REQUIREMENTS, failures
from bench.paths import cpu_path, emulated_nki
from bench.weights import fill_like_trained

GOOD = {
    "load": {"from_hub": True},
    "digits": {
        "eager fp32": {"accuracy": 0.95},
        "package fp32": {"agreement": 1.0},
        "nki fp32": {"agreement": 1.0, "only_nki": True},
        "nki bf16": {"agreement": 0.995, "only_nki": True},
    },
    "vit": {
        "nki fp32": {"cos": 0.9999, "launches": {"vit_block": 12}, "seconds": 29.9},
        "nki bf16": {"cos": 0.999, "launches": {"vit_block": 12}, "seconds": 29.9},
    },
    "bench": {"only_nki": True},
    "seconds": 239.0,
}

BAD = [
    ("load", "from_hub", False),
    ("digits", "eager fp32", "accuracy", 0.9499),
    ("digits", "package fp32", "agreement", 0.9975),
    ("digits", "nki fp32", "agreement", 0.9975),
    ("digits", "nki bf16", "agreement", 0.9925),
    ("digits", "nki fp32", "only_nki", False),
    ("digits", "nki bf16", "only_nki", False),
    ("vit", "nki fp32", "cos", 0.99989),
    ("vit", "nki fp32", "cos", float("nan")),
    ("vit", "nki fp32", "launches", {"vit_block": 11}),
    ("vit", "nki fp32", "seconds", 30.0),
    ("vit", "nki bf16", "cos", 0.99899),
    ("vit", "nki bf16", "launches", {}),
    ("vit", "nki bf16", "seconds", None),
    ("bench", "only_nki", False),
    ("seconds", 240.0),
]


def spoilt(*path):
    """GOOD with the figure at `path`, whose last element is the value, replaced."""
    figures = copy.deepcopy(GOOD)
    *keys, last, value = path
    place = figures
    for key in keys:
        place = place[key]
    place[last] = value
    return figures


def test_good_figures_pass(capsys):
    assert failures(GOOD) == []
    assert conclude(GOOD) == 0
    assert capsys.readouterr().out.endswith("demo: ok\n")


@pytest.mark.parametrize("path", BAD, ids=lambda path: " ".join(map(str, path)))
def test_a_bad_figure_fails_the_demo(path, capsys):
    assert len(failures(spoilt(*path))) == 1
    assert conclude(spoilt(*path)) == 1
    out = capsys.readouterr().out
    assert out.endswith("demo: failed\n") and "demo: ok" not in out


def test_every_requirement_has_a_bad_figure():
    reached = {failures(spoilt(*path))[0].split(": found")[0] for path in BAD}
    missing = [r.text for r in REQUIREMENTS if not any(r.text in line for line in reached)]
    assert missing == []


def test_missing_figures_fail():
    assert len(failures({})) == len(REQUIREMENTS)


def test_digits_are_split_without_overlap():
    images, labels, held_out, truth = digits.load_split()
    assert len(held_out) == len(truth) == digits.HELD_OUT
    assert len(images) == len(labels) == 1797 - digits.HELD_OUT
    again = digits.load_split()[2]
    assert torch.equal(held_out, again)
    assert images.mean().abs() < 1e-5 and abs(images.std() - 1) < 1e-5


def test_digits_patches_are_neighbouring_pixels():
    model = digits.DigitsViT()
    image = torch.arange(64.0).reshape(1, 8, 8)
    patches = model.patches(image)
    assert patches.shape == (1, 8, 8)
    assert patches[0, 0].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert patches[0, 1].tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    assert patches[0, 2].tolist() == [16, 17, 18, 19, 24, 25, 26, 27]


def test_digits_learn_something_in_one_pass():
    images, labels, held_out, truth = digits.load_split()
    model = digits.train(images[:640], labels[:640], epochs=2)
    accuracy = (model(held_out).argmax(1) == truth).float().mean()
    assert accuracy > 0.4
    assert not model.training


@pytest.mark.parametrize("path, ran", [(cpu_path, False), (emulated_nki, True)])
def test_digits_through_the_package(path, ran):
    model = digits.DigitsViT(hidden=64, heads=2, depth=2).eval().requires_grad_(False)
    fill_like_trained(model, seed=0)
    images = torch.randn(3, 8, 8)
    neuron_vit.reset_launches()
    with path():
        logits = digits.through_package(model, images, neuron_vit)
    assert neuron_vit.launches() == (digits.launches(model) if ran else {})
    torch.testing.assert_close(logits, model(images), rtol=1e-4, atol=1e-4)


def test_photo_is_a_normalised_picture():
    pixels = photo.load_photo(64)
    assert pixels.shape == (1, 3, 64, 64)
    assert -1.0 <= pixels.min() < -0.8 and 0.8 < pixels.max() <= 1.0
    assert pixels.std() > 0.3


@pytest.mark.parametrize("path", [cpu_path, emulated_nki])
def test_vit_through_the_package(path):
    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        image_size=32,
    )
    model = ViTModel(config, add_pooling_layer=False).eval().requires_grad_(False)
    fill_like_trained(model, seed=1)
    pixels = photo.load_photo(32)
    with path():
        hidden = photo.PackagedViT(model, neuron_vit)(pixels)
    expected = model(pixels).last_hidden_state
    torch.testing.assert_close(hidden, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("refused", [False, True])
def test_the_benchmark_says_whether_only_kernels_ran(refused, monkeypatch, capsys):
    monkeypatch.setattr(worker, "BENCHED", ("vit-ti16",))
    if refused:
        real = neuron_vit.capability.check
        refusal = neuron_vit.Support(False, "vit_block width=192 is odd", "use another")
        monkeypatch.setattr(
            "neuron_vit.capability.check",
            lambda kernel, *rest: refusal if kernel == "vit_block" else real(kernel, *rest),
        )
    figures = {}
    worker.bench(neuron_vit, figures)
    assert figures == {"bench": {"only_nki": not refused}}
    assert "modelled time on the chip" in capsys.readouterr().out
