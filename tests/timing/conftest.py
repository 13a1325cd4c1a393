"""The timing model's tests run on trn2 unless a test asks for another target."""

import pytest

import nki_emulator

nki_emulator.install()


@pytest.fixture(autouse=True)
def default_environment(monkeypatch):
    """No target or precision chosen outside the tests."""
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    monkeypatch.delenv("NKI_PRECISE_FP", raising=False)


@pytest.fixture
def on_target(monkeypatch):
    """`on_target("trn3")` selects the generation for the rest of the test."""

    def select(name):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)

    return select
