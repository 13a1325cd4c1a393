"""LNC 2: two programs share the rows, images or heads of a launch, and the result is that of one.

Sizes are chosen so that the shares are uneven, and so that one program may have nothing to do.
"""

import nki
import pytest
import torch

from neuron_vit.nki_src import attention, linear, mlp, norm, vit_block
from tests.parity import inputs


def rand(*shape):
    return torch.randn(*shape)


def block(batch, tokens, heads, head_dim, hidden):
    width = heads * head_dim
    vectors = [rand(width) for _ in range(6)]
    return (
        *(rand(batch, tokens, width), vectors[0], vectors[1], rand(width, 3 * width)),
        *(rand(3 * width), rand(width, width), vectors[2], None, vectors[3], vectors[4]),
        *(rand(width, hidden), rand(hidden), rand(hidden, width), vectors[5], None),
        *(heads, 1e-6, "layer", "gelu", head_dim**-0.5),
    )


def strided(batch, heads, tokens, dim):
    return tuple(rand(batch, heads, tokens, dim) for _ in range(3)) + (dim**-0.5, None, None, None)


SEGMENTS = [torch.tensor([0, 1, 30, 50], dtype=torch.int32)] * 2


def special_block(**settings):
    draw = inputs.Draw(torch.float32, seed=0)
    return inputs.vit_block(draw, tokens=50, width=96, heads=3, head_dim=32, hidden=96, **settings)


def cases():
    """Kernel and arguments of each case."""
    return {
        "norm rows": (norm.layer_norm, (rand(300, 96), rand(96), rand(96), rand(300, 96), 1e-6)),
        "norm one tile": (norm.rms_norm, (rand(5, 96), rand(96), None, 1e-6)),
        "linear": (linear.linear, (rand(700, 96), rand(96, 40), rand(40), "in_out")),
        "mlp": (
            mlp.mlp,
            (rand(300, 96), rand(96, 200), rand(200), rand(200, 96), rand(96), "gelu", "in_out"),
        ),
        "mlp inner norm": (
            mlp.mlp,
            (rand(300, 96), rand(96, 200), rand(200), rand(200, 96), rand(96), "gelu", "in_out")
            + (rand(200), rand(200), 1e-6, "layer"),
        ),
        "gated mlp": (
            mlp.swiglu_mlp,
            (rand(300, 96), rand(96, 400), rand(400), None, None, rand(200, 96), rand(96))
            + ("silu", "in_out"),
        ),
        "modulated rows": (
            norm.ada_layer_norm,
            (rand(3, 100, 96), rand(3, 96), rand(3, 96), None, None, rand(3, 100, 96), rand(3, 96))
            + (1e-6,),
        ),
        "modulated one tile": (
            norm.ada_rms_norm,
            (rand(2, 5, 96), rand(2, 96), rand(2, 96), rand(96), None, None, 1e-6),
        ),
        "attention images": (attention.attention, strided(3, 2, 50, 64)),
        "attention heads": (attention.attention, strided(1, 3, 50, 32)),
        "attention one head": (attention.attention, strided(1, 1, 50, 32)),
        "attention mask": (attention.attention, (*strided(3, 2, 50, 64), rand(3, 2, 50, 50))),
        "attention mask of heads": (
            attention.attention,
            (*strided(1, 3, 50, 32), rand(1, 3, 50, 50)),
        ),
        "attention lengths": (
            attention.attention,
            (*strided(3, 2, 50, 64), None, torch.tensor([50, 0, 7], dtype=torch.int32)),
        ),
        "attention segments": (
            attention.attention,
            (*strided(1, 3, 50, 32), None, None, *SEGMENTS),
        ),
        "block images": (vit_block.vit_block, block(3, 50, 2, 32, 96)),
        "block one image": (vit_block.vit_block, block(1, 17, 2, 32, 96)),
        "block tokens of one image": (vit_block.vit_block, block(1, 300, 2, 32, 96)),
        "block one image, a tile of one token": (vit_block.vit_block, block(1, 129, 2, 32, 96)),
        "block with tables of images": (
            vit_block.vit_block,
            special_block(batch=3, rope="half", tables="own", qk_norm="rms", full=True, gate=True),
        ),
        "block with lengths": (
            vit_block.vit_block,
            special_block(batch=3, lens=(50, 1, 17), inner_norm="layer"),
        ),
    }


@pytest.mark.parametrize("case", cases())
def test_two_programs_give_the_result_of_one(case):
    kernel, arguments = cases()[case]
    one = nki.simulate(kernel[1])(*arguments)
    two = nki.simulate(kernel[2])(*arguments)
    if not isinstance(one, tuple):
        one, two = (one,), (two,)
    for first, second in zip(one, two):
        assert torch.equal(second, first)
