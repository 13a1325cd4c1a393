"""Publishing with the real client to the loopback Hub."""

import shutil

import pytest
from huggingface_hub import HfApi

from hub.__main__ import main
from hub.build import build
from hub.publish import PublishError, publish
from tests.hub.small_kernel import commit, git, write_checkout
from tests.hub_server import LoopbackHub

REPO = "org/neuron-vit"


@pytest.fixture(autouse=True)
def without_import_check(monkeypatch):
    """Leave out the check that takes seconds; test_check.py has it."""
    monkeypatch.setattr("hub.check._check_imports", lambda variants: [])


@pytest.fixture
def api(loopback):
    return HfApi(endpoint=loopback.url, token=False)


def test_what_goes_where(small_build, loopback, api):
    publication = publish(small_build, REPO, api=api)
    repository = loopback.repositories[REPO]
    assert set(repository.branches) == {"main", "v1"}
    assert publication.commits == repository.branches

    main_files = repository.resolve("main").files
    assert set(main_files) == {".gitattributes", "README.md"}
    assert main_files["README.md"] == (small_build / "CARD.md").read_bytes()

    version_files = repository.resolve("v1").files
    assert {path for path in version_files if not path.startswith("build/")} == {
        ".gitattributes",
        "README.md",
        "benchmarks/benchmark.py",
    }
    for path in small_build.glob("torch-*/**/*"):
        if path.is_file():
            assert version_files[f"build/{path.relative_to(small_build)}"] == path.read_bytes()


def test_second_publication_makes_no_commit(small_build, loopback, api):
    publish(small_build, REPO, api=api)
    commits = list(loopback.repositories[REPO].commits)
    again = publish(small_build, REPO, api=api)
    assert again.commits == {}
    assert list(loopback.repositories[REPO].commits) == commits


def test_changed_build_replaces_the_old_one(small_build, loopback, api, tmp_path):
    publish(small_build, REPO, api=api)
    before = dict(loopback.repositories[REPO].branches)
    root = write_checkout(tmp_path / "checkout")
    layers = root / "kernels" / "neuron_vit" / "layers.py"
    layers.rename(layers.with_name("more_layers.py"))
    init = layers.with_name("__init__.py")
    init.write_text(init.read_text().replace("layers", "more_layers"))
    (root / "benchmarks" / "benchmark.py").unlink()
    commit(root)
    build(root, root / "build")

    publication = publish(root / "build", REPO, api=api)
    repository = loopback.repositories[REPO]
    files = repository.resolve("v1").files
    assert "build/torch-cpu/layers.py" not in files
    assert "build/torch-cpu/more_layers.py" in files
    assert "benchmarks/benchmark.py" not in files
    assert before["v1"] in repository.commits
    assert publication.commits["v1"] == repository.branches["v1"] != before["v1"]


def test_versions_have_branches_of_their_own(small_build, loopback, api, tmp_path):
    publish(small_build, REPO, api=api)
    before = loopback.repositories[REPO].branches["v1"]
    root = write_checkout(tmp_path / "checkout")
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace("version = 1", "version = 2"))
    commit(root)
    build(root, root / "build")
    assert publish(root / "build", REPO, api=api).branch == "v2"
    assert set(loopback.repositories[REPO].branches) == {"main", "v1", "v2"}
    assert loopback.repositories[REPO].branches["v1"] == before


def test_dry_run_asks_nothing_of_the_hub(small_build, loopback, api):
    publication = publish(small_build, REPO, api=api, dry_run=True)
    assert loopback.requests == []
    assert publication.commits == {}
    assert "build/torch-neuron/metadata.json" in publication.files
    assert "README.md" in publication.files


def test_dirty_build_is_refused_unless_allowed(loopback, api, tmp_path):
    root = write_checkout(tmp_path / "checkout")
    commit(root)
    (root / "note.txt").write_text("not committed")
    build(root, root / "build")
    with pytest.raises(PublishError, match="uncommitted changes"):
        publish(root / "build", REPO, api=api)
    assert loopback.requests == []
    assert publish(root / "build", REPO, api=api, allow_dirty=True).commits


def test_build_of_unknown_origin_is_refused_unless_allowed(loopback, api, tmp_path):
    root = write_checkout(tmp_path / "checkout")
    build(root, root / "build")
    with pytest.raises(PublishError, match="which commit"):
        publish(root / "build", REPO, api=api)
    assert publish(root / "build", REPO, api=api, allow_dirty=True).commits


def test_build_with_a_fault_is_refused(breakable, loopback, api):
    (breakable / "torch-cpu" / "functions.py").write_text("")
    with pytest.raises(PublishError, match="torch-cpu.*functions.py"):
        publish(breakable, REPO, api=api)
    assert loopback.requests == []


