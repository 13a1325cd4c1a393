"""`warmup`: what it runs, and what it says about it."""

import pytest
import torch
from torch import nn

import neuron_vit as nv
from neuron_vit import _dispatch


class Model(nn.Module):
    """Three norms and a linear layer; `calls` are the inputs that it was given."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16, dtype=torch.bfloat16))
        self.calls = []

    def forward(self, x):
        shape, inference = tuple(x.shape), torch.is_inference_mode_enabled()
        self.calls.append((shape, x.dtype, x.device.type, inference))
        for _ in range(3):
            x = nv.layer_norm(x, (16,), self.weight)
        return nv.linear(x, self.weight[None])


def params(rope=None):
    def new(*shape):
        return torch.randn(shape)

    return nv.BlockParams(
        norm1_weight=new(16), qkv_weight=new(16, 48), proj_weight=new(16, 16),
        norm2_weight=new(16), fc1_weight=new(16, 32), fc2_weight=new(32, 16),
        num_heads=2, eps=1e-6, attention_scale=0.3, rope=rope,
    )  # fmt: skip


def test_every_shape_is_run_once_on_what_the_model_takes():
    model = Model().eval()
    nv.warmup(model, (1, 5, 16), [2, 5, 16])
    assert model.calls == [
        ((1, 5, 16), torch.bfloat16, "cpu", True),
        ((2, 5, 16), torch.bfloat16, "cpu", True),
    ]


def test_on_a_cpu_nothing_is_compiled_and_it_says_so():
    result = nv.warmup(Model().eval(), (1, 5, 16))
    reason = "the tensors are on cpu, where no NKI kernel runs"
    assert result == nv.Warmup("cpu", {}, (("layer_norm", reason, 3), ("linear", reason, 1)))
    assert not result.compiled
    assert str(result) == (
        f"layer_norm: 3 times PyTorch, {reason}\n"
        f"linear: 1 times PyTorch, {reason}\n"
        "nothing was compiled: none ran"
    )


def test_in_the_simulator(simulated):
    result = nv.warmup(Model().eval(), (1, 5, 16), (2, 5, 16))
    assert result == nv.Warmup("cpu", {"layer_norm": 6, "linear": 2}, ())
    assert not result.compiled
    assert str(result).splitlines() == [
        "layer_norm: 6 NKI launches",
        "linear: 2 NKI launches",
        "nothing was compiled: the kernels ran in the simulator on cpu",
    ]


@pytest.mark.filterwarnings("ignore::neuron_vit.NeuronVitFallbackWarning")
def test_what_no_kernel_covers_is_listed_every_time(simulated):
    def function(x):
        nv.scaled_dot_product_attention(x, x, x, is_causal=True)
        nv.scaled_dot_product_attention(x, x, x)

    for _ in range(2):  # also where the warning has been given already
        result = nv.warmup(function, (1, 2, 5, 192), (1, 2, 5, 16), dtype=torch.float32)
        assert result.launches == {"attention": 1}
        counts = {reason: count for _, reason, count in result.others}
        assert sorted(counts.values()) == [1, 2]
        assert all(("causal" if count == 2 else "192") in why for why, count in counts.items())


def test_an_error_where_nki_is_required(monkeypatch):
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match="the tensors are on cpu"):
        nv.warmup(Model().eval(), (1, 5, 16))


def test_a_model_without_the_kernels():
    result = nv.warmup(nn.Linear(4, 4).eval(), (2, 4))
    assert str(result).startswith("no call of neuron-vit: put the kernels into the model first")


def test_packed_weights(simulated):
    block = params()
    assert nv.warmup(block, (1, 5, 16)).launches == {"vit_block": 1}
    encoder = nv.EncoderParams.from_blocks([block, block])
    assert nv.warmup(encoder, (1, 5, 16)).launches == {"vit_encoder": 1}


def test_compiled_on_a_device():
    assert nv.Warmup("neuron", {"mlp": 1}, ()).compiled
    assert str(nv.Warmup("neuron", {"mlp": 1}, ())) == "mlp: 1 NKI launches"


@pytest.mark.parametrize(
    ("error", "part", "arguments"),
    [
        (ValueError, "shapes are ()", lambda: (Model().eval(),)),
        (ValueError, "shapes are ((1, 0),)", lambda: (Model().eval(), (1, 0))),
        (ValueError, "shapes are (4,)", lambda: (Model().eval(), 4)),
        (ValueError, "shapes are ((True, 16),)", lambda: (Model().eval(), (True, 16))),
        (ValueError, "shapes are tensors;", lambda: (Model().eval(), torch.ones(1, 16))),
        (ValueError, "call model.eval() first", lambda: (Model(), (1, 5, 16))),
        (ValueError, "dtype is None", lambda: (lambda x: x, (1, 5, 16))),
        (ValueError, "lambda x: nv.vit_block", lambda: (params("half"), (1, 5, 16))),
        (TypeError, "model is a int", lambda: (3, (1, 5, 16))),
        (TypeError, "model is a class Model", lambda: (Model, (1, 5, 16))),
    ],
)
def test_wrong_arguments(error, part, arguments):
    with pytest.raises(error) as caught:
        nv.warmup(*arguments())
    assert part.lower() in str(caught.value).lower()


def test_recordings_nest_and_end():
    x = torch.zeros(2, 16)
    with _dispatch.recording() as outer:
        nv.rms_norm(x, (16,))
        with _dispatch.recording() as inner:
            nv.layer_norm(x, (16,))
        nv.rms_norm(x[:0], (16,))
    nv.layer_norm(x, (16,))
    assert [name for name, _ in outer] == ["rms_norm"]
    assert [name for name, _ in inner] == ["layer_norm"]
