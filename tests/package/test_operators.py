"""The torch operators: `opcheck` and gradients."""

import pytest
import torch
from torch.nn import functional as F

import neuron_vit as nv
from neuron_vit._ops import ops
from tests.parity.rule import ulp

DTYPES = (torch.bfloat16, torch.float32)


def tensor(*shape, dtype=torch.float32, grad=True):
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


def heads(dtype, tokens=5, size=8):
    """[2, 3, tokens, size], as a transposed view like those of the model libraries."""
    return torch.randn(2, tokens, 3, size).to(dtype).transpose(1, 2).requires_grad_()


def block(dtype, *, full):
    """The arguments of the block operator: all tensors there, or every optional one absent."""
    width, inner, hidden = 12, 8, 20

    def vector(size):
        return tensor(size, dtype=dtype) if full else None

    return (
        tensor(2, 5, width, dtype=dtype),
        tensor(width, dtype=dtype),
        vector(width),
        tensor(width, 3 * inner, dtype=dtype),
        vector(3 * inner),
        tensor(inner, width, dtype=dtype),
        vector(width),
        vector(width),
        tensor(width, dtype=dtype),
        vector(width),
        tensor(width, hidden, dtype=dtype),
        vector(hidden),
        tensor(hidden, width, dtype=dtype),
        vector(width),
        vector(width),
        2,
        1e-6,
        "layer" if full else "rms",
        "gelu" if full else "quick_gelu",
        0.5,
    )


def special_block(dtype, *, gate=True, full=False, mask=None, lens=None, segments=None):
    """The arguments of a block with tables, norms of queries and keys and a norm in its MLP."""
    width, inner, hidden = 12, 8, 20
    batch = 1 if segments is not None else 2
    normed = inner if full else 4

    def vector(size):
        return tensor(size, dtype=dtype)

    angles = torch.rand(3, 4, dtype=torch.float64)
    return (
        tensor(batch, 5, width, dtype=dtype),
        *block(dtype, full=True)[1:18],
        "silu",
        0.5,
        tensor(width, hidden, dtype=dtype) if gate else None,
        vector(hidden) if gate else None,
        vector(hidden),
        None if full else vector(hidden),
        vector(normed),
        None if full else vector(normed),
        vector(normed),
        None if full else vector(normed),
        angles.cos().to(dtype).requires_grad_(),
        angles.sin().to(dtype).requires_grad_(),
        mask,
        lens,
        segments,
        "rms" if full else "layer",
        1e-3,
        "rms" if full else "layer",
        1e-3,
        "half" if full else "interleaved",
    )


def encoder(dtype, *, full):
    """The arguments of the encoder operator: those of two blocks, the weights stacked."""
    one, other = block(dtype, full=full), block(dtype, full=full)
    stacks = [
        torch.stack(pair).detach().requires_grad_() if isinstance(pair[0], torch.Tensor) else None
        for pair in zip(one[1:15], other[1:15], strict=True)
    ]
    return one[0], *stacks, *one[15:]


def cases(dtype):
    """(operator, arguments), with and without optional tensors."""

    def new(*shape):
        return tensor(*shape, dtype=dtype)

    def q():
        return heads(dtype)

    yield ops.layer_norm, (new(5, 8), new(8), new(8), 1e-5)
    yield ops.layer_norm, (new(5, 8), None, None, 1e-5)
    yield ops.add_layer_norm, (new(5, 8), new(5, 8), new(8), new(8), 1e-5)
    yield ops.add_layer_norm, (new(5, 8), new(5, 8), None, None, 1e-5)
    yield ops.rms_norm, (new(5, 8), new(8), 1e-5)
    yield ops.rms_norm, (new(5, 8), None, 1e-5)
    yield ops.add_rms_norm, (new(5, 8), new(5, 8), new(8), 1e-5)
    yield ops.add_rms_norm, (new(5, 8), new(5, 8), None, 1e-5)
    yield ops.linear, (new(5, 8), new(3, 8), new(3), "out_in")
    yield ops.linear, (new(5, 8), new(8, 3), None, "in_out")
    yield (
        ops.mlp,
        (new(5, 8), new(20, 8), new(20), new(3, 20), new(3), "gelu", "out_in")
        + (new(20), new(20), 1e-3, "layer"),
    )
    yield (
        ops.mlp,
        (new(5, 8), new(8, 20), None, new(20, 3), None, "gelu_tanh", "in_out")
        + (None, None, 0.0, None),
    )
    yield (
        ops.swiglu_mlp,
        (new(5, 8), new(20, 8), new(20), new(20, 8), new(20), new(3, 20), new(3), "silu", "out_in")
        + (new(20), None, 1e-3, "rms"),
    )
    yield (
        ops.swiglu_mlp,
        (new(5, 8), new(8, 20), None, new(8, 20), None, new(20, 3), None, "gelu", "in_out")
        + (None, None, 0.0, None),
    )
    images, rows = (2, 5, 8), (2, 8)
    yield ops.ada_layer_norm, (new(*images), new(*rows), new(*rows), new(8), new(8), 1e-5)
    yield ops.ada_layer_norm, (new(*images), new(*rows), new(*rows), None, None, 1e-5)
    yield (
        ops.add_ada_layer_norm,
        (new(*images), new(*rows), new(*rows), new(8), new(8), new(*images), new(*rows), 1e-5),
    )
    yield (
        ops.add_ada_layer_norm,
        (new(*images), new(*rows), new(*rows), None, None, new(*images), None, 1e-5),
    )
    yield ops.ada_rms_norm, (new(*images), new(*rows), new(*rows), new(8), 1e-5)
    yield (
        ops.add_ada_rms_norm,
        (new(*images), new(*rows), new(*rows), None, new(*images), new(*rows), 1e-5),
    )

    def attention(q, k, v, mask=None, lens=None, segments=None):
        return ops.attention, (q, k, v, 0.4, mask, lens, segments, segments)

    seen = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    seen[:, :, 2] = False
    yield attention(q(), q(), q())
    yield attention(q(), heads(dtype, tokens=7).detach(), heads(dtype, tokens=7))
    yield attention(q(), heads(dtype)[:, :1], heads(dtype)[:, 2:])
    yield attention(q(), q(), q(), mask=new(2, 1, 5, 5))
    yield attention(q(), q(), q(), mask=seen)
    yield attention(q(), q(), q(), lens=torch.tensor([3, 0]))
    yield attention(q()[:1], q()[:1], q()[:1], segments=torch.tensor([0, 1, 5]))
    small = heads(dtype, size=4)
    yield ops.plain_attention, (q(), q(), small, new(2, 1, 5, 5), None, False, 0.4)
    yield ops.plain_attention, (q(), q(), small, None, torch.tensor([3, 5]), False, 0.4)
    yield ops.plain_attention, (q(), q(), q(), None, None, True, 0.4)
    yield ops.note_dropout, (q(),)
    yield ops.note_fallback, (new(2, 5, 8), "vit_block", "a reason", "a remedy")
    yield ops.vit_block, block(dtype, full=True)
    yield ops.vit_block, block(dtype, full=False)
    yield ops.vit_encoder, encoder(dtype, full=True)
    yield ops.vit_encoder, encoder(dtype, full=False)
    yield ops.vit_block, special_block(dtype, mask=new(1, 2, 5, 5))
    yield ops.vit_block, special_block(dtype, gate=False, full=True, mask=seen)
    yield ops.vit_block, special_block(dtype, gate=False, lens=torch.tensor([3, 0]))
    yield ops.vit_block, special_block(dtype, full=True, segments=torch.tensor([0, 1, 5]))


