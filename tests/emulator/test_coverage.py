"""Every rule that the emulator raises is in the rule table and has a pair of tests."""

import ast
import re

from nki_emulator.rulebook import RULES

from .rule_walk import COMPUTED, paired_rules, pairs_in, raised_rules


def rules_in_the_source():
    found, computed = raised_rules()
    # Both memories of memory.py; add new ids to COMPUTED.
    assert computed == len(COMPUTED)
    return set(found) | COMPUTED


def test_every_rule_that_is_raised_is_in_the_table_and_no_other():
    rules = rules_in_the_source()
    assert rules - set(RULES) == set(), "add them to nki_emulator/rulebook"
    assert set(RULES) - rules == set(), "nothing raises them"


def test_every_rule_has_a_test_that_breaks_it_and_one_that_obeys_it():
    assert rules_in_the_source() - set(paired_rules()) == set()


def test_no_pair_names_a_rule_that_does_not_exist():
    assert set(paired_rules()) - rules_in_the_source() == set()


def test_rule_ids_are_lower_case_words():
    rules = rules_in_the_source()
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule) for rule in rules)
    assert len(rules) > 250


PAIRED = """
@pytest.mark.parametrize("rule, good, bad", [("first", 1, 2), pytest.param("second", 1, 2)])
def test_listed(rule, good, bad):
    pair(rule, kernel, good, bad)

def test_refused_beside_a_run():
    simulate(kernel)(1)
    refused("third", kernel, 2)

def both(rule):
    pair(rule, kernel, 1, 2)

def test_through_a_helper():
    both("fourth")

def test_in_a_loop():
    for rule, bad in (("fifth", 2), ("sixth", 3)):
        pair(rule, kernel, 1, bad)
"""
UNPAIRED = """
def test_refused_alone():
    refused("first", kernel, 2)

def helper_that_no_test_calls():
    pair("second", kernel, 1, 2)

def test_that_only_names_it():
    assert error.rule == "third"
"""


def test_what_counts_as_a_pair():
    found = {rule for _, rules in pairs_in(ast.parse(PAIRED)) for rule in rules}
    assert found == {"first", "second", "third", "fourth", "fifth", "sixth"}
    assert not any(rules for _, rules in pairs_in(ast.parse(UNPAIRED)))
