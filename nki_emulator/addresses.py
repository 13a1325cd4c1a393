"""Running an instruction whose operands have run-time addresses, registers or a loop around them.

Engines see plain tensors only. A scalar index becomes a static view of the same storage. An
indirect operand (`tensor_indirection.py`) is gathered into a stand-in before the instruction and
scattered back after it. Row indices (vector) are for DMA instructions, which resolve them
themselves because they may skip indices out of bounds.
"""

import functools
import inspect

from . import tensor_indirection
from .access import read_raw
from .dynamic import INDIRECT, SCALAR, DynamicView
from .errors import NkiValidationError
from .registers import VirtualRegister, scalar

# These resolve run-time addresses themselves (engines/dma.py).
DMA = ("dma_copy", "dma_transpose", "dma_compute")


def run(session, instruction, implementation, operands):
    """Run ``implementation(session, *operands)`` in a session that has a dynamic side."""
    runtime = session.dynamic
    names = _parameters(implementation)
    fresh = runtime.instruction(instruction, names, operands)
    before = session.instructions
    if instruction in DMA or not any(isinstance(value, DynamicView) for value in operands):
        result = implementation(session, *operands)
    else:
        result = _run_resolved(session, instruction, implementation, names, operands)
    runtime.issued(session.instructions - before, fresh)
    return result


def _run_resolved(session, instruction, implementation, names, operands):
    named = dict(zip(names, operands))
    resolved, stand_ins = [], []
    tensor_indirection.check(instruction, named)
    for name, value in named.items():
        if isinstance(value, DynamicView):
            if value.kind == SCALAR:
                value = static_view(session, value, name)
            elif value.kind == INDIRECT:
                stand_in = tensor_indirection.gather(session, instruction, value, name)
                stand_ins.append(stand_in)
                value = stand_in.tensor
            else:
                raise NkiValidationError(
                    "vector-instruction",
                    f"{name} has a row index for each partition (vector_offset); only DMA "
                    f"instructions take that.",
                )
        resolved.append(value)
    result = implementation(session, *resolved)
    for stand_in in stand_ins:
        stand_in.scatter()
    return result


def static_view(session, view, role, skip=False):
    """The static view that a scalar index addresses now; None if it is out of bounds and skipped.

    With ``skip`` an index outside the dimension skips the access. The documents do not say what
    happens to an access that begins inside and runs out of the tensor, so that is always an error.
    """
    index = index_value(view, role)
    if not 0 <= index < view.limit:
        if skip:
            return None
        raise NkiValidationError(
            "dynamic-out-of-bounds",
            f"the index of {role} is {index}; the dimension it selects from has indices "
            f"0..{view.limit - 1}.",
        )
    static = view.static(view.offset + index * view.scale)
    require_inside(static, role, index, index * view.scale)
    if session.trace is not None:
        session.dynamic.stands_for(static, view, static.offset)
    return static


def index_value(view, role):
    """The current value of a scalar index."""
    if isinstance(view.index, VirtualRegister):
        return scalar(view.index, f"the index of {role}")
    return int(read_raw(view.index, f"the index of {role}")[0, 0])


def require_inside(static, role, index, moved):
    """An access that an index ``moved`` by some elements stays in its tensor, or its partitions."""
    steps = [stride * (size - 1) for stride, size in zip(static.strides, static.shape)]
    storage, first = static.storage, static.offset
    limit = storage.nbytes // static.info.itemsize
    if storage.on_chip:
        # Within a partition: an index that leads out of it must not come back in the next one.
        steps, limit = steps[1:], static.pitch
        first = (first - moved) % limit + moved
    low = first + sum(step for step in steps if step < 0)
    high = first + sum(step for step in steps if step > 0)
    if low < 0 or high >= limit:
        raise NkiValidationError(
            "dynamic-out-of-bounds",
            f"with index {index}, {role} covers elements {low}..{high} of "
            f"{'a partition of ' if storage.on_chip else ''}{storage.describe()}, which has "
            f"{limit}.",
        )


@functools.lru_cache(maxsize=None)
def _parameters(implementation):
    return tuple(inspect.signature(implementation).parameters)[1:]
