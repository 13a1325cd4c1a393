"""Which module may import which: the rules for everything that ships to the Hub.

A loaded kernel has a name of the loader's choosing, so its own modules can only be reached by
relative imports; and it may count on nothing but Python, torch and, on a Neuron machine, nki.
"""

import sys
from dataclasses import dataclass

from hub.source import read_imports

STANDARD_LIBRARY = frozenset(sys.stdlib_module_names)


@dataclass(frozen=True)
class Rule:
    """Top-level modules that a file may import: always, or only inside a function.

    `allowed` says the same in words.
    """

    allowed: str
    eager: frozenset[str]
    lazy: frozenset[str] = frozenset()


# The kernels are compiled from their source, so they see no Python beyond the NKI language.
KERNELS = Rule("nki and relative imports", frozenset({"nki"}))
REFERENCE = Rule(
    "torch, math, typing and relative imports",
    frozenset({"torch", "math", "typing", "__future__"}),
)
# nki and the Neuron runtime exist on a Neuron machine only; kernels and transformers are there if
# the user, who asked to register with them, has them.
PACKAGE = Rule(
    "the standard library, torch and relative imports; inside a function nki, torch_neuronx, "
    "kernels and transformers as well",
    STANDARD_LIBRARY | {"torch"},
    frozenset({"kernels", "nki", "torch_neuronx", "transformers"}),
)
# The parts of the package that know nothing of the rest of it.
INDEPENDENT = {"nki_src": KERNELS, "reference": REFERENCE}


def wrong_imports_in_package(source: str, path: str) -> list[tuple[int, str]]:
    """Apply the rule for `path`, a file's path inside the package, to the file's `source`."""
    folders = path.split("/")[:-1]
    if folders and folders[0] in INDEPENDENT:
        return wrong_imports(source, INDEPENDENT[folders[0]], len(folders) - 1)
    return wrong_imports(source, PACKAGE, len(folders))


def wrong_imports(source: str, rule: Rule, depth: int) -> list[tuple[int, str]]:
    """Return (line, what is wrong) for each import in `source` that `rule` does not allow.

    `depth` is the number of folders between the file and the top of what it may reach by relative
    imports: 0 for a file at the top.
    """
    wrong = []
    for item in read_imports(source):
        top = item.module.split(".")[0]
        if item.level > depth + 1:
            name = "." * item.level + item.module
            wrong.append((item.line, f"import of {name} reaches outside; allowed: {rule.allowed}"))
        elif item.level == 0 and top not in (rule.eager | rule.lazy if item.lazy else rule.eager):
            wrong.append((item.line, f"import of {item.module}; allowed: {rule.allowed}"))
    return wrong
