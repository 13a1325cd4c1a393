"""Images that share tiles of attention in the block kernels: as if each had tiles of its own."""

import sys

import pytest
import torch

import nki_emulator
from neuron_vit.nki_src import encoder, limits, vit_block, vit_encoder
from tests.parity import inputs

HEADS, HIDDEN = 5, 200

OPTIONS = {
    "plain": {},
    "bias of all": dict(mask="bias", axes="1HQ"),
    "bias of each": dict(mask="shift", axes="BHQ"),
    "float32 bias": dict(mask="bias32", axes="BHQ"),
    "one bias for all heads": dict(mask="infinite", axes="B1Q"),
    "mask": dict(mask="bool", axes="BHQ"),
    "mask of keys": dict(mask="bool", axes="B11"),
    "lengths": dict(lens=(17, 0, 1, 9, 16, 17, 3)),
    "rotated columns": dict(rope="half", prefix=1, mask="bias", axes="BHQ"),
    "rotated": dict(rope="half", tables="own", qk_norm="layer", prefix=1),
    "norm of all heads": dict(qk_norm="rms", full=True, norm="rms", mask="bias", axes="1HQ"),
}


def build(kernel, dtype, tokens, batch, dim=32, **settings):
    if "lens" in settings:
        settings["lens"] = settings["lens"][:batch]
    draw = inputs.Draw(dtype, seed=0)
    return inputs.BUILDERS[kernel](
        draw, tokens=tokens, width=HEADS * dim, heads=HEADS, head_dim=dim, hidden=HIDDEN,
        batch=batch, **settings,
    )  # fmt: skip


def apart(monkeypatch):
    """From here on each image has tiles of its own."""
    for name, module in list(sys.modules.items()):
        if name.startswith("neuron_vit.nki_src.") and hasattr(module, "windows_per_tile"):
            monkeypatch.setattr(module, "windows_per_tile", lambda length: 1)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "dtype, dim, tokens, batch",
    [(torch.float32, 32, 49, 5), (torch.bfloat16, 32, 64, 2), (torch.float16, 64, 33, 7),
     (torch.bfloat16, 64, 32, 7), (torch.bfloat16, 72, 49, 3), (torch.float32, 32, 17, 6),
     (torch.float16, 40, 1, 5)],
)  # fmt: skip
def test_images_that_share_tiles_are_as_alone(name, dtype, dim, tokens, batch, monkeypatch):
    if OPTIONS[name].get("prefix") and tokens == 1:
        pytest.skip("one token and no position")
    arguments = build("vit_block", dtype, tokens, batch, dim, **OPTIONS[name])
    together = vit_block.vit_block(*arguments)
    apart(monkeypatch)
    assert torch.equal(together, vit_block.vit_block(*arguments))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("programs", [1, 2])
@pytest.mark.parametrize("most", [1, 10**9])
@pytest.mark.parametrize(
    "plan", [(3, 5, 256, True, 2), (2, 5, 128, True, 1), (2, 4, 128, False, 0)]
)
def test_an_encoder_of_images_that_share_tiles(name, programs, most, plan, monkeypatch):
    """Whatever the groups, unrolled and as loops on the device, in one program and in two."""
    arguments = build("vit_encoder", torch.bfloat16, 49, 7, layers=2, **OPTIONS[name])
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
    together = vit_encoder.vit_encoder[programs](*arguments)
    apart(monkeypatch)
    assert torch.equal(together, vit_encoder.vit_encoder(*arguments))


@pytest.mark.parametrize("tokens, batch", [(49, 5), (17, 7), (64, 4)])
@pytest.mark.parametrize("axes", [None, "BHQ"])
@pytest.mark.filterwarnings("ignore:.*activation-range")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e4])
def test_what_is_not_finite_stays_in_its_image(tokens, batch, axes, value):
    """In every image of a tile, in x and in a bias of its own."""
    special = {} if axes is None else dict(mask="bias", axes=axes)
    x, *arguments = build("vit_block", torch.bfloat16, tokens, batch, **special)
    clean = vit_block.vit_block(x, *arguments)
    at = next((i for i, a in enumerate(arguments) if getattr(a, "ndim", 0) == 4), None)
    for image in range(batch):
        others = [other for other in range(batch) if other != image]
        bad = x.clone()
        bad[image, tokens // 2, 3] = value
        found = vit_block.vit_block(bad, *arguments)
        assert torch.equal(found[others], clean[others])
        if axes is not None:
            changed = list(arguments)
            changed[at] = arguments[at].clone()
            changed[at][image, 1, tokens // 2] = value
            found = vit_block.vit_block(x, *changed)
            assert torch.equal(found[others], clean[others])


@pytest.mark.parametrize("axes", [None, "1HQ", "B1Q", "BHQ"])
@pytest.mark.parametrize("share", [1.0, 1.5, 2.5, 100.0])
@pytest.mark.parametrize("tokens, batch, dim", [(49, 7, 32), (32, 9, 64), (5, 40, 32), (64, 2, 72)])
def test_the_budget_holds_where_images_share_tiles(tokens, batch, dim, share, axes, monkeypatch):
    special = {} if axes is None else dict(mask="bias32", axes=axes)
    arguments = build("vit_block", torch.bfloat16, tokens, batch, dim, **special)
    queries = limits.queries_kind(0, 0, dim)
    heads = 0 if axes is None else (HEADS if "H" in axes else 1)
    shape = (tokens, HEADS * dim, HEADS, dim, HIDDEN, 2, False, False, queries, heads)
    packed = limits.heads_per_chunk(dim)
    least = limits.block_bytes(0, 1, min(HEADS, packed), min(tokens, 128), False, shape)
    available = min(share * least, limits.USABLE * limits.SBUF_BYTES["trn2"])
    plan = limits.vit_block_plan(batch, shape, available)
    monkeypatch.setattr(encoder, "available_bytes", lambda: available)
    _, session = nki_emulator.record(vit_block.vit_block)(*arguments)
    images, heads_pass, size, flight, beside = plan
    assert images > 0
    budget = limits.block_bytes(beside, images, heads_pass, size, flight, shape)
    assert session.sbuf.peak <= budget <= available
    chunk = min(batch, images + beside)
    bound = limits.block_instructions(chunk, plan, shape) * -(-batch // chunk)
    assert session.instructions <= bound
