"""The numeric grid: every instruction in its dtypes, buffers and layouts against NumPy.

`grid.py` says how a row is run and what is checked, the `grid_rows_` modules hold the rows. The
short grid takes a sample of the combinations of each row, the long one (`-m long`) all of them.
"""

import json
import warnings
from functools import partial
from pathlib import Path

import pytest

import nki_emulator
from nki_emulator import NkiWarning
from nki_emulator.targets import BY_NAME, selected_target

from . import grid_cases as cases
from .grid import plain_case, refuse, run
from .grid_rows import OTHERS, ROWS

# Combinations of a row in the short grid: of dtypes, of layouts, on another target.
DTYPES, LAYOUTS, OTHER_TARGET = 40, 40, 8

names = pytest.mark.parametrize("row", ROWS, ids=str)
long = pytest.mark.long


def first_target(row):
    """trn2, or trn3 for what only that has."""
    return "trn3" if row.generation == 4 else "trn2"


@pytest.fixture(autouse=True)
def no_range_warnings():
    """Values outside an input range warn; test_scalar_engine.py has tests of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        yield


@names
def test_values(row, on_target):
    """Dtypes, buffers, layouts, in place, extreme values."""
    on_target(first_target(row))
    generation = selected_target().generation
    assert run(row, cases.dtype_cases(row, generation, DTYPES)[0])
    assert run(row, cases.buffer_cases(row)[0])
    assert run(row, cases.layout_cases(row, generation, LAYOUTS))
    assert run(row, cases.in_place_cases(row, generation, LAYOUTS // 2)) or not row.in_place
    if row.extremes:
        assert run(row, cases.extreme_cases(row, generation, DTYPES // 2))


@names
def test_refusals(row, on_target):
    """Other dtypes and buffers; and what every instruction owes.

    That is: unwritten elements, sizes that differ, too many dimensions, an odd first partition.
    """
    on_target(first_target(row))
    run(row, cases.dtype_cases(row, selected_target().generation, DTYPES)[1], refuse)
    assert run(row, cases.buffer_cases(row)[1], refuse)
    for operand in row.operands:
        role = operand.role
        if role not in row.loose:
            if not operand.output:
                run(row, [plain_case(row)], partial(cases.leave_one_unwritten, role=role))
            for way in ("partitions", "elements"):
                run(row, [plain_case(row)], partial(cases.wrong_size, role=role, way=way))
        if not row.free:
            run(row, [plain_case(row, width=32)], partial(cases.too_many_dims, role=role))
            run(row, [plain_case(row)], partial(cases.bad_start, role=role))


def check_on(row, generation, most):
    """A sample of a row, or all of it, on the selected target."""
    allowed, refused = cases.dtype_cases(row, generation, most)
    assert run(row, allowed)
    run(row, refused, refuse)
    assert run(row, cases.layout_cases(row, generation, most))
    run(row, cases.in_place_cases(row, generation, most))


@names
def test_other_targets(row, on_target):
    """An older core refuses what it lacks; a newer one gives the same values."""
    if row.generation == 4:
        on_target("trn2")
        assert run(row, [plain_case(row)], refuse)
    else:
        on_target("trn3")
        check_on(row, 4, OTHER_TARGET)
    on_target("trn1")
    if row.generation == 2:
        assert run(row, [plain_case(row)])
    elif row.refused_before:
        assert run(row, [plain_case(row)], refuse)


@long
@names
@pytest.mark.parametrize("target", ("trn1", "trn2", "trn3"))
def test_all(row, target, on_target):
    """Every combination, on every target that has the instruction."""
    generation = BY_NAME[target].generation
    if row.generation <= generation:
        on_target(target)
        check_on(row, generation, None)


def test_every_function_of_nki_isa_has_a_row_or_a_reason():
    api = Path(nki_emulator.__file__).with_name("api_0_6.json")
    functions = set(json.loads(api.read_text())["modules"]["nki.isa"]["functions"])
    in_rows = {name for row in ROWS for name in (row.instruction, *row.also)}
    assert functions == in_rows | set(OTHERS)
    assert not in_rows & set(OTHERS)
