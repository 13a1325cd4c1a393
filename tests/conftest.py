"""What every test gets: an importable `nki`, one compute thread a process, fixed seeds, a timeout.

Long grids carry `@pytest.mark.long`; pyproject.toml leaves them out unless `-m` says otherwise.
"""

import os
import random
import signal

# Read once, when NumPy and torch load their BLAS; test processes already share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy
import pytest
import torch

import nki_emulator

# Seconds; a test that needs another limit says `@pytest.mark.timeout(seconds)`.
TIMEOUT = 120
LONG_TIMEOUT = 1800


def pytest_configure(config):
    config.addinivalue_line("markers", "timeout(seconds): how long this test may run")
    nki_emulator.install()


@pytest.fixture(autouse=True)
def fixed_seeds():
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def _seconds(item):
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return marker.args[0]
    return LONG_TIMEOUT if item.get_closest_marker("long") else TIMEOUT


def _limited(item):
    """One phase of a test under an alarm that raises in the test's own line."""
    seconds = _seconds(item)

    def expired(signum, frame):
        pytest.fail(f"ran longer than {seconds} seconds", pytrace=True)

    previous = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _limited(item))
