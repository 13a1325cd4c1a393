"""What `apply`, `report` and `undo` tell about a model."""

from typing import Iterable, Iterator, List, NamedTuple, Sequence

PATHS = ("block", "op", "torch")


class Row(NamedTuple):
    """One module.

    Attributes:
        module: its name in the model, "" for the model itself.
        cls: the name of its class.
        path: "block", the whole layer is one `vit_block`; "op", it or parts of it are operators of
            this package; "torch", it is as its library wrote it.
        reason: why it is not a "block", and what to do; empty where there is nothing to say.
        is_block: whether it is a transformer block, or else a module outside of one.
    """

    module: str
    cls: str
    path: str
    reason: str
    is_block: bool


class Report(Sequence):
    """The rows of a model, in the order of its modules; `str()` is a table with a summary.

    Attributes:
        rows: every transformer block, and what is replaced outside of blocks.
        verb: of the summary: "run" where it is so, "would run" before `apply`, "ran" in what `undo`
            gave back.
    """

    def __init__(self, rows: Iterable[Row], verb: str = "run") -> None:
        self.rows: List[Row] = list(rows)
        self.verb = verb

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def blocks(self) -> List[Row]:
        """The rows of transformer blocks."""
        return [row for row in self.rows if row.is_block]

    @property
    def summary(self) -> str:
        """One line: how many blocks and other modules take which path."""
        blocks = self.blocks
        fused = sum(row.path == "block" for row in blocks)
        partly = sum(row.path == "op" for row in blocks)
        others = sum(row.path == "op" for row in self.rows if not row.is_block)
        if self.verb == "ran":
            count = len(self) - len(blocks)
            told = "1 other module" if count == 1 else f"{count} other modules"
            return f"{len(blocks)} blocks and {told} given back."
        parts = [f"{fused} of {len(blocks)} blocks {self.verb} as vit_block"]
        if partly:
            parts.append(f"{partly} in part as operators")
        other = "other module as an operator" if others == 1 else "other modules as operators"
        parts.append(f"{others} {other}")
        return "; ".join(parts) + "."

    def __str__(self) -> str:
        table = [("module", "class", "path", "reason")]
        table += [(row.module or "(model)", *row[1:4]) for row in self.rows]
        widths = [max(len(line[column]) for line in table) for column in range(3)]
        lines = [
            "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[3]]).rstrip()
            for line in table
        ]
        return "\n".join([*lines, self.summary])

    def __repr__(self) -> str:
        return f"<Report: {self.summary}>"
