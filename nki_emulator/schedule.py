"""Scheduling metadata of a kernel: ``kernel.with_schedule([(consumer, producers), ...])``.

An edge says that the instruction named ``consumer`` runs after those named ``producers``. The
emulator runs in program order, which no legal schedule can be told apart from: so all that is left
to do is to check that the schedule makes sense, as the compiler does
(guides/how-to-scheduling-apis.rst). An edge may ask for the opposite of the program order as long
as no data flows from the consumer to the producer.
"""

import numpy as np

from .errors import NkiValidationError


class Schedule:
    """The edges of a schedule, as pairs (consumer, producer) of instruction names."""

    def __init__(self, edges):
        self.edges = [edge for pair in _pairs(edges) for edge in _edges(pair)]

    def check(self, records):
        """Check the schedule against the instructions that one program issued, in order."""
        named = {name: _one(records, name) for edge in self.edges for name in edge}
        edges = [(named[consumer], named[producer]) for consumer, producer in self.edges]
        for consumer, producer in edges:
            if consumer.loop != producer.loop:
                raise NkiValidationError(
                    "schedule-order",
                    f"{_shown(consumer)} waits for {_shown(producer)}, and one of them is in a "
                    f"dynamic loop that the other is not in; a dependency cannot lead into, out "
                    f"of or around a dynamic loop.",
                )
        for consumer, producer in edges:
            # Only an edge against the program order can close a circle.
            if producer.number >= consumer.number and _follows(records, edges, consumer, producer):
                raise NkiValidationError(
                    "schedule-order",
                    f"{_shown(consumer)} waits for {_shown(producer)}, which itself needs the "
                    f"result of {consumer.name!r} or waits for it: neither could ever run.",
                )


def _pairs(edges):
    if not isinstance(edges, (list, tuple)):
        raise NkiValidationError(
            "schedule", f"the schedule is {edges!r}; it is a list of (consumer, producers)."
        )
    return edges


def _edges(pair):
    """The edges of one entry: its second part is a name or a list of names."""
    consumer, producers = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (pair, ())
    producers = [producers] if isinstance(producers, str) else producers
    names = [consumer, *producers] if isinstance(producers, (list, tuple)) else [None]
    if len(names) < 2 or not all(isinstance(name, str) and name for name in names):
        raise NkiValidationError(
            "schedule",
            f"{pair!r} in the schedule; an entry is (consumer, producer) or (consumer, "
            f"[producer, ...]), all names of instructions.",
        )
    return [(consumer, producer) for producer in producers]


def _one(records, name):
    """The instruction of that name; in a dynamic loop, its copy in the first iteration."""
    found = [record for record in records if record.name == name]
    found = [record for record in found if all(iteration == 0 for _, iteration in record.loop)]
    if len(found) != 1:
        places = ", ".join(str(record.line) for record in found[:3])
        raise NkiValidationError(
            "schedule-name",
            f"the schedule names {name!r}; the kernel has {len(found) or 'no'} "
            f"instruction{'s' if found else ''} of this name{f' ({places})' if found else ''}. "
            f"Pass name= to exactly one.",
        )
    return found[0]


def _follows(records, edges, first, last):
    """Whether ``last`` has to run after ``first``: by data, in program order, or by edges."""
    reached, todo = set(), [first]
    while todo:
        record = todo.pop()
        if record.number == last.number:
            return True
        if record.number in reached:
            continue
        reached.add(record.number)
        todo += [later for later in records[record.number :] if _conflict(record, later)]
        todo += [consumer for consumer, producer in edges if producer.number == record.number]
    return False


def _conflict(earlier, later):
    """Whether two instructions access an element in common and one of them writes it."""
    return any(
        _overlap(one, other)
        for ones, others in (
            (earlier.writes, (*later.reads, *later.writes)), (earlier.reads, later.writes)
        )
        for one in ones
        for other in others
    )  # fmt: skip


def _overlap(one, other):
    if one.storage != other.storage:
        return False
    if one.dtype != other.dtype:  # offsets in different units: the same storage is enough
        return True
    return bool(np.intersect1d(_elements(one), _elements(other)).size)


def _elements(operand):
    elements = np.array([operand.offset])
    for size, stride in zip(operand.shape, operand.strides):
        elements = (elements[:, None] + stride * np.arange(size)).reshape(-1)
    return elements


def _shown(record):
    return f"{record.name!r} ({record.line})"
