"""Every plan of `vit_block` computes the same block: what fits decides how, not what."""

import pytest
import torch

import nki_emulator
from neuron_vit.nki_src import encoder, limits, vit_block, vit_encoder
from tests.parity import inputs

HEADS, DIM, HIDDEN = 4, 64, 200
WIDTH = HEADS * DIM


def arguments(batch, length):
    torch.manual_seed(0)
    shapes = [
        (batch, length, WIDTH), (WIDTH,), (WIDTH,), (WIDTH, 3 * WIDTH), (3 * WIDTH,),
        (WIDTH, WIDTH), (WIDTH,), (WIDTH,), (WIDTH,), (WIDTH,), (WIDTH, HIDDEN), (HIDDEN,),
        (HIDDEN, WIDTH), (WIDTH,), (WIDTH,),
    ]  # fmt: skip
    return [0.2 * torch.randn(*shape) for shape in shapes]


def run(plan, inputs, monkeypatch):
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    result, session = nki_emulator.record(vit_block.vit_block)(
        *inputs, HEADS, 1e-6, "layer", "gelu", DIM**-0.5
    )
    return result, session.sbuf.peak


def plans(batch):
    """One group at a time with and without tiles in flight, and pairs of groups."""
    found = []
    for flight in (True, False):
        for images, heads_pass, block in ((2, 4, 384), (2, 2, 128), (1, 2, 256)):
            found.append((min(images, batch), heads_pass, block, flight, 0))
    if batch > 1:
        found += [(1, 4, 640, True, 1), (2, 4, 384, True, 1), (2, 2, 128, True, 1)]
    return found


def sizes(length, gated=False, inner_norm=False, rows=0):
    return (length, WIDTH, HEADS, DIM, HIDDEN, 4, gated, inner_norm, rows, 0)


CASES = [(batch, length, plan) for batch, length in ((3, 150), (1, 600)) for plan in plans(batch)]


@pytest.mark.parametrize("batch, length, plan", CASES)
def test_plans_agree(batch, length, plan, monkeypatch):
    inputs = arguments(batch, length)
    whole = (batch, HEADS, batch * length + 127, True, 0)
    expected, _ = run(whole, inputs, monkeypatch)
    result, peak = run(plan, inputs, monkeypatch)
    assert torch.equal(result, expected)
    images, heads_pass, block, flight, beside = plan
    assert peak <= limits.block_bytes(beside, images, heads_pass, block, flight, sizes(length))


@pytest.mark.parametrize("batch, length, plan", CASES)
@pytest.mark.parametrize("full", [True, False])
def test_plans_of_rotated_heads_agree(batch, length, plan, full, monkeypatch):
    """Also with tables of each image, which must be found whatever the group."""
    draw = inputs.Draw(torch.float32, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=length, width=WIDTH, heads=HEADS, head_dim=DIM, hidden=HIDDEN, batch=batch,
        qk_norm="rms", full=full, rope="half", tables="own", gate=True, inner_norm="layer",
    )  # fmt: skip
    results = []
    for chosen in ((batch, HEADS, batch * length + 127, True, 0), plan):
        monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes, chosen=chosen: chosen)
        result, session = nki_emulator.record(vit_block.vit_block)(*arguments)
        results.append(result)
    assert torch.equal(*results)
    images, heads_pass, block, flight, beside = plan
    budget = limits.block_bytes(
        beside, images, heads_pass, block, flight, sizes(length, True, True, 2 if full else 1)
    )
    assert session.sbuf.peak <= budget


def stack(layers, batch, length):
    """x and the stacked weights of some blocks."""
    x, *first = arguments(batch, length)
    torch.manual_seed(1)
    return x, [torch.stack([weight] + [0.2 * torch.randn_like(weight) for _ in range(layers - 1)])
               for weight in first]  # fmt: skip


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "batch, plan, most",
    [
        (1, (1, 4, 256, True, 0), 1), (2, (1, 4, 256, True, 1), 1), (5, (2, 4, 384, True, 1), 1),
        (7, (2, 4, 384, True, 1), 1), (7, (2, 4, 384, True, 1), 4000),
        (3, (1, 2, 128, False, 0), 1),
        (3, (2, 4, 384, True, 1), 10**9), (4, (1, 4, 256, True, 1), 10**9),
        (3, (1, 2, 128, False, 0), 10**9),
    ],
)  # fmt: skip
def test_an_encoder_is_its_blocks_to_the_bit(layers, batch, plan, most, monkeypatch):
    """Unrolled or with layers and images as loops on the device, on the chip or through HBM."""
    x, weights = stack(layers, batch, 150)
    scalars = (HEADS, 1e-6, "layer", "gelu", DIM**-0.5)
    expected = x
    for layer in range(layers):
        expected = vit_block.vit_block(expected, *[weight[layer] for weight in weights], *scalars)
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
    assert torch.equal(vit_encoder.vit_encoder(x, *weights, *scalars), expected)


def test_masks_and_tables_of_images_in_loops_on_the_device(monkeypatch):
    draw = inputs.Draw(torch.float32, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=50, width=WIDTH, heads=HEADS, head_dim=DIM, hidden=HIDDEN, batch=7,
        rope="half", tables="own", mask="bias", axes="BHQ",
    )  # fmt: skip
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: (2, 4, 128, True, 1))
    results = []
    for most in (10**9, 1):
        monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
        results.append(vit_block.vit_block(*arguments))
    assert torch.equal(*results)


@pytest.mark.parametrize("batch, length", [(1, 197), (4, 197), (9, 50), (2, 600)])
@pytest.mark.parametrize("special", [{}, dict(qk_norm="rms", rope="half"),
                                     dict(gate=True, inner_norm="layer"),
                                     dict(mask="bias", axes="1HQ")])  # fmt: skip
def test_the_bound_on_instructions_holds(batch, length, special):
    draw = inputs.Draw(torch.bfloat16, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=length, width=256, heads=4, head_dim=64, hidden=1024, batch=batch, **special
    )
    _, session = nki_emulator.record(vit_block.vit_block)(*arguments)
    shape = (
        length, 256, 4, 64, 1024, 2, "gate" in special, "inner_norm" in special,
        1 if "rope" in special else 0, 4 if "mask" in special else 0,
    )  # fmt: skip
    plan = limits.vit_block_plan(batch, shape, limits.USABLE * limits.SBUF_BYTES["trn2"])
    size = min(batch, plan[0] + plan[4])
    bound = limits.block_instructions(size, plan, shape) * -(-batch // size)
    assert session.instructions <= bound
