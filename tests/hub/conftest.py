"""Builds, a Hub and its clients, which the tests of the Hub tools share."""

import shutil

import pytest
from huggingface_hub import HfApi

from hub.build import build
from hub.publish import publish
from tests.hub.clients import Client, ClientProcesses
from tests.hub.small_kernel import ROOT, commit, write_checkout
from tests.hub_server import LoopbackHub, client_environment

# What the small kernel is published as, by an organisation that is trusted and one that is not.
SMALL, TRUSTED = "org/small", "trusted/small"
REAL = "org/neuron-vit"


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


@pytest.fixture(scope="session")
def hub():
    """A Hub with one organisation that is trusted, for all clients of a test session."""
    with LoopbackHub(trusted=("trusted",)) as running:
        yield running


@pytest.fixture(scope="session")
def publish_to_hub(hub):
    """Publish a build to `hub`, without the check that takes seconds; test_check.py has it."""
    api = HfApi(endpoint=hub.url, token=False)

    def run(folder, repo_id, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hub.check._check_imports", lambda variants: [])
            return publish(folder, repo_id, api=api, **options)

    return run


@pytest.fixture(scope="session")
def small(publish_to_hub, small_build):
    """The small kernel, published by two organisations."""
    for repo_id in (SMALL, TRUSTED):
        publish_to_hub(small_build, repo_id)


@pytest.fixture(scope="session")
def package(publish_to_hub, real_build):
    """This project's own package, published; in a working checkout it may have changes."""
    publish_to_hub(real_build, REAL, allow_dirty=True)


@pytest.fixture(scope="session")
def client_processes():
    """The process that all clients are forked from."""
    with ClientProcesses() as processes:
        yield processes


@pytest.fixture
def client(hub, client_processes, tmp_path):
    """A user of `hub` who has loaded nothing yet."""
    environment = client_environment(hub.url, tmp_path / "home")
    return Client(client_processes, environment, tmp_path / "work")
