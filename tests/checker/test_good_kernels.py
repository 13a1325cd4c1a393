"""Kernels of many styles that obey every rule: no false alarm."""

from pathlib import Path

import pytest

from nki_emulator.checker import check_paths
from nki_emulator.checker.program_check import check_program

FOLDER = Path(__file__).parent / "good"
ROOT = Path(__file__).parents[2]
KERNELS = sorted(FOLDER.glob("*.py")) + [FOLDER / "package"]

# Functions of kernel code in each: what the checker has to have looked at to stay silent.
FUNCTIONS = {
    "compile_time_loops": 1,
    "composed": 6,
    "configured": 6,
    "counted_loop": 1,
    "device_while": 1,
    "gather": 1,
    "generations": 3,
    "launched_later": 2,
    "made_by_a_function": 2,
    "package": 5,
    "reused_names": 1,
    "softmax": 1,
    "tiled_matmul": 1,
    "two_cores": 2,
    "wrappers": 1,
}


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_no_finding(path):
    result = check_program([path])
    assert result.findings == []
    assert result.kernels == 1
    assert result.functions == FUNCTIONS[path.stem]


def test_there_are_enough_of_them():
    assert len(KERNELS) >= 10


def test_the_kernels_of_this_repository():
    result = check_program([ROOT / "nki_src"])
    assert result.findings == []
    assert result.kernels >= 6


def test_a_link_is_the_folder_it_leads_to(tmp_path):
    link = tmp_path / "linked"
    link.symlink_to(FOLDER / "package", target_is_directory=True)
    assert check_program([link]).functions == FUNCTIONS["package"]


def test_paths_may_overlap():
    paths = [FOLDER / "package", FOLDER / "package" / "entry.py"]
    assert check_program(paths).functions == FUNCTIONS["package"]
    assert check_paths(paths) == []
