"""Which path runs, what is recorded, and what happens where no kernel applies.

Here a recording stand-in takes the place of `nki` and of the kernels, so that the tests see the
launches; test_simulator.py runs the real kernels.
"""

import importlib.metadata
import sys
import threading
import warnings
from types import ModuleType, SimpleNamespace

import pytest
import torch

import neuron_vit as nv
from neuron_vit import _nki, capability, reference

X = torch.randn(2, 5, 16)
SMALL = torch.randn(1, 2, 5, 8)
LARGE = torch.randn(1, 2, 5, 192)
NO_KEYS = torch.zeros(1, 2, 0, 8)


class Kernel:
    def __init__(self, name, lnc=None):
        self.name, self.lnc = name, lnc

    def __getitem__(self, lnc):
        return Kernel(self.name, lnc)


@pytest.fixture
def recorded(monkeypatch):
    """The (kernel, lnc, arguments) of every simulated launch."""
    launches = []

    def simulate(kernel):
        def run(*arguments):
            launches.append((kernel.name, kernel.lnc, arguments))
            return getattr(reference, kernel.name)(*arguments)

        return run

    nki = ModuleType("nki")
    nki.jit, nki.simulate = None, simulate
    monkeypatch.setitem(sys.modules, "nki", nki)
    monkeypatch.setattr(_nki, "kernel", Kernel)
    return launches


def test_cpu_tensors_reach_the_simulator_only_when_asked(recorded, monkeypatch):
    nv.layer_norm(X, 16)
    assert (recorded, nv.last_path(), nv.launches()) == ([], "torch", {})
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    nv.layer_norm(X, 16)
    assert nv.last_path() == "nki"
    monkeypatch.setenv("NKI_SIMULATOR", "0")
    nv.layer_norm(X, 16)
    assert nv.last_path() == "torch"
    assert nv.launches() == {"layer_norm": 1}


@pytest.mark.parametrize(("setting", "lnc"), [(None, None), ("1", None), ("2", 2)])
def test_simulated_grid(recorded, simulated, monkeypatch, setting, lnc):
    if setting is not None:
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", setting)
    nv.rms_norm(X, 16)
    assert [(name, grid) for name, grid, _ in recorded] == [("rms_norm", lnc)]


def test_launches_are_counted_by_kernel_and_reset(recorded, simulated):
    nv.layer_norm(X, 16)
    nv.layer_norm(X, 16, residual=X)
    nv.linear(X, torch.randn(3, 16))
    counts = nv.launches()
    assert counts == {"layer_norm": 2, "linear": 1}
    counts["layer_norm"] = 7  # a copy
    assert nv.launches()["layer_norm"] == 2
    nv.reset_launches()
    assert (nv.launches(), nv.last_path()) == ({}, None)


def test_last_path_belongs_to_the_thread(recorded, simulated):
    nv.layer_norm(X, 16)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(nv.last_path()))
    thread.start()
    thread.join()
    assert seen == [None] and nv.last_path() == "nki"


