"""What every check gets: values of expressions, the program, and a place to report to."""

from .findings import Finding
from .rules import RULES


class Context:
    """evaluator and program of this check; ``findings`` collects, each place and rule once."""

    def __init__(self, evaluator, program):
        self.evaluator = evaluator
        self.program = program
        self.found = {}
        # Module scope -> names that host code changes, for purity.py.
        self.changed_names = {}
        # Nodes of kernels that kernel code uses, for results.py; None until it is asked for.
        self.nested_kernels = None

    def value(self, node, scope):
        return self.evaluator.expression(node, scope)

    def report(self, module, rule, node, found, allowed=None, fix=None):
        """Add a finding at ``node``; ``allowed`` and ``fix`` replace the rule's own words."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0) + 1
        key = (module.path, line, column, rule)
        if key not in self.found:
            entry = RULES[rule]
            self.found[key] = Finding(
                path=module.path,
                line=line,
                column=column,
                rule=rule,
                found=found,
                allowed=allowed or entry.allowed,
                fix=fix or entry.fix,
                source=entry.source,
                snippet=module.line(line),
            )

    @property
    def findings(self):
        return [self.found[key] for key in sorted(self.found)]
