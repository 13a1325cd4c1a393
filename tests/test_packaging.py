"""The package is the same from a wheel, from an editable install and from a checkout's folders."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What a wheel is made from.
SOURCES = (
    "LICENSE",
    "README.md",
    "bench",
    "hub",
    "kernels",
    "nki_emulator",
    "nki_src",
    "pyproject.toml",
    "reference",
)
PARTS = ("neuron_vit", "neuron_vit.nki_src.limits", "neuron_vit.reference", "nki_emulator")
PRINT_PLACES = f"""
import importlib
for part in {PARTS}:
    print(importlib.import_module(part).__file__)
import kernels
print(kernels.get_kernel.__module__)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the sources, so that building leaves nothing in the checkout under test."""
    root = tmp_path_factory.mktemp("checkout")
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignore)
        else:
            shutil.copyfile(ROOT / name, root / name)
    return root


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def places(path, cwd, before=""):
    """Import the parts in a new process, and return the files they were found in.

    The process sees `path` and the installed libraries, but not what the environment's own .pth
    files add: the tests may run in one where this project is installed. `before` is run first.
    """
    libraries = [entry for entry in sys.path if Path(entry).name == "site-packages"]
    run = subprocess.run(
        [sys.executable, "-S", "-c", before + PRINT_PLACES],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, *libraries]))},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    *files, hugging_face = run.stdout.splitlines()
    # `import kernels` is Hugging Face's library, not this project's folder of that name.
    assert hugging_face == "kernels.load"
    return [Path(file) for file in files]


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(checkout))
    (path,) = out.glob("*.whl")
    return path


def test_wheel_holds_the_whole_package_as_files(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for source, target in [
        ("kernels/neuron_vit", "neuron_vit"),
        ("nki_src", "neuron_vit/nki_src"),
        ("reference", "neuron_vit/reference"),
        ("nki_emulator", "nki_emulator"),
        ("bench", "bench"),
        ("hub", "hub"),
    ]:
        # A link is a part of its own in this list.
        for path in (ROOT / source).rglob("*.*"):
            if path.suffix == ".pyc" or path.is_dir():
                continue
            assert f"{target}/{path.relative_to(ROOT / source).as_posix()}" in names
    assert "neuron_vit/LICENSE" in names
    assert not [name for name in names if name.startswith(("kernels/", "nki_src/", "tests/"))]


def test_wheel_declares_its_commands_and_the_simulator(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    text = archive.read(name).decode()
    assert "nki_emulator = nki_emulator:install" in text
    assert "neuron-vit-bench = bench.__main__:main" in text
    assert "neuron-vit-hub = hub.__main__:main" in text


def test_import_from_a_wheel(wheel, tmp_path):
    target = tmp_path / "target"
    pip("install", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    found = places([target], cwd=tmp_path)
    assert [path.relative_to(target).as_posix() for path in found] == [
        "neuron_vit/__init__.py",
        "neuron_vit/nki_src/limits.py",
        "neuron_vit/reference/__init__.py",
        "nki_emulator/__init__.py",
    ]


@pytest.mark.parametrize("how", ["editable install", "PYTHONPATH"])
def test_import_from_a_checkout(checkout, tmp_path, how):
    if how == "PYTHONPATH":
        found = places([checkout, checkout / "kernels"], cwd=checkout)
    else:
        options = ["--no-deps", "--no-index", "--no-build-isolation"]
        pip("install", *options, "--target", str(tmp_path), "--editable", str(checkout))
        # What the interpreter does at its start for the environment it belongs to.
        before = f"import site; site.addsitedir({str(tmp_path)!r})"
        found = places([tmp_path], cwd=checkout, before=before)
    assert [path.relative_to(checkout).as_posix() for path in found] == [
        "kernels/neuron_vit/__init__.py",
        "kernels/neuron_vit/nki_src/limits.py",
        "kernels/neuron_vit/reference/__init__.py",
        "nki_emulator/__init__.py",
    ]
