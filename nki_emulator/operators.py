"""The operators that instructions take as `op=`: which exist, what they compute, where they run.

A kernel names an operator by a function of `nki.language` (``op=nl.add``). That module registers
its functions here, so an instruction finds the operator by the function itself.
Table: nki.api.shared.rst, "Supported Math Operators for NKI ISA".
"""

from dataclasses import dataclass
from typing import Callable, Optional

import numpy as np

from . import functions
from .errors import NkiValidationError

ARITHMETIC, BITVEC, UNARY = "arithmetic", "bitvec", "unary"


@dataclass(frozen=True, eq=False)
class AluOp:
    """An operator of the element-wise engines.

    ``compute(a, b, out=None)`` (``compute(a, out=None)`` if unary) works on float32 for arithmetic
    and on unsigned integers for bitvec operators. ``fold`` is the NumPy ufunc of a reduction, None
    if the operator cannot reduce. ``generation`` is the first NeuronCore that has it.
    """

    name: str
    kind: str
    compute: Callable
    fold: Optional[np.ufunc] = None
    generation: int = 2

    def reduce(self, values):
        """Reduce the last axis of ``values``."""
        result = self.fold.reduce(values, axis=-1)
        return result.astype(np.float32) if result.dtype == np.bool_ else result


def _as_float(predicate):
    """A comparison that gives 1.0 or 0.0, as the engines do."""

    def compute(a, b, out=None):
        if out is None:
            return predicate(a, b).astype(np.float32)
        out[...] = predicate(a, b)
        return out

    return compute


def _by_magnitude(first_wins):
    def compute(a, b, out=None):
        # Ties take the second operand (stub, nl.abs_max "tie-breaking").
        result = np.where(first_wins(np.abs(a), np.abs(b)), a, b)
        if out is None:
            return result
        out[...] = result
        return out

    return compute


def _rsqrt(a, out=None):
    return np.reciprocal(np.sqrt(a, out=out), out=out)


def _relu(a, out=None):
    return np.maximum(a, np.float32(0.0), out=out)


_OPERATORS = [
    AluOp("add", ARITHMETIC, np.add, np.add),
    AluOp("subtract", ARITHMETIC, np.subtract, np.subtract),
    AluOp("multiply", ARITHMETIC, np.multiply, np.multiply),
    AluOp("maximum", ARITHMETIC, np.maximum, np.maximum),
    AluOp("minimum", ARITHMETIC, np.minimum, np.minimum),
    AluOp("equal", ARITHMETIC, _as_float(np.equal)),
    AluOp("not_equal", ARITHMETIC, _as_float(np.not_equal)),
    AluOp("greater_equal", ARITHMETIC, _as_float(np.greater_equal)),
    AluOp("greater", ARITHMETIC, _as_float(np.greater)),
    AluOp("less_equal", ARITHMETIC, _as_float(np.less_equal)),
    AluOp("less", ARITHMETIC, _as_float(np.less)),
    AluOp("logical_and", ARITHMETIC, _as_float(np.logical_and), np.logical_and),
    AluOp("logical_or", ARITHMETIC, _as_float(np.logical_or), np.logical_or),
    AluOp("logical_xor", ARITHMETIC, _as_float(np.logical_xor), np.logical_xor),
    AluOp("power", ARITHMETIC, np.power),
    # Stub, nl.abs_max: NeuronCore-v4 and newer.
    AluOp("abs_max", ARITHMETIC, _by_magnitude(np.greater), generation=4),
    AluOp("abs_min", ARITHMETIC, _by_magnitude(np.less), generation=4),
    AluOp("abs", UNARY, np.abs),
    # As an ALU operator, square and relu are documented for the cores that have activate2.
    AluOp("square", UNARY, np.square, generation=4),
    AluOp("relu", UNARY, _relu, generation=4),
    AluOp("rsqrt", UNARY, _rsqrt),
    AluOp("reciprocal", UNARY, np.reciprocal),
    AluOp("invert", BITVEC, np.invert),
    AluOp("bitwise_and", BITVEC, np.bitwise_and, np.bitwise_and),
    AluOp("bitwise_or", BITVEC, np.bitwise_or, np.bitwise_or),
    AluOp("bitwise_xor", BITVEC, np.bitwise_xor, np.bitwise_xor),
    AluOp("left_shift", BITVEC, np.left_shift),
    AluOp("right_shift", BITVEC, np.right_shift),
]
ALU = {operator.name: operator for operator in _OPERATORS}

_alu_of = {}
_activation_of = {}
_name_of = {}


def register(name, function):
    """Bind a function (or marker) of `nki.language` to the operator called ``name``."""
    _name_of[function] = name
    if name in ALU:
        _alu_of[function] = ALU[name]
    if name in functions.ACTIVATIONS or name in functions.PARAMETRIC:
        _activation_of[function] = name


def register_alias(function, name):
    """Bind a reduction such as ``nl.max``, which documents use as an operator, to ``name``."""
    _alu_of[function] = ALU[name]
    _name_of[function] = name


def _shown(op):
    return f"nl.{_name_of[op]}" if _known(op) else repr(op)


def _known(op):
    try:
        return op in _name_of
    except TypeError:
        return False


def alu(op, role, session):
    """The :class:`AluOp` behind ``op``."""
    try:
        operator = _alu_of[op]
    except (KeyError, TypeError):
        raise NkiValidationError(
            "operator",
            f"{role}={_shown(op)} is not a math operator; allowed: "
            f"{', '.join('nl.' + name for name in ALU)}.",
        ) from None
    if operator.generation > session.target.generation:
        raise NkiValidationError(
            "operator-target",
            f"{role}=nl.{operator.name} needs NeuronCore-v{operator.generation} or newer; the "
            f"target is {session.target.name}.",
        )
    return operator


def binary(op, role, session, kinds=(ARITHMETIC,)):
    """The operator behind ``op``, of one of ``kinds``."""
    operator = alu(op, role, session)
    if operator.kind not in kinds or operator.name == "invert":
        raise NkiValidationError(
            "operator-kind",
            f"{role}=nl.{operator.name} is a{'n' if operator.kind[0] in 'aeiou' else ''} "
            f"{operator.kind} operator; this place takes a binary one of kind "
            f"{' or '.join(kinds)}.",
        )
    return operator


def reduction(op, role, session, kinds=(ARITHMETIC,), names=None):
    """An operator that may reduce; ``names`` limits which."""
    operator = alu(op, role, session)
    legal = operator.fold is not None and operator.kind in kinds
    if not legal or (names is not None and operator.name not in names):
        allowed = names or [o.name for o in _OPERATORS if o.fold and o.kind in kinds]
        raise NkiValidationError(
            "operator-reduce",
            f"{role}=nl.{operator.name} cannot reduce here; allowed: "
            f"{', '.join('nl.' + name for name in allowed)}.",
        )
    return operator


def name_of(op):
    """The name of ``op`` in `nki.language`, None if it is not an operator of that module."""
    return _name_of[op] if _known(op) else None


def activation(op, role, parametric=False):
    """The name of the activation function behind ``op``.

    ``parametric`` says that the instruction has a parameter for it.
    """
    try:
        name = _activation_of[op]
    except (KeyError, TypeError):
        raise NkiValidationError(
            "operator",
            f"{role}={_shown(op)} is not an activation function; allowed: "
            f"{', '.join('nl.' + name for name in functions.ACTIVATIONS)}.",
        ) from None
    if name in functions.PARAMETRIC and not parametric:
        raise NkiValidationError(
            "operator",
            f"{role}=nl.{name} needs a slope; use nisa.activate2 (gen4), which has relu_param.",
        )
    return name
