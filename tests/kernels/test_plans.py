"""Every plan of `vit_block` computes the same block: what fits decides how, not what."""

import inspect

import pytest
import torch

import nki_emulator
from neuron_vit import reference
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


def stack(layers, batch, length, dtype):
    """x and the stacked weights of some blocks."""
    x, *first = arguments(batch, length)
    torch.manual_seed(1)
    stacks = [
        torch.stack([weight] + [0.2 * torch.randn_like(weight) for _ in range(layers - 1)])
        for weight in first
    ]
    return x.to(dtype), [weight.to(dtype) for weight in stacks]


@pytest.mark.parametrize(
    "dtype, layers",
    [(torch.float32, 1), (torch.float32, 2), (torch.float32, 3), (torch.float32, 5),
     (torch.bfloat16, 3)],
)  # fmt: skip
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
def test_an_encoder_is_its_blocks_to_the_bit(dtype, layers, batch, plan, most, monkeypatch):
    """Unrolled or with layers and images as loops on the device, on the chip or through HBM."""
    x, weights = stack(layers, batch, 150, dtype)
    scalars = (HEADS, 1e-6, "layer", "gelu", DIM**-0.5)
    expected = x
    for layer in range(layers):
        expected = vit_block.vit_block(expected, *[weight[layer] for weight in weights], *scalars)
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
    assert torch.equal(vit_encoder.vit_encoder(x, *weights, *scalars), expected)


@pytest.mark.parametrize("programs", [1, 2])
@pytest.mark.parametrize("batch, left", [(2, False), (3, True), (5, True)])
@pytest.mark.parametrize("layers, each", [(5, 2), (6, 2), (9, 3), (9, 4), (11, 4)])
def test_iterations_of_several_layers(layers, each, batch, left, programs, monkeypatch):
    """As the loops of a real encoder are: here `each` layers an iteration, and some behind it."""
    x, weights = stack(layers, programs * batch, 40, torch.bfloat16)
    scalars = (HEADS, 1e-6, "layer", "gelu", DIM**-0.5)
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: (1, 4, 128, True, 1))
    expected = vit_encoder.vit_encoder(x, *weights, *scalars)
    found = []
    chunk = encoder.Launch.chunk

    def noting(launch, index):
        found.append(launch.per_iteration)
        chunk(launch, index)

    monkeypatch.setattr(encoder.Launch, "chunk", noting)
    monkeypatch.setattr(encoder, "block_instructions", lambda *sizes: 1)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", 2 * (1 + left) * each)
    result = vit_encoder.vit_encoder[programs](x, *weights, *scalars)
    assert torch.equal(result, expected) and set(found) == {each}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("most", [1, 10**9])
@pytest.mark.parametrize("plan", [(2, 4, 384, True, 1), (1, 2, 128, False, 0)])
def test_two_programs_of_an_encoder_are_its_blocks(dtype, batch, most, plan, monkeypatch):
    """One of the programs may have fewer images, or none."""
    x, weights = stack(3, batch, 150, dtype)
    scalars = (HEADS, 1e-6, "layer", "gelu", DIM**-0.5)
    expected = x
    for layer in range(3):
        expected = vit_block.vit_block(expected, *[weight[layer] for weight in weights], *scalars)
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
    assert torch.equal(vit_encoder.vit_encoder[2](x, *weights, *scalars), expected)


def layer_arguments(arguments, layer):
    """Those of `vit_block` for one layer from those of `vit_encoder`."""
    names = list(inspect.signature(reference.vit_block).parameters)
    shared = {"x", "cos", "sin", "mask", "kv_lens", "cu_seqlens"}
    return [
        value[layer] if isinstance(value, torch.Tensor) and name not in shared else value
        for name, value in zip(names, arguments)
    ]


