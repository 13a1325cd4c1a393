"""What loading does when something is missing, changed or switched off, and what the user reads.

The messages are the kernels library's. They are asserted in full, because the README explains them
and because a way around one of its faults can go when the fault does.
"""

import pytest

from hub.__main__ import main
from hub.build import build
from tests.hub.small_kernel import commit, write_checkout

pytestmark = pytest.mark.xdist_group("hub_load")

# Downloads a whole branch, which is what loading offline takes.
DOWNLOAD = """
from huggingface_hub import snapshot_download
snapshot_download("org/small", repo_type="kernel", revision="v1")
"""
OFFLINE = {"HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def triple_build(tmp_path_factory):
    """A build in which `double` triples: another content of the same version."""
    return changed_build(tmp_path_factory.mktemp("triple"), version=1, factor=3)


@pytest.fixture(scope="module")
def second_version(tmp_path_factory):
    """A build of version 2, in which `double` quadruples."""
    return changed_build(tmp_path_factory.mktemp("second"), version=2, factor=4)


def changed_build(folder, version, factor):
    root = write_checkout(folder / "checkout")
    reference = root / "reference" / "__init__.py"
    reference.write_text(reference.read_text().replace("x * 2", f"x * {factor}"))
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace("version = 1", f"version = {version}"))
    commit(root)
    build(root, root / "build")
    return root / "build"


def test_an_untrusted_publisher(client, small):
    shown = client(
        """
from kernels import get_kernel
show(
    untrusted=failure(get_kernel, "org/small", version=1),
    listed=get_kernel("org/small", version=1, trust_remote_code=["org/small"]).__all__,
    trusted=get_kernel("trusted/small", version=1).__all__,
    unknown=failure(get_kernel, "nobody/small", version=1),
)
"""
    )
    remedy = (
        "Set trust_remote_code=True or add the repository ID to the trust_remote_code allowlist to "
        "allow loading kernels from untrusted sources."
    )
    assert shown["untrusted"] == (
        f"ValueError: Kernel repository 'org/small' is not from a trusted publisher. {remedy}"
    )
    assert shown["listed"] == shown["trusted"] == ["double", "layers"]
    assert shown["unknown"] == (
        "ValueError: Kernel repository 'nobody/small' could not verify publisher trust status. "
        + remedy
    )


def test_a_missing_version_repository_and_revision(client, small):
    shown = client(
        """
from kernels import get_kernel
show(
    version=failure(get_kernel, "org/small", version=2, trust_remote_code=True),
    repository=failure(get_kernel, "org/nothing", version=1, trust_remote_code=True),
    main=failure(get_kernel, "org/small", revision="main", trust_remote_code=True),
    neither=failure(get_kernel, "org/small", trust_remote_code=True),
)
"""
    )
    assert shown["version"] == "ValueError: Version 2 not found, available versions: 1"
    assert shown["repository"].startswith("RepositoryNotFoundError: 404 Client Error.")
    assert "make sure you specified the correct `repo_id`" in shown["repository"]
    assert shown["main"].startswith("RemoteEntryNotFoundError: 404 Client Error.")
    assert shown["main"].endswith("build does not exist on main")
    assert shown["neither"].startswith(
        "ValueError: A kernel version or revision must be specified. Use `version=<major>`"
    )


def test_a_neuron_host_without_nki_is_told_what_to_install(client, small):
    shown = client(
        """
torch.neuron = types.SimpleNamespace()
sys.modules["nki"] = None
from kernels import get_kernel, has_kernel
show(
    error=failure(get_kernel, "org/small", version=1, trust_remote_code=True),
    offered=has_kernel("org/small", version=1, trust_remote_code=True),
    cpu=get_kernel("org/small", version=1, trust_remote_code=True, backend="cpu").__all__,
)
"""
    )
    assert shown["error"] == (
        "ImportError: Kernel module `neuron_vit` requires Python dependency `nki`. Please install "
        "with: pip install nki"
    )
    assert shown["offered"]  # has_kernel() does not look at what a variant depends on
    assert shown["cpu"] == ["double", "layers"]


def test_offline_after_a_full_download(client, hub, small):
    client(DOWNLOAD + "show()")
    hub.requests.clear()
    shown = client(
        """
from kernels import get_kernel
kernel = get_kernel("org/small", version=1)
show(result=kernel.double(torch.ones(1)).tolist())
""",
        **OFFLINE,
    )
    assert shown["result"] == [2]
    assert hub.requests == []


def test_offline_without_a_full_download(client, small):
    """Loading online is not enough: it fetches one variant, and no name for the version."""
    load = """
from kernels import get_kernel
show(error=failure(get_kernel, "org/small", version=1, trust_remote_code=True))
"""
    assert client(load)["error"] == "no error"
    found = client(load, **OFFLINE)
    assert found["error"] == (
        "ValueError: Version 1 of 'org/small' is not available in the local cache and Hugging Face "
        "Hub is in offline mode. Download the kernel while online first, or pass an explicit "
        "`revision=<commit>`."
    )


def test_a_pinned_revision_stays_when_the_version_moves(
    client, publish_to_hub, small_build, triple_build
):
    old = publish_to_hub(small_build, "org/moving").commits["v1"]
    new = publish_to_hub(triple_build, "org/moving").commits["v1"]
    shown = client(
        f"""
from kernels import get_kernel, get_loaded_kernels
pinned = get_kernel("org/moving", revision="{old}", trust_remote_code=True)
latest = get_kernel("org/moving", version=1, trust_remote_code=True)
show(
    pinned=pinned.double(torch.ones(1)).tolist(),
    latest=latest.double(torch.ones(1)).tolist(),
    again=pinned.double(torch.ones(1)).tolist(),
    revisions=[loaded.repo_info.revision for loaded in get_loaded_kernels()],
)
"""
    )
    # Both are loaded, and neither took the other's operators.
    assert (shown["pinned"], shown["latest"], shown["again"]) == ([2], [3], [2])
    assert shown["revisions"] == [old, new]


