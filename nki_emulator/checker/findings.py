"""What the checker reports, as data; printing is one use of it."""

from dataclasses import asdict, dataclass

from .rules import RULES


class CheckError(Exception):
    """Nothing could be checked: a path does not exist, or a file is not valid Python.

    ``problems`` lists every such file with its reason, one string each.
    """

    def __init__(self, problems):
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Finding:
    """One place in a kernel that breaks one rule.

    path: the file as it was named to the checker; line: from 1; column: from 1; rule: id in
    :data:`~nki_emulator.checker.rules.RULES`; found: what stands there; allowed: what may stand
    there; fix: what to do; source: where the rule is documented; snippet: the source line.
    """

    path: str
    line: int
    column: int
    rule: str
    found: str
    allowed: str
    fix: str
    source: str
    snippet: str

    @property
    def is_error(self):
        """False for a warning: legal in NKI 0.6 and announced to go away."""
        return RULES[self.rule].is_error

    @property
    def message(self):
        return f"{self.found}; {self.allowed}; {self.fix}"

    def as_dict(self):
        return {**asdict(self), "severity": "error" if self.is_error else "warning"}

    def __str__(self):
        place = f"{self.path}:{self.line}:{self.column}"
        return f"{place}: {self.rule} {self.message}  [{self.source}]\n    {self.snippet}"
