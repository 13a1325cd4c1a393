"""Building: the layout, the metadata, the names of operators, and that builds repeat exactly."""

import json

import pytest
from kernels._rust import Metadata

from hub.build import build
from hub.provenance import git_state
from tests.hub.small_kernel import commit, git, write_checkout


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def metadata(variant):
    return json.loads((variant / "metadata.json").read_text())


def test_layout(small_build):
    files = {
        "LICENSE",
        "__init__.py",
        "_ops.py",
        "functions.py",
        "layers.py",
        "metadata.json",
        "nki_src/__init__.py",
        "nki_src/double.py",
        "reference/__init__.py",
    }
    assert sorted(path.name for path in small_build.iterdir()) == [
        "CARD.md",
        "benchmarks",
        "torch-cpu",
        "torch-neuron",
    ]
    for variant in ("torch-cpu", "torch-neuron"):
        assert set(contents(small_build / variant)) == files
        assert not any(path.is_symlink() for path in (small_build / variant).rglob("*"))
    assert list(contents(small_build / "benchmarks")) == ["benchmark.py"]


def test_variants_differ_in_generated_files_only(small_build):
    cpu, neuron = contents(small_build / "torch-cpu"), contents(small_build / "torch-neuron")
    assert {name for name in cpu if cpu[name] != neuron[name]} == {"_ops.py", "metadata.json"}


@pytest.mark.parametrize("backend, depends", [("cpu", []), ("neuron", ["nki"])])
def test_metadata(small_build, backend, depends):
    variant = small_build / f"torch-{backend}"
    found = metadata(variant)
    state = git_state(small_build.parent)
    assert found["name"] == "neuron-vit"
    assert found["version"] == 1
    assert found["license"] == "Apache-2.0"
    assert found["backend"] == {"type": backend}
    assert found["python-depends"] == depends
    assert found["provenance"]["kernel"] == {"commit": state.commit, "dirty": False}
    assert set(found["digest"]["files"]) == set(contents(variant)) - {"metadata.json"}
    assert f'"{found["id"]}"' in (variant / "_ops.py").read_text()

    parsed = Metadata.read_from_file(variant / "metadata.json")
    assert parsed.id == found["id"]
    assert not parsed.provenance.dirty


def test_same_commit_elsewhere_builds_the_same_bytes(small_build, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(small_build.parent), str(clone))
    build(clone, clone / "build")
    assert contents(clone / "build") == contents(small_build)


def test_building_again_replaces_what_an_earlier_build_left(breakable, tmp_path):
    root = write_checkout(tmp_path / "checkout")
    (breakable / "torch-cpu" / "removed.py").write_text("")
    (breakable / "torch-cuda").mkdir()
    (breakable / "mine.txt").write_text("")
    build(root, breakable)
    assert not (breakable / "torch-cpu" / "removed.py").exists()
    assert not (breakable / "torch-cuda").exists()
    assert (breakable / "mine.txt").exists()


def test_unique_id_follows_the_content(small_build, tmp_path):
    root = write_checkout(tmp_path / "checkout")
    same = metadata(build(root, root / "build")[0])["id"]
    assert same == metadata(small_build / "torch-cpu")["id"]

    reference = root / "reference" / "__init__.py"
    reference.write_text(reference.read_text() + "# changed\n")
    assert metadata(build(root, root / "build")[0])["id"] != same

    manifest = root / "build.toml"
    reference.write_text(reference.read_text().replace("# changed\n", ""))
    assert metadata(build(root, root / "build")[0])["id"] == same
    manifest.write_text(manifest.read_text().replace("version = 1", "version = 2"))
    assert metadata(build(root, root / "build")[0])["id"] != same


def test_uncommitted_changes_are_recorded(tmp_path):
    root = write_checkout(tmp_path / "checkout")
    head = commit(root)
    (root / "kernels" / "neuron_vit" / "extra.py").write_text('"""Not committed."""\n')
    found = metadata(build(root, root / "build")[0])
    assert found["id"].endswith("_dirty")
    assert found["provenance"]["kernel"] == {"commit": head, "dirty": True}


def test_what_git_ignores_is_in_no_build(small_build, tmp_path):
    """It is in no commit, and yet does not make a checkout dirty."""
    root = write_checkout(tmp_path / "checkout")
    ignore = root / ".gitignore"
    ignore.write_text(ignore.read_text() + "scratch.py\nbenchmark_local.py\n")
    commit(root)
    for name in ("kernels/neuron_vit/scratch.py", "nki_src/scratch.py"):
        (root / name).write_text("")
    (root / "benchmarks" / "benchmark_local.py").write_text("")
    variant = build(root, root / "build")[0]
    assert not git_state(root).dirty
    assert set(contents(variant)) == set(contents(small_build / "torch-cpu"))
    assert list(contents(root / "build" / "benchmarks")) == ["benchmark.py"]


def test_untracked_files_count_whatever_the_users_settings(tmp_path):
    root = write_checkout(tmp_path / "checkout")
    commit(root)
    git(root, "config", "status.showUntrackedFiles", "no")
    assert not git_state(root).dirty
    (root / "kernels" / "neuron_vit" / "extra.py").write_text("")
    assert git_state(root).dirty


def test_no_git_means_no_claim_about_a_commit(tmp_path):
    root = write_checkout(tmp_path / "checkout")
    found = metadata(build(root, root / "build")[0])
    assert "kernel" not in found["provenance"]

    # A folder inside somebody else's repository says nothing about this one's files.
    commit(tmp_path)
    assert git_state(tmp_path) is not None
    assert git_state(root) is None


def test_bytecode_and_hidden_files_stay_behind(tmp_path):
    root = write_checkout(tmp_path / "checkout")
    package = root / "kernels" / "neuron_vit"
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "layers.cpython-311.pyc").write_bytes(b"")
    (package / "left.pyc").write_bytes(b"")
    (package / ".hidden").write_text("")
    variant = build(root, root / "build")[0]
    assert not {"left.pyc", ".hidden"} & set(contents(variant))
    assert not (variant / "__pycache__").exists()


@pytest.mark.parametrize(
    "change, error",
    [
        (("[torch-noarch]", "[torch]"), "torch"),
        (('repo-id = "org/neuron-vit"', ""), "repo-id"),
        (('name = "neuron-vit"', 'name = "neuron_vit"'), "name"),
        (("edition = 5", "edition = 6"), "edition"),
        (("version = 1", "version = 1\nunheard-of = 1"), "unheard-of"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path, change, error):
    root = write_checkout(tmp_path / "checkout")
    manifest = root / "build.toml"
    assert change[0] in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(*change))
    with pytest.raises(ValueError, match=error):
        build(root, root / "build")


def test_without_a_manifest_the_message_says_where_to_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="run this in a checkout"):
        build(tmp_path, tmp_path / "build")
