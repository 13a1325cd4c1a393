"""Every rule id in the emulator's source is named by a test, and rule ids are written plainly."""

import ast
import re
from pathlib import Path

import nki_emulator

PACKAGE = Path(nki_emulator.__file__).parent
# The language checker has rules and tests of its own.
SOURCES = [p for p in PACKAGE.rglob("*.py") if "checker" not in p.parts]
RAISERS = {
    "NkiValidationError", "NkiCapacityError", "NkiUninitializedRead", "NkiArgumentError", "warn",
}  # fmt: skip
# Built from the name of the memory.
COMPUTED = {"sbuf-full", "psum-full"}


def rules_in_the_source():
    found = {"not-implemented", "return-unwritten", *COMPUTED}
    computed = 0
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in RAISERS:
                if not isinstance(node.args[0], ast.Constant):
                    computed += 1
                    continue
                found.add(node.args[0].value)
    return found, computed


def strings_in_the_tests():
    for path in Path(__file__).parent.glob("test_*.py"):
        if path.name != Path(__file__).name:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_every_rule_is_tested():
    rules, computed = rules_in_the_source()
    named = set(strings_in_the_tests())
    # A warning's id appears in the pattern that its test matches.
    patterns = " ".join(text for text in named if "[" in text)
    untested = {rule for rule in rules if rule not in named and rf"\[{rule}\]" not in patterns}
    assert untested == set()
    assert computed == 2, "both memories of memory.py; add new ids to COMPUTED"


def test_rule_ids_are_lower_case_words():
    rules, _ = rules_in_the_source()
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule) for rule in rules)
    assert len(rules) > 80
