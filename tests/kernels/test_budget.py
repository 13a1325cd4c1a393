"""The budgets of nki_src/limits.py bound what a kernel really allocates under the emulator.

A budget that is too small would let a launch fail on the chip; one that is far too large would
refuse what fits. Both directions are checked.
"""

import pytest
import torch

import nki_emulator
from neuron_vit.nki_src import attention, limits, linear, mlp, norm, vit_block
from tests.parity import inputs

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}

# A budget covers the worst phase of the worst group, so small cases use less of it.
LOOSEST = 0.6


def tensors(dtype, *shapes):
    return [torch.randn(*shape).to(DTYPES[dtype]) if shape else None for shape in shapes]


def sbuf_peak(kernel, *arguments):
    _, session = nki_emulator.record(kernel)(*arguments)
    return session.sbuf.peak


def assert_bounds(peak, budget):
    assert peak <= budget
    assert peak >= LOOSEST * budget


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [768, 4096, 12288])
def test_layer_norm(dtype, width):
    x, weight, bias, residual = tensors(dtype, (130, width), (width,), (width,), (130, width))
    peak = sbuf_peak(norm.layer_norm, x, weight, bias, residual, 1e-6)
    assert_bounds(peak, limits.norm_bytes(width, limits.DTYPE_BYTES[dtype]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1152, 5120])
