"""The rule table: what it says of each rule, and where errors and the command line show it."""

import re
import subprocess
import sys

import pytest

from nki_emulator.checker.rules import TABLE
from nki_emulator.rulebook import PAGES, PARTS, RULES, place_of, table_text
from nki_emulator.rulebook.pages import EACH, ISA

from .support import nisa, nl, refused, simulate, tile


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_says_what_is_allowed_and_where(rule):
    entry = RULES[rule]
    assert entry.statement and not entry.statement.endswith(".") and "|" not in entry.statement
    assert "|" not in entry.place and not entry.place.endswith((".", ";", ","))
    if entry.is_own:
        assert re.fullmatch(r"none: \S.+", entry.place), "say why the emulator has the rule"
        return
    for part in entry.place.split("; "):
        pages = re.findall(r"[\w./-]+\.rst|api/nki(?:/\w+)?(?=[: (,]|$)", part)
        assert pages or not part.startswith(("api", "deep", "guides", "get-", "migration"))
        assert set(pages) <= PAGES, part
    first = entry.place.split(": ")[0].split(", ")[0]
    assert first in PAGES, "a place starts with a page"


def test_no_rule_is_in_two_parts():
    assert sum(map(len, PARTS.values())) == len(RULES)


def test_places_are_of_this_documentation():
    """A page that no rule is from is a leftover."""
    text = " ".join(entry.place for entry in RULES.values())
    assert {page for page in PAGES if page not in text} == set()


def test_a_shared_rule_names_the_instruction():
    shared = [rule for rule, entry in RULES.items() if EACH in entry.place]
    assert "free-size" in shared
    for rule in shared:
        assert f"{ISA}: tensor_copy" in place_of(rule, "tensor_copy")
        assert f"{ISA}: the instruction" in place_of(rule)


def test_an_unknown_id_has_no_place():
    assert place_of("no-such-rule") == ""


def test_an_error_ends_with_the_place():
    def kernel():
        t = tile((4, 4))
        nisa.tensor_copy(dst=t, src=tile((4, 3)))  # rule

    text = str(refused("free-size", kernel))
    assert text.endswith("\n  documentation: api/nki/isa: tensor_copy, Tile size")


def test_an_error_of_the_emulators_own_says_so():
    def kernel():
        nisa.memset(dst=tile((4, 4), nl.uint8), value=256)  # rule

    assert "\n  documentation: none: nothing says" in str(refused("memset-range", kernel))


def test_a_warning_names_the_place():
    def kernel():
        t = tile((2, 2), value=-1.0)
        nisa.activation(dst=t, op=nl.log, data=t)

    place = r"\(documentation: api/nki\.api\.shared\.rst: Supported Activation Functions"
    with pytest.warns(UserWarning, match=place):
        simulate(kernel)()


def test_the_table_has_a_row_for_each_rule():
    rows = [line for line in table_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| rule |")]
    assert len(rows) == len(RULES)
    assert all(row.count("|") == 4 and "{" not in row for row in rows)
    assert {row.split(" | ")[0][2:] for row in rows} == set(RULES)


def test_the_command_prints_both_tables():
    command = [sys.executable, "-m", "nki_emulator", "rules"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert table_text() in printed
    assert all(f"| {rule.id} |" in printed for rule in TABLE)
    assert printed.index("# Rules of the emulator") < printed.index("# Rules of the language")
