"""Each kernel in bad/ breaks the rules its comments name, at those lines, and no other rule.

A line that ends with `# expect: RULE` is where the checker has to report that rule. A comment
`# instead: CODE` replaces the line before it: with all of them applied, the kernel obeys.
"""

import re
from pathlib import Path

import pytest

from nki_emulator.checker import RULES, check_paths

KERNELS = sorted((Path(__file__).parent / "bad").glob("*.py"))
EXPECT = re.compile(r"# expect: (\S+)$")
INSTEAD = re.compile(r"^ *# instead:(.*)$")


def expected(file):
    """(line, rule) of every marked line."""
    lines = file.read_text().splitlines()
    matches = [(number, EXPECT.search(line)) for number, line in enumerate(lines, 1)]
    return [(number, match.group(1)) for number, match in matches if match]


def corrected(source):
    """The source with every `# instead:` applied."""
    lines = []
    for line in source.splitlines():
        match = INSTEAD.match(line)
        if match:
            wrong = lines.pop()
            indent = wrong[: len(wrong) - len(wrong.lstrip())]
            lines.append(indent + match.group(1).strip())
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("file", KERNELS, ids=lambda file: file.stem)
def test_refused_for_its_reason_and_no_other(file):
    findings = check_paths([file])
    assert [(finding.line, finding.rule) for finding in findings] == expected(file)


@pytest.mark.parametrize("file", KERNELS, ids=lambda file: file.stem)
def test_obeys_when_corrected(file, tmp_path):
    twin = tmp_path / file.name
    twin.write_text(corrected(file.read_text()))
    assert twin.read_text() != file.read_text()
    assert check_paths([twin]) == []


def test_every_rule_has_a_kernel_that_breaks_it():
    shown = {rule for file in KERNELS for _, rule in expected(file)}
    assert shown == set(RULES)


def test_there_are_enough_of_them():
    assert len(KERNELS) >= 40
    assert all(expected(file) for file in KERNELS)