def test_ada_layer_norm(dtype, width):
    rows, vector, image = (2, 65, width), (width,), (2, width)
    arguments = tensors(dtype, rows, image, image, vector, vector, rows, image)
    peak = sbuf_peak(norm.ada_layer_norm, *arguments, 1e-6)
    assert_bounds(peak, limits.ada_norm_bytes(width, limits.DTYPE_BYTES[dtype]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["in_out", "out_in"])
def test_linear(dtype, layout):
    shape = (768, 1536) if layout == "in_out" else (1536, 768)
    x, weight, bias = tensors(dtype, (600, 768), shape, (1536,))
    peak = sbuf_peak(linear.linear, x, weight, bias, layout)
    item = limits.DTYPE_BYTES[dtype]
    assert_bounds(peak, limits.linear_bytes(600, 768, 1536, item, layout == "out_in"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["in_out", "out_in"])
def test_mlp(dtype, layout):
    width, hidden = 768, 3072
    fc1, fc2 = (width, hidden), (hidden, width)
    if layout == "out_in":
        fc1, fc2 = fc2, fc1
    x, w1, b1, w2, b2 = tensors(dtype, (256, width), fc1, (hidden,), fc2, (width,))
    peak = sbuf_peak(mlp.mlp, x, w1, b1, w2, b2, "gelu", layout)
    item = limits.DTYPE_BYTES[dtype]
    assert_bounds(peak, limits.mlp_bytes(256, width, hidden, width, item, layout == "out_in"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["in_out", "out_in"])
@pytest.mark.parametrize("inner_norm", [True, False])
@pytest.mark.parametrize("width, hidden", [(768, 2048), (1024, 2730), (1280, 3420)])
def test_swiglu_mlp(dtype, layout, inner_norm, width, hidden):
    fc1, fc2 = (width, hidden), (hidden, width)
    if layout == "out_in":
        fc1, fc2 = fc2, fc1
    x, wg, bg, wu, bu, wd, bd = tensors(
        dtype, (512, width), fc1, (hidden,), fc1, (hidden,), fc2, (width,)
    )
    norm_weight, norm_bias = tensors(dtype, (hidden,), (hidden,))
    inner = (norm_weight, norm_bias, 1e-6, "layer") if inner_norm else ()
    peak = sbuf_peak(mlp.swiglu_mlp, x, wg, bg, wu, bu, wd, bd, "silu", layout, *inner)
    sizes = (width, hidden, width, limits.DTYPE_BYTES[dtype], layout == "out_in", True, inner_norm)
    available = limits.USABLE * limits.SBUF_BYTES["trn2"]
    block, flight = limits.mlp_plan(512, *sizes, available)
    assert block > 0
    assert_bounds(peak, limits.mlp_bytes(block, *sizes, flight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "batch, heads, length, head_dim", [(1, 12, 197, 64), (2, 2, 1025, 80), (1, 24, 50, 32)]
)
def test_attention(dtype, batch, heads, length, head_dim):
    q, k, v = tensors(dtype, *[(batch, heads, length, head_dim)] * 3)
    peak = sbuf_peak(attention.attention, q, k, v, 0.1, None, None, None)
    item = limits.DTYPE_BYTES[dtype]
    available = limits.USABLE * limits.SBUF_BYTES["trn2"]
    count = limits.attention_heads(heads, length, length, head_dim, item, available)
    assert_bounds(peak, limits.attention_bytes(count, length, length, head_dim, item))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "batch, heads, length, mask, kind",
    [
        (2, 12, 197, (1, 12, 197, 197), "bias"),
        (2, 12, 197, (1, 12, 197, 197), "bias32"),
        (2, 12, 197, (2, 1, 1, 197), "bool"),
        (1, 12, 1025, (1, 12, 1025, 1025), "bias"),
        (1, 12, 1025, (1, 12, 1025, 1025), "bool"),
        (1, 1, 4096, (1, 1, 4096, 4096), "bias32"),
        (1, 1, 4096, (1, 1, 4096, 4096), "bool"),
        (2, 2, 577, None, "lengths"),
        (1, 2, 1024, None, "segments"),
        (1, 1, 4096, None, "segments"),
    ],
)
def test_biased_attention(dtype, batch, heads, length, mask, kind):
    q, k, v = tensors(dtype, *[(batch, heads, length, 64)] * 3)
    bias_heads, lens, bounds = 1, None, None
    if kind == "lengths":
        lens = torch.full((batch,), 5, dtype=torch.int32)
    elif kind == "segments":
        bounds = torch.arange(0, length + 1, 8, dtype=torch.int32)
    else:
        bias_heads = mask[1]
        types = {"bool": torch.uint8, "bias": DTYPES[dtype], "bias32": torch.float32}
        mask = torch.ones(mask, dtype=types[kind])
    arguments = (q, k, v, 0.125, None, None, None, mask, lens, bounds, bounds)
    peak = sbuf_peak(attention.attention, *arguments)
    item = limits.DTYPE_BYTES[dtype]
    available = limits.USABLE * limits.SBUF_BYTES["trn2"]
    count = limits.attention_heads(heads, length, length, 64, item, available, bias_heads)
    biased = min(count, bias_heads)
    assert_bounds(peak, limits.attention_bytes(count, length, length, 64, item, biased))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "batch, length, heads, head_dim, hidden",
    [
        (1, 197, 12, 64, 3072),
        (3, 197, 6, 64, 1536),
        (1, 577, 4, 72, 1024),
        (40, 50, 3, 64, 768),
        (230, 9, 3, 64, 384),
        # Several groups or passes whose tiles once left no gap for the next ones.
        (2, 785, 4, 96, 1024),
        (40, 50, 12, 64, 3072),
    ],
)
def test_vit_block(dtype, batch, length, heads, head_dim, hidden):
    width = heads * head_dim
    vector = (width,)
    arguments = tensors(
        dtype,
        (batch, length, width),
        vector,
        vector,
        (width, 3 * width),
        (3 * width,),
        (width, width),
        vector,
        vector,
        vector,
        vector,
        (width, hidden),
        (hidden,),
        (hidden, width),
        vector,
        vector,
    )
    peak = sbuf_peak(vit_block.vit_block, *arguments, heads, 1e-6, "layer", "gelu", head_dim**-0.5)
    item = limits.DTYPE_BYTES[dtype]
    available = limits.USABLE * limits.SBUF_BYTES["trn2"]
    rows = 0 if head_dim % 32 == 0 else 3
    sizes = (length, width, heads, head_dim, hidden, item, False, False, rows, 0)
    assert_bounds(peak, planned_bytes(batch, sizes, available))


def planned_bytes(batch, sizes, available):
    """The budget of `vit_block` for the plan that it chooses."""
    plan = limits.vit_block_plan(batch, sizes, available)
    images, heads_pass, block, flight, beside = plan
    return limits.block_bytes(beside, images, heads_pass, block, flight, sizes)


SPECIAL = {
    "rotated": dict(tokens=577, heads=6, rope="half", prefix=1, tables="float32"),
    "rotated images": dict(tokens=197, heads=4, batch=5, rope="interleaved", tables="own"),
    "head norms": dict(tokens=257, heads=8, qk_norm="layer", rope="half"),
    "norm of all heads": dict(
        tokens=577, width=640, heads=5, head_dim=128, qk_norm="rms", full=True
    ),
    "all heads in passes": dict(
        tokens=1025, width=1536, heads=12, head_dim=128, hidden=1536, qk_norm="rms", full=True
    ),
    "gated": dict(tokens=577, hidden=2730, gate=True, activation="silu"),
    "inner norm": dict(tokens=577, width=768, hidden=2048, gate=True, inner_norm="layer"),
    "mask": dict(tokens=1000, heads=4, mask="bias", axes="1HQ"),
    "mask of images": dict(tokens=197, heads=6, batch=4, mask="bool", axes="B11"),
    "segments": dict(tokens=577, heads=6, segments=(500, 77), rope="half"),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_vit_block(dtype, name):
    settings = dict(dict(width=384, heads=4, head_dim=64, hidden=1024, batch=1), **SPECIAL[name])
    draw = inputs.Draw(DTYPES[dtype], seed=0)
    arguments = inputs.vit_block(draw, **settings)
    peak = sbuf_peak(vit_block.vit_block, *arguments)
    available = limits.USABLE * limits.SBUF_BYTES["trn2"]
    names = ("width", "heads", "head_dim", "hidden")
    sizes = (settings["tokens"], *(settings[name] for name in names), limits.DTYPE_BYTES[dtype])
    rows = 1 if "rope" in settings or "qk_norm" in settings else 0
    masked = 1 if "segments" in settings or settings.get("axes") == "B11" else 0
    traits = (
        "gate" in settings,
        "inner_norm" in settings,
        2 if "full" in settings else rows,
        settings["heads"] if settings.get("axes") == "1HQ" else masked,
    )
    assert_bounds(peak, planned_bytes(settings["batch"], (*sizes, *traits), available))


def test_what_limits_allow_the_kernels_plan():
    """The package's question and the kernel's own plan give the same answer at the boundary."""
    available = limits.USABLE * limits.SBUF_BYTES["trn2"]
    answers = set()
    for tokens in (197, 1025, 2048, 3072, 4096):
        for width, heads in ((768, 12), (1280, 16), (3200, 25)):
            head_dim = width // heads
            for dtype, item in limits.DTYPE_BYTES.items():
                ok, reason, remedy = limits.vit_block(
                    1, tokens, width, heads, head_dim, 4 * width, dtype, "trn2"
                )
                rows = 0 if head_dim % 32 == 0 else 3
                sizes = (tokens, width, heads, head_dim, 4 * width, item, False, False, rows, 0)
                plan = limits.vit_block_plan(1, sizes, available)
                assert ok == (plan[0] > 0)
                assert ok or (str(int(available)) in reason and remedy)
                answers.add(ok)
    assert answers == {True, False}
