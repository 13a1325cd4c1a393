"""The accumulator registers of an engine: one float32 a lane, kept between instructions.

ScalarE has one set, shared by `activation`, `activation_reduce` and `activate2`; VectorE has one
set, shared by `exponential`, `range_select`, `select_reduce`, `tensor_scalar_reduce` and
`tensor_scalar_cumulative`. A lane is a partition of the instruction's input. Their content at the
start of a kernel is unknown, so reading or continuing a lane that was never reset is an error.
"""

import numpy as np

from .engines.operands import number_or_column
from .enums import reduce_cmd
from .errors import NkiUninitializedRead, NkiValidationError

LANES = 128

# What `reset` and `reset_reduce` put into a lane. Stub of tensor_scalar_reduce for the first four,
# of tensor_scalar_cumulative for subtract. activate2 also folds by magnitude, where 0 and infinity
# lose against every number.
IDENTITIES = {
    "add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf, "subtract": 0.0,
    "abs_max": 0.0, "abs_min": np.inf,
}  # fmt: skip


class Accumulator:
    """Registers of one engine in one program."""

    def __init__(self, engine):
        self.engine = engine
        # Stub, activation: `idle` leaves ScalarE's registers alone. Stubs of exponential and
        # select_reduce: on VectorE their state may be modified even when idle.
        self.idle_keeps = engine == "scalar"
        self.values = np.zeros(LANES, np.float32)
        self.valid = np.zeros(LANES, np.bool_)

    def load(self, lanes, values):
        """Set the lanes."""
        self.values[lanes] = values
        self.valid[lanes] = True

    def read(self, lanes):
        """The content of the lanes, to write it into ``reduce_res``."""
        self._require_valid(lanes, "read into reduce_res")
        return self.values[lanes]

    def start(self, lanes, command, operator, loaded=None):
        """What an instruction with this ``reduce_cmd`` accumulates onto, a value or one a lane."""
        if command is reduce_cmd.load_reduce:
            return loaded
        if command is reduce_cmd.reduce:
            self._require_valid(lanes, "continued (reduce_cmd.reduce)")
            return self.values[lanes]
        return np.float32(IDENTITIES[operator.name])

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


def accumulate(registers, lanes, command, operator, partial, loaded=None):
    """Apply a ``reduce_cmd`` to the row results of one instruction.

    ``partial()`` gives the instruction's own reduction, one value a lane; ``loaded`` is what
    `load_reduce` starts from.
    """
    if command is reduce_cmd.idle:
        if not registers.idle_keeps:
            registers.forget(lanes)
    elif command is reduce_cmd.reset:
        registers.load(lanes, registers.start(lanes, command, operator))
    else:
        start = registers.start(lanes, command, operator, loaded)
        registers.load(lanes, operator.compute(start, partial()))


def require_command(command, allowed):
    """``reduce_cmd`` is one that the instruction supports."""
    if type(command) is not reduce_cmd or command not in allowed:
        raise NkiValidationError(
            "reduce-cmd",
            f"reduce_cmd={command!r}; allowed here: {', '.join(str(one) for one in allowed)}.",
        )


def loaded_values(command, init, role, data, unset=None):
    """What `load_reduce` starts from: a number, or an array of one value a lane; else None.

    ``unset`` is the default of ``init``, which the other commands require.
    """
    if command is reduce_cmd.load_reduce:
        if init is None:
            raise NkiValidationError(
                "reduce-init", f"reduce_cmd.load_reduce needs {role}: a number or a (P, 1) tile."
            )
        return number_or_column(init, role, data, ("float32",)).reshape(-1)
    if init is not unset and not (isinstance(init, (int, float)) and init == unset):
        raise NkiValidationError(
            "reduce-init",
            f"{role} is given with {command}; it goes with reduce_cmd.load_reduce only.",
        )
    return None
