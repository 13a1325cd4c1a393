"""`apply` on a small model of every family, under the rule of DESIGN section 3.

The untouched model in float64 is the reference, and in the dtype at hand the base. What is compared
is the last hidden state and every recorded one.
"""

import pytest

import neuron_vit as nv
from neuron_vit._calls import contracts
from tests.parity import rule

from .test_blocks import DTYPES, StaysFloat64
from .whole_models import LAYERS, MODELS, build, tensors

# Where windows do not tile the maps, operators run instead of blocks.
FUSED = [name for name in MODELS if name != "swin-padded"]


@pytest.fixture(autouse=True)
def nothing_launched():
    nv.reset_launches()


@pytest.fixture
def simulated(monkeypatch):
    """NKI kernels or an error."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")


def judge(name, dtype, model, monkeypatch):
    """The applied model's outputs against those of plain ones, built in the same way."""
    outputs, again = tensors(name, model, dtype), tensors(name, model, dtype)
    for variable in ("NKI_SIMULATOR", "NEURON_VIT_REQUIRE_NKI"):
        monkeypatch.delenv(variable, raising=False)
    bases = tensors(name, build(name, dtype), dtype)
    with StaysFloat64():
        references = tensors(name, build(name, dtype).double(), dtype)
    assert outputs.keys() == references.keys()
    for key, output in outputs.items():
        report = rule.judge(f"{name} {key}", output, again[key], bases[key], references[key])
        assert report.ok, str(report)


@pytest.mark.parametrize("dtype", ["fp32", pytest.param("bf16", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", MODELS)
def test_torch_path(name, dtype, monkeypatch):
    model = build(name, DTYPES[dtype])
    nv.apply(model)
    judge(name, DTYPES[dtype], model, monkeypatch)
    assert nv.launches() == {}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_kernels(name, dtype, simulated, monkeypatch):
    model = build(name, DTYPES[dtype])
    nv.apply(model)
    judge(name, DTYPES[dtype], model, monkeypatch)
    launched = nv.launches()
    if name in FUSED:
        assert launched["vit_block"] == 2 * MODELS[name].blocks
        assert "attention" not in launched
    else:
        assert "vit_block" not in launched
        assert launched["attention"] == launched["mlp"] == 2 * MODELS[name].blocks


@pytest.mark.parametrize("name", MODELS)
def test_report_lists_every_block(name):
    model = build(name)
    planned = nv.report(model)
    told = nv.apply(model)
    assert list(planned) == list(told) == list(nv.report(model))
    assert len(told.blocks) == MODELS[name].blocks
    assert all(row.path == "block" for row in told.blocks)
    assert f"{len(told.blocks)} of {len(told.blocks)} blocks run as vit_block" in str(told)
    assert "would run" in planned.summary
    for row in told:
        assert type(model.get_submodule(row.module)).__name__ == row.cls
    # Norms outside of blocks are operators; none is left to torch.
    outside = {row.module for row in told if not row.is_block}
    for path, module in model.named_modules():
        if type(module).__name__ in ("LayerNorm", "RmsNorm") and not any(
            path.startswith(row.module + ".") for row in told.blocks
        ):
            assert path in outside or any(path.startswith(other + ".") for other in outside)


def test_every_contract_has_a_model():
    names = {row.cls for name in MODELS for row in nv.report(build(name)).blocks}
    assert names == {name.rsplit(".")[-1] for name in contracts()}
    assert LAYERS > 1
