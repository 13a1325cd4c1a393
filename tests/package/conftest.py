"""What the tests of the package share."""

import pytest

import neuron_vit
from neuron_vit import _dispatch

VARIABLES = (
    "NKI_SIMULATOR",
    "NEURON_VIT_REQUIRE_NKI",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_PLATFORM_TARGET_OVERRIDE",
)


@pytest.fixture(autouse=True)
def clean_state(monkeypatch):
    """No variable set, nothing launched, no warning given yet."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    neuron_vit.reset_launches()
    monkeypatch.setattr(_dispatch, "_warned", set())
    monkeypatch.setattr(_dispatch, "_wrapped", {})


@pytest.fixture
def simulated(monkeypatch):
    """CPU tensors run the NKI kernels."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