NUMBER_OF_CASES = len(list(cases(torch.float32)))


def case(number, dtype):
    return list(cases(dtype))[number]


# What is checked depends on the dtype only where a dtype is promoted.
@pytest.mark.parametrize(
    "dtype", [DTYPES[0], *(pytest.param(dtype, marks=pytest.mark.long) for dtype in DTYPES[1:])]
)
@pytest.mark.parametrize("number", range(NUMBER_OF_CASES))
def test_opcheck(number, dtype):
    # Traced and eager gradients may take different kernels of PyTorch's attention, whose sums
    # are in another order: in bfloat16 a difference of one rounding of the terms.
    tolerances = {"rtol": 2**-6, "atol": 2**-6} if dtype == torch.bfloat16 else {}
    operator, arguments = case(number, dtype)
    torch.library.opcheck(operator, arguments, **tolerances)


def test_every_operator_is_checked():
    checked = {operator.__name__ for operator, _ in cases(torch.float32)}
    assert checked == {name for name in vars(ops) if not name.startswith("_")} - {"name"}


@pytest.mark.parametrize("number", range(NUMBER_OF_CASES))
def test_gradients_are_the_derivatives(number):
    """Against finite differences, so not against another use of the same reference."""
    operator, arguments = case(number, torch.float64)
    assert torch.autograd.gradcheck(operator, arguments, fast_mode=True)


def test_second_derivatives():
    x, weight = tensor(3, 6, dtype=torch.float64), tensor(6, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda x, w: ops.rms_norm(x, w, 1e-3), (x, weight))


def test_gradients_of_one_of_two_results():
    x, residual = tensor(3, 6), tensor(3, 6)
    normalized, total = nv.layer_norm(x, 6, residual=residual)
    (gradient,) = torch.autograd.grad(total.sum(), residual)
    assert torch.equal(gradient, torch.ones_like(residual))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_gradients_are_as_good_as_torchs(dtype):
    def gradients(function, dtype):
        leaves = [t.to(dtype).detach().requires_grad_() for t in (x, weight, bias)]
        out = function(leaves[0], (16,), *leaves[1:])
        return torch.autograd.grad(out, leaves, direction.to(dtype))

    x, weight, bias, direction = (
        tensor(*shape, dtype=dtype) for shape in ((9, 16), (16,), (16,), (9, 16))
    )
    truth = gradients(F.layer_norm, torch.float64)
    ours, theirs = gradients(nv.layer_norm, dtype), gradients(F.layer_norm, dtype)
    for exact, found, base in zip(truth, ours, theirs, strict=True):
        error, base_error = ((g.double() - exact).abs().max().item() for g in (found, base))
        assert found.dtype == dtype
        assert error <= 2 * base_error + ulp(dtype, exact.abs().max().item())


def test_backward_leaves_the_record_of_the_forward(simulated):
    x = tensor(4, 64)
    out = nv.layer_norm(x, 64)
    assert (nv.last_path(), nv.launches()) == ("nki", {"layer_norm": 1})
    out.sum().backward()
    assert (nv.last_path(), nv.launches()) == ("nki", {"layer_norm": 1})
