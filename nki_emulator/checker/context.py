"""What every check gets: values of expressions, the program, and a place to report to."""

import ast
from dataclasses import dataclass

from .binding import bind
from .findings import Finding
from .old_calls import is_old_order
from .rules import RULES
from .values import UNKNOWN, ApiName, Tensor


@dataclass(frozen=True, eq=False)
class ApiCall:
    """One call of an API function. nodes, values: its arguments by parameter name."""

    node: ast.Call
    scope: object
    path: str
    nodes: dict
    values: dict

    def value(self, parameter):
        return self.values.get(parameter, UNKNOWN)

    def tensor(self, parameter):
        """The argument if it certainly is a tensor, else None."""
        value = self.value(parameter)
        return value if isinstance(value, Tensor) else None


class Context:
    """evaluator and program of this check; ``findings`` collects, each place and rule once."""

    def __init__(self, evaluator, program):
        self.evaluator = evaluator
        self.program = program
        self.found = {}
        # Unit -> its ApiCalls.
        self.calls = {}
        # Module scope -> names that host code changes, for purity.py.
        self.changed_names = {}
        # Nodes of kernels that kernel code uses, for results.py; None until it is asked for.
        self.nested_kernels = None

    @property
    def api(self):
        return self.evaluator.api

    def value(self, node, scope):
        return self.evaluator.expression(node, scope)

    def api_calls(self, unit):
        """Every call in ``unit`` of a function of nki, nl, nisa or nki.collectives.

        Without those in the order of NKI 0.2, whose arguments are other than they look.
        """
        if unit not in self.calls:
            self.calls[unit] = list(self.find_calls(unit))
        return self.calls[unit]

    def find_calls(self, unit):
        for node, scope in unit.nodes:
            if isinstance(node, ast.Call):
                function = self.value(node.func, scope)
                if isinstance(function, ApiName) and function.path in self.api.functions:
                    if self.is_old_order(node, scope, function.path):
                        continue
                    nodes = bind(node, self.api.functions[function.path]).arguments
                    values = {name: self.value(inner, scope) for name, inner in nodes.items()}
                    yield ApiCall(node, scope, function.path, nodes, values)

    def is_old_order(self, node, scope, path):
        return is_old_order(path, [self.value(argument, scope) for argument in node.args])

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