def test_counts_survive_threads(recorded, simulated):
    threads = [
        threading.Thread(target=lambda: [nv.rms_norm(X, 16) for _ in range(25)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert nv.launches() == {"rms_norm": 100} and len(recorded) == 100


def test_kernels_get_dense_tensors_without_autograd(recorded, simulated):
    x = torch.randn(16, 5, requires_grad=True).t()
    weight = torch.randn(3, 16, requires_grad=True)
    nv.linear(x, weight)
    [(_, _, arguments)] = recorded
    for argument in arguments[:2]:
        assert argument.is_contiguous() and not argument.requires_grad


def test_packed_weights_are_not_copied(recorded, simulated):
    packed = torch.randn(16, 3)
    nv.linear(X, packed.t())
    dense = torch.randn(3, 16)
    nv.linear(X, dense)
    first, second = recorded[0][2], recorded[1][2]
    assert first[3] == "in_out" and first[1].shape == (16, 3)
    assert first[1].data_ptr() == packed.data_ptr()
    assert second[3] == "out_in" and second[1].data_ptr() == dense.data_ptr()


def test_mlp_weights_share_a_layout(recorded, simulated):
    first, second = torch.randn(20, 16), torch.randn(16, 20)
    for w1, w2, layout in (
        (first, second, "out_in"),
        (second.t(), first.t(), "in_out"),
        (first, first.t(), "out_in"),
    ):
        nv.mlp(X, w1, None, w2, None)
        arguments = recorded[-1][2]
        assert arguments[6] == layout
        assert arguments[1].is_contiguous() and arguments[3].is_contiguous()


def test_attention_operands_are_windows_on_the_callers_memory(recorded, simulated):
    qkv = torch.randn(2, 5, 3, 4, 8)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    nv.scaled_dot_product_attention(q, k, v)
    [(_, _, (window_q, window_k, _, scale, view_q, view_k, *_))] = recorded
    assert scale == 8**-0.5
    for window, view, tensor in ((window_q, view_q, q), (window_k, view_k, k)):
        assert window.dim() == 1 and window.data_ptr() == tensor.data_ptr()
        assert view == (tuple(tensor.shape), tensor.stride())
        # Exactly as long as the operand needs, so that it may end where the storage ends.
        assert window.numel() == 1 + sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        )


def test_dense_operands_have_no_view(recorded, simulated):
    nv.scaled_dot_product_attention(SMALL, SMALL, SMALL)
    assert set(recorded[0][2][4:]) == {None}
    assert recorded[0][2][0].shape == SMALL.shape


def test_strides_of_single_elements_do_not_reach_the_compile_key(recorded, simulated):
    views = []
    for stride in (1, 1000):
        q = torch.randn(1, 5, 2, 8).transpose(1, 2).as_strided((1, 2, 5, 8), (stride, 8, 16, 1))
        nv.scaled_dot_product_attention(q, q, q)
        views.append(recorded[-1][2][4])
    assert views[0] == views[1] != None  # noqa: E711


def test_broadcast_heads_are_not_copied(recorded, simulated):
    one_head = torch.randn(1, 1, 5, 8)
    nv.scaled_dot_product_attention(SMALL, one_head, one_head)
    arguments = recorded[0][2]
    assert arguments[1].data_ptr() == one_head.data_ptr()
    assert arguments[5][0] == (1, 2, 5, 8) and arguments[5][1][1] == 0


def test_empty_tensors_launch_nothing(recorded, simulated, monkeypatch):
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    empty = torch.empty(0, 2, 5, 8)
    assert nv.scaled_dot_product_attention(empty, empty, empty).shape == empty.shape
    assert nv.scaled_dot_product_attention(empty, empty, empty, is_causal=True).shape == empty.shape
    assert nv.layer_norm(empty, 8).shape == empty.shape
    assert recorded == [] and nv.launches() == {}


HIDDEN_OUT = {"fc1_weight": torch.zeros(0, 8), "fc2_weight": torch.zeros(8, 0)}


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: nv.mlp(torch.ones(3, 8), fc1_bias=None, fc2_bias=None, **HIDDEN_OUT), "hidden=0"),
        (lambda: nv.scaled_dot_product_attention(SMALL, NO_KEYS, NO_KEYS), "k_len=0"),
        (
            lambda: nv.scaled_dot_product_attention(SMALL, NO_KEYS, NO_KEYS, dropout_p=0.1),
            "dropout",
        ),
    ],
)
def test_other_empty_tensors_are_a_fallback(call, found, recorded, simulated, monkeypatch):
    """The result is not empty, so it is not for nothing that no kernel runs."""
    with pytest.warns(nv.NeuronVitFallbackWarning, match=found):
        call()
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match=found):
        call()
    monkeypatch.setenv("NKI_SIMULATOR", "0")
    with pytest.raises(nv.NeuronVitUnsupported, match="no NKI kernel runs"):
        call()


def test_an_empty_result_is_no_fallback(recorded, simulated, monkeypatch):
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    assert nv.linear(torch.ones(3, 8), torch.zeros(0, 8)).shape == (3, 0)
    assert recorded == []


