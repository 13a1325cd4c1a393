"""Every family's own block against `vit_block`, under the rule of DESIGN section 3.

The layer itself, in float64, is the reference, and in the kernel's dtype the base.
"""

import pytest
import torch
from torch.overrides import TorchFunctionMode

import neuron_vit as nv
from neuron_vit._layer_reader import _LAYERS
from tests.parity import rule

from .families import FAMILIES, block, stream, tables

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
REAL = [
    pytest.param(name, size, id=f"{name}-{label}")
    for name, family in FAMILIES.items()
    for label, size in family.real.items()
]
# In float32 an image of 1025 tokens of width 3200 and its heads exceed the chip.
TOO_LARGE = [("internvit-6b", "fp32")]


class StaysFloat64(TorchFunctionMode):
    """Keeps float64 where a layer asks for float32, as RMS norms and rotations of transformers do.

    They mean "at least": without this the float64 run of such a layer is one of float32.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float and args[0].dtype == torch.float64:
            return args[0]
        if func is torch.Tensor.to and args[0].dtype == torch.float64 and torch.float32 in args[1:]:
            return args[0]
        return func(*args, **(kwargs or {}))


def run_layer(family, size, dtype, working):
    """The output of the layer with weights, stream and tables of `dtype`, computed in `working`."""
    layer = block(family, size, dtype).to(working)
    angles = tables(family, size, dtype)
    if angles is not None:
        angles = tuple(table.to(working) for table in angles)
    with torch.no_grad(), StaysFloat64():
        return family.call(layer, stream(size, dtype).to(working), angles)


def check(name, size, dtype):
    family = FAMILIES[name]
    params = nv.BlockParams.from_module(block(family, size, dtype))
    x, rope = stream(size, dtype), tables(family, size, dtype)
    base = run_layer(family, size, dtype, dtype)
    reference = run_layer(family, size, dtype, torch.float64)
    output, again = nv.vit_block(x, params, rope=rope), nv.vit_block(x, params, rope=rope)
    report = rule.judge(name, output, again, base, reference)
    assert report.ok, str(report)
    return report


@pytest.fixture
def simulated(monkeypatch):
    """NKI kernels or an error."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")


@pytest.mark.parametrize("name", FAMILIES)
def test_computes_what_the_layer_computes(name):
    family = FAMILIES[name]
    layer = block(family, family.small, torch.float64)
    params = nv.BlockParams.from_module(layer)
    x, rope = stream(family.small, torch.float64), tables(family, family.small, torch.float64)
    expected = run_layer(family, family.small, torch.float64, torch.float64)
    torch.testing.assert_close(nv.vit_block(x, params, rope=rope), expected, rtol=1e-9, atol=1e-9)
    assert nv.last_path() == "torch"


def test_every_accepted_layer_is_tested():
    made = {type(family.make(family.small)).__name__ for family in FAMILIES.values()}
    assert made == {name.rsplit(".")[-1] for name in _LAYERS}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_reference(name, dtype):
    check(name, FAMILIES[name].small, DTYPES[dtype])
    assert nv.last_path() == "torch"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_kernel(name, dtype, simulated):
    check(name, FAMILIES[name].small, DTYPES[dtype])
    assert nv.last_path() == "nki"


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "size"), REAL)
def test_reference_at_real_sizes(name, size, dtype):
    check(name, size, DTYPES[dtype])


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "size"), REAL)
def test_kernel_at_real_sizes(name, size, dtype, simulated):
    if (name, dtype) in TOO_LARGE:
        with pytest.raises(nv.NeuronVitUnsupported, match=r"needs \d+ bytes .* has \d+ usable"):
            check(name, size, DTYPES[dtype])
        return
    check(name, size, DTYPES[dtype])
    assert nv.last_path() == "nki"