def test_missing_permission_is_explained(small_build, api):
    with pytest.raises(PublishError) as refused:
        publish(small_build, "closed/neuron-vit", api=api)
    message = str(refused.value)
    assert message.startswith("the Hub refused to publish closed/neuron-vit: ")
    assert "You don't have the rights to create a kernel" in message
    assert message.endswith(
        "The token needs write access to closed, and closed needs the right to create kernels, "
        "which its administrators request on the Hub."
    )


def test_permission_lost_after_the_repository_was_made_is_explained(small_build, loopback, api):
    publish(small_build, REPO, api=api)
    before = dict(loopback.repositories[REPO].branches)
    loopback.read_only = ("org",)
    with pytest.raises(PublishError, match="The token needs write access to org"):
        publish(small_build, REPO, api=api)
    assert loopback.repositories[REPO].branches == before


def test_missing_token_is_explained(small_build):
    with LoopbackHub(write_token="secret") as hub:
        for token in (False, "wrong"):
            with pytest.raises(PublishError, match="Log in with `hf auth login`, with a token"):
                publish(small_build, REPO, api=HfApi(endpoint=hub.url, token=token))
        publish(small_build, REPO, api=HfApi(endpoint=hub.url, token="secret"))
        assert set(hub.repositories[REPO].branches) == {"main", "v1"}


def test_hub_that_cannot_be_reached(small_build):
    with LoopbackHub() as hub:
        api = HfApi(endpoint=hub.url, token=False)
    with pytest.raises(PublishError) as refused:
        publish(small_build, REPO, api=api)
    assert f"the Hub at {api.endpoint} cannot be reached" in str(refused.value)


def test_interrupted_publication_is_finished_by_the_next(small_build, loopback, api, monkeypatch):
    def interrupted(**options):
        if options["revision"] == "v1":
            raise KeyboardInterrupt
        return commit_to_hub(**options)

    commit_to_hub = api.create_commit
    with monkeypatch.context() as patch:
        patch.setattr(api, "create_commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            publish(small_build, REPO, api=api)
    finished = publish(small_build, REPO, api=api)
    assert list(finished.commits) == ["v1"]
    assert "build/torch-cpu/__init__.py" in loopback.repositories[REPO].resolve("v1").files


def test_build_without_a_card_is_refused(breakable, api):
    (breakable / "CARD.md").unlink()
    with pytest.raises(PublishError, match="holds no CARD.md"):
        publish(breakable, REPO, api=api)


def test_build_is_that_of_the_checkout_as_it_stands(tmp_path, capsys):
    root = write_checkout(tmp_path / "checkout")
    commit(root)
    command = ["--root", str(root), "publish", "--dry-run"]
    assert main(["--root", str(root), "build"]) == 0
    assert main(command) == 0
    capsys.readouterr()

    notes = root / "notes.txt"
    notes.write_text("not committed")
    assert main(command) == 1
    assert "the checkout has uncommitted changes" in capsys.readouterr().err
    assert main([*command, "--allow-dirty"]) == 0

    git(root, "add", "notes.txt")
    git(root, "commit", "--quiet", "--message", "Notes")
    assert main(command) == 1
    head = git(root, "rev-parse", "HEAD").strip()
    assert f"the checkout is at {head}; build again" in capsys.readouterr().err
    assert main(["--root", str(root), "build"]) == 0
    assert main(command) == 0


def test_publishing_this_project_twice_makes_no_second_commit(real_build, loopback, api):
    publish(real_build, REPO, api=api, allow_dirty=True)
    commits = list(loopback.repositories[REPO].commits)
    assert publish(real_build, REPO, api=api, allow_dirty=True).commits == {}
    assert list(loopback.repositories[REPO].commits) == commits


def test_command_line(tmp_path, capsys):
    root = write_checkout(tmp_path / "checkout")
    commit(root)
    assert main(["--root", str(root), "build"]) == 0
    assert main(["--root", str(root), "check"]) == 0
    assert main(["--root", str(root), "publish", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "torch-neuron" in printed
    assert "nothing found" in printed
    assert "would publish org/neuron-vit" in printed

    (root / "build" / "torch-cpu" / "LICENSE").unlink()
    assert main(["--root", str(root), "check"]) == 1
    assert main(["--root", str(root), "publish", "--dry-run"]) == 1
    shutil.rmtree(root / "build")
    assert main(["--root", str(tmp_path), "build"]) == 1
    assert "run this in a checkout" in capsys.readouterr().err