OPTIONS = {
    "gate": dict(gate=True, layer_scale=True),
    "inner norm": dict(gate=True, inner_norm="layer", bias=False),
    "rotated": dict(rope="half", tables="own", qk_norm="layer", prefix=1),
    "rotated columns": dict(rope="interleaved", prefix=1, layer_scale=True),
    "norm of all heads": dict(qk_norm="rms", full=True, norm="rms"),
    "mask": dict(mask="bias", axes="BHQ"),
    "lengths": dict(lens=(50, 1, 17, 3, 50), inner_norm="rms"),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "most, plan",
    [(1, (2, 4, 128, True, 1)), (10**9, (2, 4, 128, True, 1)), (1, (1, 2, 128, False, 0)),
     (10**9, (3, 4, 128, False, 0))],
)  # fmt: skip
def test_an_encoder_with_options_is_its_blocks(name, dtype, most, plan, monkeypatch):
    draw = inputs.Draw(dtype, seed=0)
    x, *arguments = inputs.vit_encoder(
        draw, layers=3, tokens=50, width=WIDTH, heads=HEADS, head_dim=DIM, hidden=HIDDEN, batch=5,
        **OPTIONS[name],
    )  # fmt: skip
    expected = x
    for layer in range(3):
        expected = vit_block.vit_block(*layer_arguments((expected, *arguments), layer))
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
    assert torch.equal(vit_encoder.vit_encoder(x, *arguments), expected)


