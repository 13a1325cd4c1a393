"""The accumulator registers of an engine: one float32 a lane, kept between instructions.

ScalarE has one set, shared by `activation` and `activation_reduce`; VectorE has one set, shared by
`tensor_scalar_reduce`, `select_reduce` and the other instructions with a `reduce_cmd`. A lane is a
partition of the instruction's input. Their content at the start of a kernel is unknown, so reading
or continuing a lane that was never reset is an error.
"""

import numpy as np

from .enums import reduce_cmd
from .errors import NkiUninitializedRead, NkiValidationError

LANES = 128


class Accumulator:
    """Registers of one engine in one program."""

    def __init__(self, engine):
        self.engine = engine
        self.values = np.zeros(LANES, np.float32)
        self.valid = np.zeros(LANES, np.bool_)

    def load(self, lanes, values):
        """Set the lanes."""
        self.values[lanes] = values
        self.valid[lanes] = True

    def fold(self, lanes, operator, values):
        """lanes = operator(lanes, values)."""
        self._require_valid(lanes, "continued (reduce_cmd.reduce)")
        self.values[lanes] = operator.compute(self.values[lanes], values)

    def read(self, lanes):
        """The content of the lanes."""
        self._require_valid(lanes, "read into reduce_res")
        return self.values[lanes]

    def forget(self, lanes):
        """The lanes may have been overwritten."""
        self.valid[lanes] = False

    def _require_valid(self, lanes, use):
        if not self.valid[lanes].all():
            raise NkiUninitializedRead(
                "accumulator",
                f"the accumulator registers of the {self.engine} engine are {use} without having "
                f"been reset; start with reduce_cmd.reset_reduce.",
            )


def accumulator(session, engine):
    """The session's registers of ``engine``."""
    registers = session.accumulators.get(engine)
    if registers is None:
        registers = session.accumulators[engine] = Accumulator(engine)
    return registers


def lanes_of(tensor):
    """The lanes that an instruction with this input uses."""
    start = tensor.start_partition
    return slice(start, start + tensor.shape[0])


def accumulate(registers, lanes, command, operator, identity, partial):
    """Apply a ``reduce_cmd`` to the row results of one instruction.

    ``partial()`` gives the instruction's own reduction, one value a lane.
    """
    if command is reduce_cmd.reset:
        registers.load(lanes, np.float32(identity))
    elif command is reduce_cmd.reset_reduce:
        registers.load(lanes, operator.compute(np.float32(identity), partial()))
    elif command is reduce_cmd.reduce:
        registers.fold(lanes, operator, partial())


def require_command(command, allowed):
    """``reduce_cmd`` is one that the instruction supports."""
    if command not in allowed:
        raise NkiValidationError(
            "reduce-cmd",
            f"reduce_cmd={command!r}; allowed here: {', '.join(str(one) for one in allowed)}.",
        )