def test_two_versions_in_one_process(client, publish_to_hub, small_build, second_version):
    publish_to_hub(small_build, "org/both")
    publish_to_hub(second_version, "org/both")
    shown = client(
        """
from kernels import get_kernel, get_loaded_kernels
first, second = (
    get_kernel("org/both", version=version, trust_remote_code=True) for version in (1, 2)
)
x = torch.ones(1)
compiled = torch.compile(lambda x: (first.double(x), second.double(x)), backend="eager")
show(
    results=[first.double(x).item(), second.double(x).item(), first.double(x).item()],
    compiled=[result.item() for result in compiled(x)],
    versions=[loaded.metadata.version for loaded in get_loaded_kernels()],
    namespaces=len({n for n in torch.ops._dir if n.startswith("_neuron_vit")}),
)
"""
    )
    assert shown["results"] == [2, 4, 2]
    assert shown["compiled"] == [2, 4]
    assert shown["versions"] == [1, 2]
    assert shown["namespaces"] == 2


def write_project(folder, repo_id):
    text = f'[tool.kernels.dependencies]\n"{repo_id}" = 1\n'
    (folder / "pyproject.toml").write_text(text)


LOAD_LOCKED = """
from pathlib import Path
from kernels import {function}
kernel = {function}("trusted/locked", lockfile=Path("kernels.lock"))
show(result=kernel.double(torch.ones(1)).tolist())
"""


def test_a_lockfile(client, hub, publish_to_hub, small_build, triple_build):
    locked = publish_to_hub(small_build, "trusted/locked").commits["v1"]
    write_project(client.folder, "trusted/locked")
    assert client.kernels("lock", ".").returncode == 0
    assert f'"commit":"{locked}"' in (client.folder / "kernels.lock").read_text().replace(" ", "")

    publish_to_hub(triple_build, "trusted/locked")
    assert client(LOAD_LOCKED.format(function="get_locked_kernel"))["result"] == [2]

    run = client.kernels("download", ".")
    assert (run.returncode, run.stderr.splitlines()[0]) == (
        0,
        f"Downloading kernel: trusted/locked (revision: {locked})",
    )
    # That fetched one variant, which is not enough for `load_kernel`; the whole commit is.
    shown = client(
        """
from pathlib import Path
from kernels import load_kernel
show(error=failure(load_kernel, "trusted/locked", lockfile=Path("kernels.lock")))
"""
    )
    assert shown["error"].startswith(
        f"FileNotFoundError: Cannot find a local snapshot for trusted/locked (revision: {locked})."
    )
    client(
        f"""
from huggingface_hub import snapshot_download
snapshot_download("trusted/locked", repo_type="kernel", revision="{locked}")
show()
"""
    )
    hub.requests.clear()
    assert client(LOAD_LOCKED.format(function="load_kernel"), **OFFLINE)["result"] == [2]
    assert hub.requests == []


def test_locking_an_untrusted_publisher(client, small):
    write_project(client.folder, "org/small")
    run = client.kernels("lock", ".")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith(
        "ValueError: Kernel repository 'org/small' is not from a trusted publisher."
    )


def test_a_tampered_file_loads_and_is_found_by_check(
    client, hub, publish_to_hub, small_build, capsys
):
    publish_to_hub(small_build, "org/tampered")
    repository = hub.repositories["org/tampered"]
    files = dict(repository.resolve("v1").files)
    path = "build/torch-cpu/reference/__init__.py"
    files[path] = files[path].replace(b"x * 2", b"x * 7")
    repository.commit("v1", files, "tampered")

    shown = client(
        """
from huggingface_hub import snapshot_download
from kernels import get_kernel
kernel = get_kernel("org/tampered", version=1, trust_remote_code=True)
snapshot_download(
    "org/tampered", repo_type="kernel", revision="v1", local_dir="download"
)
show(result=kernel.double(torch.ones(1)).tolist())
"""
    )
    assert shown["result"] == [7]  # nobody compares digests when a kernel is loaded
    assert main(["--out", str(client.folder / "download" / "build"), "check"]) == 1
    mismatch, disagreement, count = capsys.readouterr().out.splitlines()
    assert mismatch.startswith("torch-cpu: File hash mismatch for reference/__init__.py: expected:")
    assert disagreement == "torch-neuron/reference/__init__.py: is not the same as in torch-cpu"
    assert count == "2 findings"


@pytest.mark.parametrize(
    "variable", ["HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK"]
)
def test_telemetry_switched_off_breaks_get_kernel(client, small, variable):
    """A fault of kernels 0.17. A download does not go through it, and a folder can be loaded."""
    shown = client(
        """
from pathlib import Path
from huggingface_hub import snapshot_download
from kernels import get_kernel, get_local_kernel

folder = snapshot_download(
    "org/small", repo_type="kernel", revision="v1", local_dir="download"
)
show(
    error=failure(get_kernel, "org/small", version=1, trust_remote_code=True),
    result=get_local_kernel(Path(folder)).double(torch.ones(1)).tolist(),
)
""",
        **{variable: "1"},
    )
    assert shown["error"].startswith("LocalProtocolError: Illegal header value b'kernels/0.17")
    assert shown["result"] == [2]
