"""What the emulator remembers while dynamic loops run: one body, many iterations.

The chip has one copy of a loop body, and every iteration runs it. The emulator calls the body again
for each iteration, so Python state could make iterations differ. Therefore the first iteration is
recorded as a list of *events* (an allocation, an instruction, an inner loop), each with the kernel
line and everything that is fixed when the kernel is built; later iterations must repeat it.

Tensors and registers made in a body belong to the iteration that made them.
"""

import weakref

import numpy as np

from .dynamic import DynamicView
from .errors import NkiValidationError, kernel_line
from .registers import VirtualRegister
from .tensor import NkiTensor


class Iteration:
    """One execution of a loop body; what was made in it is in scope while it is ``open``."""

    __slots__ = ("loop", "number", "outer", "open", "made", "position")

    def __init__(self, loop, number, outer):
        self.loop = loop
        self.number = number
        self.outer = outer  # the iteration that the loop runs in, or None
        self.open = True
        self.made = 0
        self.position = 0


class Loop:
    """A dynamic loop of the kernel, and the events of its body."""

    __slots__ = ("number", "line", "body", "inner", "complete")

    def __init__(self, number, line):
        self.number = number
        self.line = line
        self.body = []
        self.inner = {}  # position in the body: the Loop there
        self.complete = False  # whether the first iteration has ended


