"""What each step waits for: data (read after write), and memory (write after read or write).

Two steps touch the same memory if their boxes in one memory overlap (a storage, or tiles that the
kernel placed over each other). A tile that takes over memory of dead tiles waits, with its first
writes, for the last use of those.
"""

TENSOR = "tensor"


class _Memory:
    """The accesses of one storage that later ones may have to wait for."""

    __slots__ = ("writes", "reads", "last")

    def __init__(self):
        self.writes = {}  # box -> index of the last write
        self.reads = {}  # (box, queue) -> index of the last read
        self.last = {}  # queue -> index of the last access


def dependencies(steps, queues, inherited):
    """Per step (data, memory): indices of earlier steps whose result, or whose end, it needs.

    ``queues`` names the in-order queue of each step; ``inherited`` is what `placement.place` found,
    or None to let every buffer be renamed (no waits for memory at all).
    """
    memories = {}
    written = {operand.memory for step in steps for operand in step.writes}
    memory_of = {
        operand.storage: operand.memory for step in steps for operand in (*step.writes, *step.reads)
    }
    found = []
    for index, step in enumerate(steps):
        data, memory = set(), set()
        queue = queues[index]
        for operand in step.reads:
            if operand.memory in written:
                store = memories.get(operand.memory)
                if store is None:
                    store = memories[operand.memory] = _Memory()
                box = operand.box
                for other, writer in store.writes.items():
                    if _meet(box, other):
                        data.add(writer)
        for operand in step.writes:
            store = memories.get(operand.memory)
            if store is None:
                store = memories[operand.memory] = _Memory()
            _wait_for_memory(step, operand, store, steps, queue, data, memory)
            if inherited is not None and operand.box not in store.writes:
                for owner in {memory_of[owner] for owner in inherited.get(operand.storage, ())}:
                    if owner in memories and owner != operand.memory:
                        memory.update(memories[owner].last.values())
        _note(index, step, queue, memories, written)
        data.discard(index)
        memory -= data
        if inherited is None:
            memory = set()
        found.append((tuple(data), tuple(memory)))
    return found


def _wait_for_memory(step, operand, store, steps, queue, data, memory):
    box = operand.box
    accumulating = step.engine == TENSOR
    for other, writer in store.writes.items():
        if _meet(box, other):
            if accumulating and steps[writer].engine == TENSOR:
                continue  # matmuls of one group follow each other in the array
            memory.add(writer)
    for (other, _), reader in store.reads.items():
        if _meet(box, other):
            memory.add(reader)


def _note(index, step, queue, memories, written):
    for operand in step.reads:
        if operand.memory in written:
            store = memories[operand.memory]
            store.reads[operand.box, queue] = index
            store.last[queue] = index
    for operand in step.writes:
        store = memories[operand.memory]
        box = operand.box
        for other in [other for other in store.writes if _inside(other, box)]:
            del store.writes[other]
        for key in [key for key in store.reads if _inside(key[0], box)]:
            if store.reads[key] != index:
                del store.reads[key]
        store.writes[box] = index
        store.last[queue] = index


def _meet(one, other):
    return one[2] < other[3] and other[2] < one[3] and one[0] < other[1] and other[0] < one[1]


def _inside(one, outer):
    return outer[2] <= one[2] and one[3] <= outer[3] and outer[0] <= one[0] and one[1] <= outer[1]