@pytest.mark.parametrize("variable", ["NEURON_VIT_REQUIRE_NKI", "NKI_SIMULATOR"])
@pytest.mark.parametrize("rows", [0, 2])
def test_an_unknown_value_is_an_error_at_the_first_call(variable, rows, recorded, monkeypatch):
    """Also where a kernel runs, or nothing."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv(variable, "true")
    if variable == "NKI_SIMULATOR" and rows == 0:
        pytest.skip("nothing asks for a path")
    with pytest.raises(ValueError, match=f"{variable} is 'true'; it must be 0 or 1"):
        nv.layer_norm(torch.ones(rows, 8), 8)
    assert recorded == []


UNSUPPORTED = {
    "head size": (lambda: nv.scaled_dot_product_attention(LARGE, LARGE, LARGE), "head_dim=192"),
    "float64": (lambda: nv.layer_norm(X.double(), 16), "dtype=float64"),
    "too wide": (
        lambda: nv.layer_norm(torch.zeros(1, 10**5), 10**5),
        "layer_norm needs",
    ),
    "scale of a mask": (
        lambda: nv.scaled_dot_product_attention(SMALL, SMALL, SMALL, torch.zeros(5, 5), scale=1e-4),
        "attention scale is not from 2",
    ),
    "causal": (
        lambda: nv.scaled_dot_product_attention(SMALL, SMALL, SMALL, is_causal=True),
        "is_causal=True",
    ),
    "dropout": (
        lambda: nv.scaled_dot_product_attention(SMALL, SMALL, SMALL, dropout_p=0.1),
        "dropout_p > 0",
    ),
    "value size": (
        lambda: nv.scaled_dot_product_attention(SMALL, SMALL, SMALL[..., :4]),
        "another head size",
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_a_case_without_kernel_warns_once_with_limit_and_remedy(case, recorded, simulated):
    call, finding = UNSUPPORTED[case]
    with pytest.warns(nv.NeuronVitFallbackWarning) as caught:
        call()
        call()
    assert len(caught) == 1
    message = str(caught[0].message)
    assert finding in message
    assert " cpu" in message and "LNC=1" in message  # the operands
    assert "PyTorch operations run instead; NEURON_VIT_REQUIRE_NKI=1" in message
    assert caught[0].filename == __file__
    assert recorded == [] and nv.last_path() == "torch" and nv.launches() == {}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_a_case_without_kernel_can_be_made_an_error(case, recorded, simulated, monkeypatch):
    call, finding = UNSUPPORTED[case]
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    for _ in range(2):  # every time, not once
        with pytest.raises(nv.NeuronVitUnsupported, match=finding):
            call()
    assert issubclass(nv.NeuronVitUnsupported, RuntimeError)


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_the_cpu_path_is_no_fallback(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        UNSUPPORTED[case][0]()
    assert nv.last_path() == "torch"


def test_two_reasons_are_two_warnings(recorded, simulated):
    with pytest.warns(nv.NeuronVitFallbackWarning) as caught:
        for size in (192, 160, 192):
            heads = torch.randn(1, 1, 4, size)
            nv.scaled_dot_product_attention(heads, heads, heads)
    assert ["head_dim=192" in str(w.message) for w in caught] == [True, False]


def test_requiring_nki_on_a_plain_cpu_names_the_ways_out(monkeypatch):
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    with pytest.raises(nv.NeuronVitUnsupported, match="on cpu.*neuron device.*NKI_SIMULATOR=1"):
        nv.layer_norm(X, 16)


def test_a_failing_launch_is_not_counted(recorded, simulated, monkeypatch):
    nki = sys.modules["nki"]

    def simulate(kernel):
        raise RuntimeError("no")

    monkeypatch.setattr(nki, "simulate", simulate)
    with pytest.raises(RuntimeError, match="^no$"):
        nv.layer_norm(X, 16)
    assert nv.launches() == {} and nv.last_path() is None


def test_supports_answers_without_nki(monkeypatch):
    monkeypatch.setitem(sys.modules, "nki", None)
    sizes = {"batch": 8, "heads": 12, "q_len": 197, "k_len": 197}
    yes = nv.supports("attention", **sizes, head_dim=64)
    no = nv.supports("scaled_dot_product_attention", **sizes, head_dim=192, dtype="bfloat16")
    assert yes and yes == nv.Support(True)
    assert not no and "head_dim=192" in no.reason and no.remedy
    long = {"batch": 1, "heads": 16, "q_len": 4096, "k_len": 4096, "head_dim": 128}
    assert nv.supports("attention", **long, bias_heads=16, dtype="bfloat16")
    with pytest.raises(TypeError, match="attention misses heads, q_len, k_len, head_dim; its"):
        nv.supports("attention", batch=1, bias_heads=1)
    for size in ("k_len", "hidden"):
        name, given = (
            ("attention", {**sizes, "head_dim": 64})
            if size == "k_len"
            else (
                "vit_block",
                {"batch": 1, "tokens": 9, "width": 12, "heads": 3, "head_dim": 4},
            )
        )
        nothing = nv.supports(name, **{**given, size: 0})
        assert f"{size}=0, the kernel takes no empty operand" in nothing.reason
        assert nothing.remedy.startswith("leave")
    assert not nv.supports("linear", tokens=1, in_features=8, out_features=8, dtype=torch.float64)
    block = {"batch": 1, "tokens": 197, "width": 768, "heads": 12, "head_dim": 64, "hidden": 3072}
    assert nv.supports("vit_block", **block, dtype=torch.bfloat16, target="trn3")
    assert nv.supports("vit_encoder", **block, gated=True, dtype=torch.bfloat16, target="trn3")
    refused = nv.supports("vit_encoder", **{**block, "head_dim": 192})
    assert not refused and refused.reason.startswith("vit_encoder head_dim=192")
    assert "run attention as PyTorch operations" in refused.remedy
    assert "scaled_dot_product_attention" not in refused.remedy and "split" not in no.remedy


@pytest.mark.parametrize("name", capability._KERNELS)
def test_supports_says_which_sizes_are_missing_and_unknown(name):
    with pytest.raises(TypeError) as caught:
        nv.supports(name, widht=1, zebra=2)
    message = str(caught.value)
    rule = message.split("; ")[1]
    needed = rule.split("its sizes are ")[1].split(", and optional")[0].split(". ")[0].split(", ")
    assert f"{name} misses {', '.join(needed)} and has no widht" in message
    assert ("perhaps width is meant" in message) == ("width" in needed)
    assert "has no zebra" in message and "zebra, perhaps" not in message
    assert ("optional bias_heads" in rule) == (name == "attention")


def test_the_target_sets_the_limit(recorded, simulated, monkeypatch):
    """A width that fits the larger chip only."""
    width = next(
        width
        for width in range(1000, 200000, 100)
        if not nv.supports("layer_norm", width=width, dtype="float32", target="trn2")
    )
    assert nv.supports("layer_norm", width=width, dtype="float32", target="trn3")
    x = torch.randn(1, width)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    nv.layer_norm(x, width)
    assert nv.last_path() == "nki"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.warns(nv.NeuronVitFallbackWarning, match="trn2 has"):
        nv.layer_norm(x, width)


# --- Finding nki -------------------------------------------------------------------------------


def placeholder():
    return ModuleType("nki")


def usable():
    nki = ModuleType("nki")
    nki.jit = None
    return nki


def provide(monkeypatch, *providers):
    points = [SimpleNamespace(name=f"p{i}", load=lambda f=f: f) for i, f in enumerate(providers)]
    groups = SimpleNamespace(select=lambda group: points if group == "nki.provider" else [])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: groups)


@pytest.mark.parametrize("absent", [None, placeholder()])
def test_a_provider_stands_in_for_a_missing_nki(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, "nki", absent)
    stand_in = usable()
    idle = lambda: None  # noqa: E731
    provide(monkeypatch, idle, lambda: sys.modules.update(nki=stand_in))
    assert _nki.load_nki() is stand_in


def test_an_installed_nki_wins(monkeypatch):
    installed = usable()
    monkeypatch.setitem(sys.modules, "nki", installed)
    provide(monkeypatch, lambda: pytest.fail("must not be asked"))
    assert _nki.load_nki() is installed


@pytest.mark.parametrize("absent", [None, placeholder()])
def test_without_nki_the_error_says_what_to_install(monkeypatch, simulated, absent):
    monkeypatch.setitem(sys.modules, "nki", absent)
    provide(monkeypatch)
    with pytest.raises(ImportError, match="Neuron SDK.*neuron-vit distribution.*NKI_SIMULATOR"):
        nv.layer_norm(X, 16)


def test_an_error_inside_nki_is_not_taken_for_its_absence(monkeypatch, tmp_path):
    (tmp_path / "nki.py").write_text("import a_module_that_nki_needs\n")
    monkeypatch.delitem(sys.modules, "nki", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    provide(monkeypatch, lambda: pytest.fail("must not be asked"))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nki_needs"):
        _nki.load_nki()
