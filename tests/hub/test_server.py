"""The loopback Hub itself: what the real clients can do with it, and how it refuses."""

import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.hub_server import LoopbackHub, client_environment, serve

REPO = {"repo_id": "org/name", "repo_type": "kernel"}


@pytest.fixture
def api(loopback):
    return HfApi(endpoint=loopback.url, token=False)


def test_it_listens_on_loopback_only():
    with serve() as url:
        assert urlsplit(url).hostname == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=5).connect()


def test_create_commit_list_and_download(api, loopback, tmp_path):
    api.create_repo(**REPO)
    api.create_branch(**REPO, branch="v1")
    (tmp_path / "build" / "sub").mkdir(parents=True)
    (tmp_path / "build" / "one.py").write_text("1\n")
    (tmp_path / "build" / "sub" / "two.py").write_text("2\n")
    commit = api.upload_folder(
        **REPO, folder_path=tmp_path / "build", path_in_repo="build", revision="v1"
    )
    assert loopback.repositories["org/name"].branches["v1"] == commit.oid
    assert api.repo_exists(**REPO)
    assert api.revision_exists(**REPO, revision="v1")
    assert api.kernel_info("org/name", revision="v1").sha == commit.oid
    assert api.kernel_info("org/name", revision="refs/heads/v1").sha == commit.oid
    assert set(api.list_repo_files(**REPO, revision="v1")) == {
        ".gitattributes",
        "build/one.py",
        "build/sub/two.py",
    }
    entries = api.list_repo_tree(**REPO, path_in_repo="build", revision="v1")
    assert sorted((type(entry).__name__, entry.path) for entry in entries) == [
        ("RepoFile", "build/one.py"),
        ("RepoFolder", "build/sub"),
    ]
    folder = snapshot_download(
        **REPO, revision="v1", endpoint=loopback.url, cache_dir=tmp_path / "cache", token=False
    )
    assert (Path(folder) / "build" / "sub" / "two.py").read_text() == "2\n"


def test_deleting_files_and_folders(api, loopback, tmp_path):
    api.create_repo(**REPO)
    for name in ("a/one", "a/two", "b"):
        api.upload_file(**REPO, path_or_fileobj=name.encode(), path_in_repo=name)
    api.delete_folder("a", **REPO)
    assert set(api.list_repo_files(**REPO)) == {".gitattributes", "b"}
    api.delete_file("b", **REPO)
    assert api.list_repo_files(**REPO) == [".gitattributes"]
    with pytest.raises(RemoteEntryNotFoundError):
        api.delete_file("b", **REPO)


def test_refusals_are_the_ones_clients_know(api, loopback, tmp_path):
    with pytest.raises(RepositoryNotFoundError):
        api.kernel_info("org/name")
    api.create_repo(**REPO)
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_repo(**REPO)
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_branch(**REPO, branch="main")
    with pytest.raises(RevisionNotFoundError):
        api.kernel_info("org/name", revision="v9")
    with pytest.raises(RemoteEntryNotFoundError):
        hf_hub_download(
            **REPO, filename="none", endpoint=loopback.url, cache_dir=tmp_path, token=False
        )
    with pytest.raises(HfHubHTTPError, match="403"):
        api.create_repo("closed/name", repo_type="kernel")
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/name")


def test_changes_may_need_a_token(tmp_path):
    with LoopbackHub(write_token="secret") as hub:
        with pytest.raises(HfHubHTTPError, match="401"):
            HfApi(endpoint=hub.url, token=False).create_repo(**REPO)
        with pytest.raises(HfHubHTTPError, match="401"):
            HfApi(endpoint=hub.url, token="another").create_repo(**REPO)
        HfApi(endpoint=hub.url, token="secret").create_repo(**REPO)
        # Reading takes none.
        assert HfApi(endpoint=hub.url, token=False).repo_exists(**REPO)


def test_a_body_may_come_in_chunks(loopback):
    connection = HTTPConnection("127.0.0.1", urlsplit(loopback.url).port)
    chunks = iter([b'{"type": "kernel", "organ', b'ization": "org", "name": "n"}'])
    connection.request("POST", "/api/repos/create", body=chunks, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read()
    # The connection is good for another request.
    connection.request("GET", "/api/kernels/org/n/refs")
    assert connection.getresponse().status == 200
    connection.close()


def test_the_hf_command(loopback, tmp_path):
    (tmp_path / "build" / "torch-cpu").mkdir(parents=True)
    (tmp_path / "build" / "torch-cpu" / "one.py").write_text("1\n")
    hf = [str(Path(sys.executable).with_name("hf"))]
    repository = ["org/name", "--type", "kernel"]
    commands = [
        [*hf, "repos", "create", *repository, "--exist-ok"],
        [*hf, "repos", "branch", "create", "org/name", "v1", "--type", "kernel"],
        [*hf, "upload", "org/name", "build", "build", "--type", "kernel", "--revision", "v1"],
    ]
    for command in commands:
        run = subprocess.run(
            command,
            env=client_environment(loopback.url, tmp_path / "home"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
    files = loopback.repositories["org/name"].resolve("v1").files
    assert files["build/torch-cpu/one.py"] == b"1\n"
