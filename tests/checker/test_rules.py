"""The tables of the checker agree with the API data and with each other."""

import pytest

from nki_emulator.checker import RULES, operand_rules
from nki_emulator.checker.api import BUFFERS, DTYPES, TILE_SIZES, load_api
from nki_emulator.checker.checks.partitions import ENGINE_INSTRUCTIONS
from nki_emulator.checker.checks.wrappers import BINARY, NO_DEVICE_FUNCTION
from nki_emulator.checker.evaluate import CREATORS, PSUM_RESULTS, SBUF_RESULTS
from nki_emulator.checker.old_names import (
    BETA_NAMES,
    ENGINE_CONSTANTS,
    RANGE_ALIASES,
    REMOVED_ARGUMENTS,
    REMOVED_FUNCTIONS,
    TILE_SIZE_NAMES,
)
from nki_emulator.checker.rules import TABLE, rules_text

API = load_api()

OPERANDS = [
    (instruction, operand)
    for table in (
        operand_rules.SBUF_OPERANDS,
        operand_rules.PSUM_OPERANDS,
        operand_rules.ON_CHIP_OPERANDS,
        operand_rules.NOT_BOTH_PSUM,
        operand_rules.GPSIMD_OPERANDS,
        operand_rules.SAME_DTYPE,
        operand_rules.SAME_SHAPE,
        operand_rules.OPERATIONS,
        operand_rules.DTYPES,
    )
    for instruction, operands in table.items()
    for operand in operands
]


def test_ids_are_unique_and_texts_complete():
    assert len(RULES) == len(TABLE)
    for rule in TABLE:
        assert all((rule.title, rule.allowed, rule.fix, rule.source)), rule.id
        # Texts are joined by "; " and must not end a sentence of their own.
        assert not rule.allowed.endswith(".") and not rule.fix.endswith("."), rule.id


def test_every_number_of_the_list_is_there():
    numbers = {rule.id[:3] for rule in TABLE}
    assert numbers >= {f"E{number:02d}" for number in range(1, 21)}


def test_printed_table_has_every_rule():
    rows = rules_text().splitlines()[2:]
    assert [row.split()[1] for row in rows] == list(RULES)
    assert all(row.count("|") == 6 for row in rows)


@pytest.mark.parametrize("instruction, operand", OPERANDS)
def test_operands_exist(instruction, operand):
    assert operand in API.functions[f"nki.isa.{instruction}"].names


@pytest.mark.parametrize("instruction", operand_rules.ENGINES)
def test_engines_exist(instruction):
    assert API.functions[f"nki.isa.{instruction}"].enum_of("engine") == "nki.isa.engine"
    assert set(operand_rules.ENGINES[instruction]) <= set(API.enums["nki.isa.engine"])


def test_operations_exist():
    names = set().union(
        *(rules for table in operand_rules.OPERATIONS.values() for rules in table.values())
    )
    assert {name for name in names if f"nki.language.{name}" not in API.names} == set()


def test_dtypes_exist():
    tables = [*operand_rules.DTYPES.values()]
    used = set().union(*(dtypes for table in tables for dtypes in table.values())) | DTYPES
    assert {name for name in used if f"nki.language.{name}" not in API.names} == set()


def test_other_names_exist():
    language = [*CREATORS, *PSUM_RESULTS, *SBUF_RESULTS, *BUFFERS]
    paths = {f"nki.language.{name}" for name in language}
    paths |= {f"nki.language.tile_size.{name}" for name in TILE_SIZES}
    paths |= BINARY | NO_DEVICE_FUNCTION | ENGINE_INSTRUCTIONS | RANGE_ALIASES
    paths |= set(ENGINE_CONSTANTS) | set(TILE_SIZE_NAMES)
    assert paths - API.names == set()


def test_removed_names_do_not_exist():
    assert API.names.isdisjoint([*REMOVED_FUNCTIONS, *BETA_NAMES])
    for function, argument in REMOVED_ARGUMENTS:
        assert argument not in API.functions[function].names


def test_enum_parameters_are_found_from_their_defaults():
    copy = API.functions["nki.isa.dma_copy"]
    found = {name: copy.enum_of(name) for name in copy.names}
    assert {name: enum for name, enum in found.items() if enum} == {
        "oob_mode": "nki.isa.oob_mode",
        "dge_mode": "nki.isa.dge_mode",
        "engine": "nki.isa.engine",
    }
