"""Every plan of `vit_block` computes the same block: what fits decides how, not what."""

import pytest
import torch

import nki_emulator
from neuron_vit.nki_src import limits, vit_block
from tests.parity import inputs

HEADS, DIM, HIDDEN = 4, 32, 200
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
    monkeypatch.setattr(vit_block, "vit_block_plan", lambda *sizes: plan)
    result, session = nki_emulator.record(vit_block.vit_block)(
        *inputs, HEADS, 1e-6, "layer", "gelu", DIM**-0.5
    )
    return result, session.sbuf.peak


@pytest.mark.parametrize("batch, length", [(3, 150), (1, 600)])
@pytest.mark.parametrize("flight", [True, False])
@pytest.mark.parametrize("images, heads_pass, block", [(2, 4, 384), (2, 3, 128), (1, 1, 256)])
def test_plans_agree(batch, length, flight, images, heads_pass, block, monkeypatch):
    inputs = arguments(batch, length)
    images = min(images, batch)
    whole = (batch, HEADS, batch * length + 127, True)
    expected, _ = run(whole, inputs, monkeypatch)
    plan = (images, heads_pass, block, flight)
    result, peak = run(plan, inputs, monkeypatch)
    assert torch.equal(result, expected)
    assert peak <= limits.block_bytes(*plan, length, WIDTH, HEADS, DIM, HIDDEN, 4)


@pytest.mark.parametrize("batch, length", [(3, 150), (1, 600)])
@pytest.mark.parametrize("flight", [True, False])
@pytest.mark.parametrize("images, heads_pass, block", [(2, 4, 384), (2, 3, 128), (1, 1, 256)])
@pytest.mark.parametrize("full", [True, False])
def test_plans_of_rotated_heads_agree(
    batch, length, flight, images, heads_pass, block, full, monkeypatch
):
    """Also with tables of each image, which must be found whatever the group."""
    draw = inputs.Draw(torch.float32, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=length, width=WIDTH, heads=HEADS, head_dim=DIM, hidden=HIDDEN, batch=batch,
        qk_norm="rms", full=full, rope="half", tables="own", gate=True, inner_norm="layer",
    )  # fmt: skip
    results = []
    for plan in (
        (batch, HEADS, batch * length + 127, True),
        (min(images, batch), heads_pass, block, flight),
    ):
        monkeypatch.setattr(vit_block, "vit_block_plan", lambda *sizes, plan=plan: plan)
        result, session = nki_emulator.record(vit_block.vit_block)(*arguments)
        results.append(result)
    assert torch.equal(*results)
    traits = (True, True, 2 if full else 1, 0)
    budget = limits.block_bytes(*plan, length, WIDTH, HEADS, DIM, HIDDEN, 4, traits)
    assert session.sbuf.peak <= budget