SHARED = {
    **{name: OPTIONS[name] for name in OPTIONS if name != "lengths"},
    "lengths": dict(lens=(131,), inner_norm="rms"),
    "segments": dict(segments=(0, 1, 140, 150)),
    "mask of heads": dict(mask="bool", axes="1HQ"),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("most", [1, 10**9])
@pytest.mark.parametrize("plan", [None, (1, 2, 128, False, 0)])
def test_two_programs_share_the_tokens_of_an_image(name, most, plan, monkeypatch):
    """To the bit, whatever the layers do, on the chip or through HBM; no race is reported."""
    shared_image(name, 150, torch.float32, most, plan, monkeypatch)


@pytest.mark.parametrize("tokens", [1, 128, 129, 300, 1300])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("most", [1, 10**9])
def test_two_programs_share_images_of_any_size(tokens, dtype, most, monkeypatch):
    """An image of one tile is left to one of them; the largest has several blocks of queries."""
    shared_image("mask" if tokens < 1000 else "gate", tokens, dtype, most, None, monkeypatch)


def shared_image(name, tokens, dtype, most, plan, monkeypatch):
    """An encoder of three layers for one image gives the same by one program and by two."""
    draw = inputs.Draw(dtype, seed=0)
    arguments = inputs.vit_encoder(
        draw, layers=3, tokens=tokens, width=WIDTH, heads=HEADS, head_dim=DIM, hidden=HIDDEN,
        **SHARED[name],
    )  # fmt: skip
    if plan is not None:
        monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
    one = vit_encoder.vit_encoder(*arguments)
    assert torch.equal(vit_encoder.vit_encoder[2](*arguments), one)


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


TRAITS = {
    "plain": {},
    "rotated": dict(qk_norm="rms", rope="half"),
    "rotated columns": dict(rope="half", layer_scale=True),
    "norm of all heads": dict(qk_norm="rms", full=True),
    "gate": dict(gate=True),
    "inner norm": dict(gate=True, inner_norm="layer"),
    "mask": dict(mask="bias", axes="1HQ"),
}


def traits(special):
    """The end of the sizes of a block (limits.py) with some settings of its inputs."""
    norm = 0
    if "qk_norm" in special:
        norm = 2 if "full" in special else 1
    queries = limits.queries_kind(norm, 1 if "rope" in special else 0, DIM)
    heads = HEADS if "mask" in special else 0
    return "gate" in special, "inner_norm" in special, queries, heads


@pytest.mark.parametrize("batch, length", [(1, 197), (4, 197), (9, 50), (2, 600), (40, 4)])
@pytest.mark.parametrize("special", TRAITS)
def test_the_bound_on_instructions_holds(batch, length, special):
    special = TRAITS[special]
    draw = inputs.Draw(torch.bfloat16, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=length, width=256, heads=HEADS, head_dim=64, hidden=1024, batch=batch,
        **special,
    )  # fmt: skip
    _, session = nki_emulator.record(vit_block.vit_block)(*arguments)
    shape = (length, 256, HEADS, 64, 1024, 2, *traits(special))
    plan = limits.vit_block_plan(batch, shape, limits.USABLE * limits.SBUF_BYTES["trn2"])
    size = min(batch, plan[0] + plan[4])
    bound = limits.block_instructions(size, plan, shape) * -(-batch // size)
    assert session.instructions <= bound


def test_the_bound_on_instructions_holds_for_narrow_slabs():
    """A deep matrix is read in slabs narrower than a bank, and makes more, shorter products."""
    width, hidden = 1024, 8192
    draw = inputs.Draw(torch.float32, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=197, width=width, heads=HEADS, head_dim=DIM, hidden=hidden
    )
    _, session = nki_emulator.record(vit_block.vit_block)(*arguments)
    shape = (197, width, HEADS, DIM, hidden, 4, *traits({}))
    plan = limits.vit_block_plan(1, shape, limits.USABLE * limits.SBUF_BYTES["trn2"])
    assert session.instructions <= limits.block_instructions(1, plan, shape)


def test_the_bound_on_instructions_holds_for_long_tables():
    """Of one narrow head, whose rotation is most of the work beside attention."""
    draw = inputs.Draw(torch.float32, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=4096, width=64, heads=1, head_dim=32, hidden=128, rope="half", prefix=1
    )
    _, session = nki_emulator.record(vit_block.vit_block)(*arguments)
    shape = (4096, 64, 1, 32, 128, 4, *traits({"rope": "half"}))
    plan = limits.vit_block_plan(1, shape, limits.USABLE * limits.SBUF_BYTES["trn2"])
    assert session.instructions <= limits.block_instructions(1, plan, shape)


@pytest.mark.parametrize("share", [1.0, 1.5, 2.5])
@pytest.mark.parametrize("layers, most", [(1, 10**9), (2, 10**9), (3, 1), (3, 6000)])
@pytest.mark.parametrize("special", TRAITS)
def test_an_encoder_on_a_smaller_chip(share, layers, most, special, monkeypatch):
    """`share`: of the least that the blocks need. Whatever the plan, their peak stays below it, and
    loops on the device below what they may unroll."""
    special = TRAITS[special]
    batch, length = 3, 150
    draw = inputs.Draw(torch.bfloat16, seed=0)
    settings = dict(tokens=length, width=WIDTH, heads=HEADS, head_dim=DIM, hidden=768, batch=batch)
    arguments = inputs.vit_encoder(draw, layers=layers, **settings, **special)
    shape = (length, WIDTH, HEADS, DIM, 768, 2, *traits(special))
    available = share * limits.block_bytes(0, 1, 2, limits.PARTITIONS, False, shape)
    plan = limits.vit_block_plan(batch, shape, available)
    monkeypatch.setattr(encoder, "available_bytes", lambda: available)
    monkeypatch.setattr(encoder, "INSTRUCTIONS_MAX", most)
    _, session = nki_emulator.record(vit_encoder.vit_encoder)(*arguments)
    images, heads_pass, block, flight, beside = plan
    budget = limits.block_bytes(beside, images, heads_pass, block, flight, shape)
    assert session.sbuf.peak <= budget <= available
    least = 4 * limits.block_instructions(images + beside, plan, shape)
    assert session.static_instructions <= max(most, least)


def test_norm_columns_are_gone_before_the_rows_of_attention_come(monkeypatch):
    """Many images whose queries and keys are larger than the weights that made them."""
    plan = (6, 3, 384, False, 0)
    draw = inputs.Draw(torch.bfloat16, seed=0)
    arguments = inputs.vit_block(
        draw, tokens=150, width=200, heads=3, head_dim=72, hidden=200, batch=6
    )
    monkeypatch.setattr(encoder, "vit_block_plan", lambda *sizes: plan)
    _, session = nki_emulator.record(vit_block.vit_block)(*arguments)
    shape = (150, 200, 3, 72, 200, 2, False, False, 3, 0)
    assert session.sbuf.peak <= limits.block_bytes(0, *plan[:4], shape)