class Runtime:
    """The dynamic side of a session; made when a kernel first uses a register or a loop.

    ``iteration`` is the running iteration of the innermost loop or None, ``path`` the
    ``(loop number, iteration)`` of all running loops, outermost first. ``static`` is how many
    instructions bodies hold and ``executed`` how many ran in them.
    """

    def __init__(self):
        self.iteration = None
        self.path = ()
        self.static = 0
        self.executed = 0
        self.broken = None  # the error of a loop that Python left in the middle
        self._originals = {}  # id of an operand: (the operand, the view to show for it)
        self._loops = 0
        self._owners = weakref.WeakKeyDictionary()  # storage or register: (iteration, ordinal)

    # What happens in a body.

    def adopt(self, made):
        """Note that a storage or register was made here; it belongs to the running iteration."""
        iteration = self.iteration
        if iteration is not None:
            iteration.made += 1
            self._owners[made] = (iteration, iteration.made)

    def allocated(self, storage, address=None):
        """A tensor is allocated: an event of the body."""
        if self.iteration is not None:
            what = (storage.info.name, storage.shape)
            self._event(("allocation", what, kernel_line(), (storage.buffer, address)))
            self.adopt(storage)

    def instruction(self, name, roles, operands):
        """An instruction is issued: check what it uses and, in a body, that it is the expected one.

        Returns whether it is new in its body; :meth:`issued` wants to know.
        """
        if self.broken is not None:
            raise self.broken
        if self._owners:
            self._require_in_scope(operands)
        if self.iteration is None:
            return False
        # The name is for people: it may differ.
        fixed = tuple(
            (role, self._fixed(operand)) for role, operand in zip(roles, operands) if role != "name"
        )
        return self._event(("instruction", name, kernel_line(), fixed))

    def issued(self, count, fresh):
        """The instruction has run and counted as ``count``."""
        self._originals.clear()
        if self.iteration is not None:
            self.executed += count
            if fresh:
                self.static += count

    # What the trace shows of operands with run-time addresses.

    def stands_for(self, tensor, view, offset):
        """``tensor`` takes the place of ``view``, whose address was found to be ``offset``."""
        addressed = view._view(offset, view.shape, view.strides)
        for operand in (tensor, view):
            self._originals[id(operand)] = (operand, addressed)

    def addressed(self, writes, reads):
        """The operands with the views that they stand for, and the index tiles among the reads."""
        originals = self._originals
        writes, reads = (
            [originals[id(t)][1] if id(t) in originals else t for t in tensors]
            for tensors in (writes, reads)
        )
        indices = [view.index for view in (*writes, *reads) if isinstance(view, DynamicView)]
        reads += [index for index in indices if isinstance(index, NkiTensor)]
        return writes, reads

    # Loops.

    def loop(self, kind, **bounds):
        """The loop that starts here: a new one, or the same inner loop as in an earlier iteration.

        ``bounds`` take part in the comparison of iterations.
        """
        if self.broken is not None:
            raise self.broken
        self._require_in_scope(tuple(bounds.values()))
        outer, line = self.iteration, kernel_line()
        if outer is None:
            return self._new_loop(line)
        position = outer.position
        fixed = tuple((role, self._fixed(bound)) for role, bound in bounds.items())
        if self._event(("loop", kind, line, fixed)):
            outer.loop.inner[position] = self._new_loop(line)
        return outer.loop.inner[position]

    def begin(self, loop, number):
        """Start an iteration of ``loop``, inside the one that is running."""
        self.iteration = Iteration(loop, number, self.iteration)
        self.path = (*self.path, (loop.number, number))

    def end(self):
        """End it: it must have done all of the body, and what it made goes out of scope."""
        iteration = self.iteration
        loop = iteration.loop
        if loop.complete and iteration.position != len(loop.body):
            raise NkiValidationError(
                "dynamic-loop-body",
                f"iteration {iteration.number} of the dynamic loop at {loop.line} ends where the "
                f"first one went on with {_describe(loop.body[iteration.position])}. The chip has "
                f"one copy of the body: what it does may not depend on Python state.",
            )
        loop.complete = True
        iteration.open = False
        self.iteration = iteration.outer
        self.path = self.path[:-1]

    def returned(self, condition):
        """The body of a while_loop returns the register with the next condition."""
        fixed = ("the condition", self._fixed(condition))
        self._event(("return", "while_loop", kernel_line(), (fixed,)))

    def abandon(self):
        """Python left a loop in the middle (`break`, `return`): an error at the next step."""
        self.broken = NkiValidationError(
            "dynamic-loop-break",
            f"the dynamic loop at {self.iteration.loop.line} is left in the middle. "
            f"The chip runs all iterations of a counted loop; use nl.while_loop to stop early.",
        )
        self.broken.instruction = ""

    def finish(self, result):
        """The kernel has ended and returns ``result``."""
        if self.broken is not None:
            raise self.broken
        self._require_in_scope(result)

    def _new_loop(self, line):
        self._loops += 1
        return Loop(self._loops, line)

    def _event(self, event):
        """Compare the next event of the body; returns whether it is new (first iteration)."""
        iteration = self.iteration
        loop, position = iteration.loop, iteration.position
        iteration.position += 1
        if not loop.complete:
            loop.body.append(event)
            return True
        expected = loop.body[position] if position < len(loop.body) else None
        if event != expected:
            raise NkiValidationError(
                "dynamic-loop-body",
                f"iteration {iteration.number} of the dynamic loop at {loop.line} differs from the "
                f"first one: {_difference(expected, event)}. The chip has one copy of the body: "
                f"what it does may not depend on Python state. Address data with the loop "
                f"register (.ap(scalar_offset=i), .select(dim, i)) and keep state in SBUF or HBM.",
            )
        return False

    # Scope, and what is fixed about an operand.

    def _require_in_scope(self, value):
        if isinstance(value, (list, tuple)):
            for item in value:
                self._require_in_scope(item)
            return
        if isinstance(value, DynamicView):
            self._require_in_scope(value.index)
        if isinstance(value, NkiTensor):
            owner, what = self._owners.get(value.storage), value.describe()
        elif isinstance(value, VirtualRegister):
            owner, what = self._owners.get(value), "a register"
        else:
            return
        if owner is not None and not owner[0].open:
            raise NkiValidationError(
                "dynamic-loop-scope",
                f"{what} was made in the body of the dynamic loop at {owner[0].loop.line} and is "
                f"used after that iteration. Make it before the loop.",
            )

    def _fixed(self, value):
        """What the compiler sees of an operand, as something to compare."""
        if isinstance(value, NkiTensor):
            index = value.index if isinstance(value, DynamicView) else None
            return (
                "tensor", self._identity(value.storage), value.dtype, value.offset, value.shape,
                value.strides, None if index is None else (value.kind, self._fixed(index)),
            )  # fmt: skip
        if isinstance(value, VirtualRegister):
            return ("register", self._identity(value))
        if isinstance(value, (list, tuple)):
            return tuple(self._fixed(item) for item in value)
        if isinstance(value, np.ndarray):
            return (value.dtype, value.shape, value.tobytes())
        if isinstance(value, (float, np.floating)):
            return (type(value), repr(value))
        return (type(value), value)

    def _identity(self, made):
        """What was made before all loops is itself; a body's own by loop and order."""
        owner = self._owners.get(made)
        return id(made) if owner is None else (owner[0].loop.number, owner[1])


def _describe(event):
    kind, name, line, _ = event
    if kind == "allocation":
        name = f"the allocation of {name[0]}{list(name[1])}"
    elif kind == "return":
        name = "the return of the body"
    else:
        name = f"{'nisa' if kind == 'instruction' else 'nl'}.{name}"
    return f"{name} at {line}"


def _difference(expected, event):
    if expected is None:
        return f"{_describe(event)} comes after the last step of the first one"
    if expected[:3] != event[:3] or event[0] == "allocation":
        return f"it does {_describe(event)} where the first one did {_describe(expected)}"
    differing = ((a, b) for a, b in zip(expected[3], event[3]) if a != b)
    (role, first), (_, now) = next(differing)
    return f"{role} of {_describe(event)} is {_shown(now)}, in the first one {_shown(first)}"


def _shown(fixed):
    if fixed and fixed[0] == "tensor":
        _, _, dtype, offset, shape, strides, dynamic = fixed
        where = f" + {dynamic[0]} offset" if dynamic else ""
        return f"{dtype}{list(shape)} at offset {offset}{where} with strides {list(strides)}"
    if len(fixed) == 2 and isinstance(fixed[0], type):
        return str(fixed[1])
    return "another register" if fixed and fixed[0] == "register" else str(fixed)
