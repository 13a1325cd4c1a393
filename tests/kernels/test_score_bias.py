"""Properties of masked and biased attention that the parity rule does not ask for."""

import nki
import nki.language as nl
import pytest
import torch

import nki_emulator
from neuron_vit.nki_src import attend, attention, limits
from neuron_vit.nki_src.score_bias import BiasUnits, bias_source
from neuron_vit.reference import attention as reference
from tests.parity.rule import ulp
from tests.parity.simulate import simulated

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
run = simulated(attention.attention)


@nki.jit
def all_images(q, k, v, scale, mask, kv_lens, block):
    """`attention` with the blocks of all images as units of one `attend`, as blocks have them."""
    batch, heads, q_len, dim = q.shape
    out = nl.ndarray((batch, q_len, heads, dim), dtype=q.dtype, buffer=nl.shared_hbm)
    selector = attend.shift_selector(heads, q.dtype)
    source = bias_source(mask, kv_lens, None, None, scale, q_len, k.shape[2], q.dtype)
    units = []
    for image in range(batch):
        queries = attention.load_heads(q, None, image, 0, heads, 1)
        keys = attention.load_heads(k, None, image, 0, heads, 1)
        values = attention.load_values(v, None, image, 0, heads, 1)
        for start in range(0, q_len, block):
            size = min(block, q_len - start)
            rows = nl.ndarray((128, -(-size // 128), heads, dim), dtype=q.dtype, buffer=nl.sbuf)
            units.append((rows, queries.tokens(start, start + size), keys, values))
    attention.attend(units, scale, selector, BiasUnits(source, 0, 0, heads, 0, q_len, block))
    blocks = -(-q_len // block)
    for index, unit in enumerate(units):
        start = index % blocks * block
        size = min(block, q_len - start)
        attention.store_heads(out, index // blocks, start, size, 0, unit[0])
    return out


@pytest.mark.parametrize("batch_of_mask", [1, 3])
@pytest.mark.parametrize("heads_of_mask", [1, 2])
@pytest.mark.parametrize("tokens", [150, 300])
def test_units_in_flight_have_each_its_own_bias(batch_of_mask, heads_of_mask, tokens):
    q, k, v, scale, *views = operands(torch.float32, tokens, batch=3)
    mask = torch.randn(batch_of_mask, heads_of_mask, tokens, tokens)
    expected = reference(q, k, v, scale, *views, mask)
    found = simulated(all_images)(q, k, v, scale, mask, None, 256)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    lens = torch.tensor([tokens, 0, 140], dtype=torch.int32)
    expected = reference(q, k, v, scale, *views, None, lens)
    found = simulated(all_images)(q, k, v, scale, None, lens, 256)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def operands(dtype, tokens=40, dim=32, heads=2, batch=1):
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, heads, tokens, dim).to(dtype) for _ in range(3))
    return q, k, v, dim**-0.5, None, None, None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["mask", "infinite", "smallest", "lengths", "segments"])
@pytest.mark.parametrize("scale", [1.0, 400.0, -1.0])
def test_a_query_without_a_key_gets_exact_zeros(dtype, kind, scale):
    """Also where its scores reach 1e4, in either direction."""
    q, k, v, factor, *views = operands(dtype)
    seen = torch.ones(1, 1, 40, 40, dtype=torch.bool).tril()
    seen[:, :, 7] = False
    seen[:, :, 39] = False
    mask, lens, bounds = None, None, (None, None)
    if kind == "mask":
        mask = seen.to(torch.uint8)
    elif kind == "lengths":
        lens = torch.zeros(1, dtype=torch.int32)
        seen = torch.zeros_like(seen)
    elif kind == "segments":
        bounds = [torch.tensor(bound, dtype=torch.int32) for bound in ([0, 9, 40], [0, 40, 40])]
        seen = (torch.arange(40) < 9).reshape(1, 1, 40, 1).expand(seen.shape)
    else:
        least = float("-inf") if kind == "infinite" else torch.finfo(dtype).min
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, least)
    out = run(q, k, v, scale * factor, *views, mask, lens, *bounds)
    blind = ~seen.any(-1)[0, 0]
    assert torch.isfinite(out).all()
    assert (out[0, blind] == 0).all() and (out[0, ~blind] != 0).any(-1).all()
    again = reference(q, k, v, scale * factor, *views, mask, lens, *bounds)
    assert (again[0, blind] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [32, 64, 72])
def test_a_bias_keeps_more_than_the_precision_of_the_operands(dtype, dim):
    """1 / scale is not a value of bfloat16 or float16; its rounding would show in weights of biases
    of 30 as 6 or 1 per cent."""
    q, k, v, scale, *views = operands(dtype, dim=dim)
    bias = torch.randint(-240, 241, (1, 2, 40, 40)).to(dtype) / 8
    out = run(0 * q, k, v, scale, *views, bias)
    exact = (bias.double().softmax(-1) @ v.double()).transpose(1, 2)
    steps = 4 if dtype != torch.float32 else 64
    assert (out.double() - exact).abs().max() <= steps * ulp(dtype, exact.abs().max().item())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bias_of_zeros_changes_nothing(dtype):
    arguments = operands(dtype, tokens=150)
    zeros = torch.zeros(1, 1, 150, 150, dtype=dtype)
    ones = torch.ones(1, 1, 1, 150, dtype=torch.uint8)
    expected = run(*arguments)
    for mask in (zeros, ones):
        assert torch.equal(run(*arguments, mask), expected)


def test_lengths_and_segments_are_read_when_the_kernel_runs():
    """Other values are other data for the same instructions."""

    def opcodes(*mask):
        _, session = nki_emulator.record(attention.attention)(*operands(torch.bfloat16), *mask)
        return [record.op for record in session.trace]

    lens = [torch.tensor([length], dtype=torch.int32) for length in (3, 40)]
    bounds = [torch.tensor([0, at, 40], dtype=torch.int32) for at in (3, 40)]
    assert opcodes(None, lens[0]) == opcodes(None, lens[1])
    assert opcodes(None, None, bounds[0], bounds[0]) == opcodes(None, None, bounds[1], bounds[1])


def test_bias_of_all_images_is_loaded_once():
    shape = (1, 2, 40, 40)
    sizes = []
    for batch in (1, 4):
        arguments = operands(torch.bfloat16, batch=batch)
        _, session = nki_emulator.record(attention.attention)(*arguments, torch.zeros(shape))
        _, plain = nki_emulator.record(attention.attention)(*arguments)
        copies = [[r.op for r in s.trace].count("dma_copy") for s in (session, plain)]
        sizes.append(copies[0] - copies[1])
    assert sizes == [1, 1]


def test_what_does_not_go_together_is_refused():
    arguments = operands(torch.float32)
    mask = torch.ones(1, 1, 1, 40, dtype=torch.uint8)
    lens = torch.ones(1, dtype=torch.int32)
    with pytest.raises(AssertionError, match="more than one kind of mask"):
        nki.simulate(attention.attention)(*arguments, mask, lens)
    with pytest.raises(AssertionError, match="scale=0.0 with a mask"):
        nki.simulate(attention.attention)(*arguments[:3], 0.0, *arguments[4:], mask)


@pytest.mark.parametrize("dtype", limits.DTYPE_BYTES)
def test_the_package_asks_for_the_room_of_a_bias(dtype):
    sizes = dict(batch=1, heads=12, q_len=4096, k_len=4096, head_dim=128)
    plain = limits.attention(**sizes, dtype_name=dtype, target="trn2")
    biased = limits.attention(**sizes, dtype_name=dtype, target="trn2", bias_heads=12)
    assert plain[0]
    item = limits.DTYPE_BYTES[dtype]
    available = limits.USABLE * limits.SBUF_BYTES["trn2"]
    assert biased[0] == (limits.attention_heads(12, 4096, 4096, 128, item, available, 12) > 0)
