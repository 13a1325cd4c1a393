"""The rule table: what each rule id of the emulator allows, and where that is documented.

The rules of the language checker have a table of their own (`checker/rules.py`).
"""

from . import dma, language, launch, loops, matmul, memory, operands, tensors, vector
from .pages import PAGES, Rule

# The heading of each part of the table, in the order in which it is printed.
PARTS = {
    "Launching a kernel": launch.RULES,
    "Tensors and views": tensors.RULES,
    "Memory and cores": memory.RULES,
    "Operands and operators": operands.RULES,
    "Tensor engine": matmul.RULES,
    "Vector, Scalar and GpSimd engines": vector.RULES,
    "DMA": dma.RULES,
    "Registers and dynamic loops": loops.RULES,
    "nki.language": language.RULES,
}

HEADER = ("| rule | what is allowed | documentation |", "|---|---|---|")

RULES = {rule: entry for part in PARTS.values() for rule, entry in part.items()}


def place_of(rule, instruction=None):
    """Where ``rule`` is documented, for an error in ``instruction``; "" for an unknown id."""
    entry = RULES.get(rule)
    return entry.place_in(instruction) if entry is not None else ""


def table_text():
    """The table as Markdown, one part a heading and one row a rule."""
    lines = []
    for heading, part in PARTS.items():
        lines += [f"## {heading}", "", *HEADER]
        lines += [
            f"| {rule} | {part[rule].statement} | {part[rule].place_in(None)} |"
            for rule in sorted(part)
        ]
        lines.append("")
    return "\n".join(lines).rstrip()


__all__ = ["PAGES", "PARTS", "RULES", "Rule", "place_of", "table_text"]
