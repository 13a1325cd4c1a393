"""The scripts of examples/ do what their docstrings say, as a user would start them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Every script, and what it is started with.
COMMANDS = {
    "classify_vit.py": ("--nki", "--images", "1"),
    "dinov2_features.py": ("--nki", "--images", "2"),
    "siglip_retrieval.py": ("--nki", "--images", "3"),
    "write_a_kernel.py": ("timeline.html",),
}


def run(name, folder, *arguments):
    """What the script prints, started in `folder` as its docstring says."""
    emulated = ("-m", "nki_emulator") if name == "write_a_kernel.py" else ()
    done = subprocess.run(
        [sys.executable, *emulated, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_every_script_is_run_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_script_is_short_and_says_how_to_run_it(name):
    text = (EXAMPLES / name).read_text()
    emulated = "-m nki_emulator " if name == "write_a_kernel.py" else ""
    assert len(text.splitlines()) < 80
    assert f"\n    python {emulated}examples/{name}" in text


def test_classify_vit(tmp_path):
    printed = run("classify_vit.py", tmp_path, *COMMANDS["classify_vit.py"])
    assert "3 of 3 blocks run as vit_block" in printed
    assert "weights: random" in printed
    assert "ran as: nki {'vit_block': 3, 'layer_norm': 1}" in printed
    assert "same as the untouched model: True" in printed
    # Not the untouched model's own arithmetic, so the kernels were there.
    (difference,) = re.findall(r"largest difference of a logit: (.+)", printed)
    assert 0 < float(difference) < 1e-3


def test_dinov2_features(tmp_path):
    printed = run("dinov2_features.py", tmp_path, *COMMANDS["dinov2_features.py"])
    assert "3 of 3 blocks run as vit_block" in printed
    assert "weights: random" in printed
    assert "ran as: nki {'vit_block': 3, 'layer_norm': 1}" in printed
    assert "features: (2, 192)" in printed
    (cosine,) = re.findall(r"cosine with the untouched model: (.+)", printed)
    assert float(cosine) >= 0.9999


def test_siglip_retrieval(tmp_path):
    printed = run("siglip_retrieval.py", tmp_path, *COMMANDS["siglip_retrieval.py"])
    assert "4 of 4 blocks run as vit_block" in printed
    assert "weights: random" in printed
    assert "ran as: nki {'vit_block': 4, 'layer_norm': 3, 'mlp': 1}" in printed
    rankings = re.findall(r"text \d: images \[(.+)\]", printed)
    assert [sorted(ranking.split(", ")) for ranking in rankings] == [["0", "1", "2"]] * 2
    assert "same ranking as the untouched model: True" in printed


def test_write_a_kernel(tmp_path):
    printed = run("write_a_kernel.py", tmp_path, *COMMANDS["write_a_kernel.py"])
    (difference,) = re.findall(r"largest difference from NumPy: (.+)", printed)
    assert float(difference) < 1e-6
    (modelled,) = re.findall(r"modelled, not measured: (.+) us on one trn2 core", printed)
    (floor,) = re.findall(r"floor by documented rates: (.+) us", printed)
    assert float(modelled) >= float(floor) > 0
    assert "how far to trust it: modelled, not measured" in printed
    page = (tmp_path / "timeline.html").read_text()
    assert "unit_rows" in page and "<canvas" in page


def test_the_kernel_is_in_the_subset_of_the_compiler():
    command = [sys.executable, "-m", "nki_emulator", "check", str(EXAMPLES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "ok")
