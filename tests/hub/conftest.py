"""Builds and a Hub that the tests of the Hub tools share."""

import shutil

import pytest

from hub.build import build
from tests.hub.small_kernel import ROOT, commit, write_checkout
from tests.hub_server import LoopbackHub


@pytest.fixture(autouse=True)
def direct_connection(monkeypatch):
    """Keep a proxy that the machine may have out of the way of loopback requests."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="session")
def small_build(tmp_path_factory):
    """The small kernel, built from a clean checkout; tests must not change it."""
    root = write_checkout(tmp_path_factory.mktemp("small"))
    commit(root)
    build(root, root / "build")
    return root / "build"


@pytest.fixture
def breakable(small_build, tmp_path):
    """A copy of `small_build` that a test may damage."""
    return shutil.copytree(small_build, tmp_path / "build")


@pytest.fixture(scope="session")
def real_build(tmp_path_factory):
    """This project's own package, built from the checkout the tests run in."""
    out = tmp_path_factory.mktemp("real") / "build"
    build(ROOT, out)
    return out


@pytest.fixture
def loopback():
    """A Hub where "trusted" is a trusted organisation and "closed" takes no changes."""
    with LoopbackHub(trusted=("trusted",), read_only=("closed",)) as hub:
        yield hub
