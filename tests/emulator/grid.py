"""The rows of the numeric grid: what a row says of an instruction.

A :class:`Row` says how an instruction is called, which dtypes and buffers each operand may have,
and what it computes, as a NumPy function written from the documentation. `grid_run.py` runs it.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Callable

import nki.language as nl
import numpy as np

from . import grid_layouts as layouts
from .grid_values import COMPUTABLE, normal, special

BUFFERS = {"sbuf": nl.sbuf, "psum": nl.psum, "hbm": nl.private_hbm}


@dataclass(frozen=True)
class Operand:
    """A tensor operand.

    ``shape(p, w)`` gives its (partitions, elements of a partition) in a case of size (p, w);
    ``values`` and ``extremes`` fill it (a function of generator, dtype, shape), ``sized(p, w)``
    makes that function where it depends on the size. ``base`` is the dtype it has while others
    vary. ``keeps`` marks an output whose former content takes part in the result.
    """

    role: str
    dtypes: tuple = COMPUTABLE
    base: str = ""
    output: bool = False
    shape: Callable = lambda p, w: (p, w)
    buffers: tuple = ("sbuf", "psum")
    layouts: tuple = ()
    values: Callable = normal
    extremes: Callable = special
    sized: Callable = None
    keeps: bool = False

    def content(self, case):
        """The function that fills the operand."""
        if self.sized is not None:
            return self.sized(case.partitions, case.width)
        return self.extremes if case.extreme else self.values

    @property
    def base_dtype(self):
        """The dtype it has while others vary."""
        return self.base or ("float32" if "float32" in self.dtypes else self.dtypes[0])

    @property
    def places(self):
        """Layouts it is tried in."""
        if self.layouts:
            return self.layouts
        return layouts.SOLID if self.output else (*layouts.SOLID, *layouts.REPEATING)


@dataclass(frozen=True)
class Result:
    """What one output must hold.

    ``bitwise`` values have the dtype of the output and are moved, not computed: also the bits of a
    NaN count. ``written`` marks the elements that are written, all if None. ``slack`` is an
    absolute error that is allowed beside the row's ``ulps``, for sums of inexact terms. ``holds``,
    given what was found, replaces the values where the documentation leaves them open.
    """

    values: np.ndarray
    bitwise: bool = False
    written: Any = None
    slack: Any = None
    holds: Any = None


@dataclass(frozen=True)
class Row:
    """One instruction with one set of options.

    ``reference(x, env)`` takes the operands as [partitions, elements] arrays by role (an output
    holds what was there before) and returns an array or :class:`Result` for each output; arrays are
    float results that the harness rounds to the dtype of dst. ``env`` has ``dtypes``, ``shapes``
    (of the views), ``generation``, ``partitions`` and ``width``. ``options`` are the other
    arguments, a dict or a function of env.

    ``same`` lists groups of roles that share a dtype; ``legal(dtypes, generation)``,
    ``places_legal(buffers)`` and ``layouts_legal(layouts)`` are further rules. ``in_place`` are the
    inputs that dst may be. ``prepare(x, generator)`` returns changed contents, by role.
    ``generation`` is the first NeuronCore that has the instruction as the row describes it; an
    older one refuses it if ``refused_before``, else it does something else. ``ulps`` is the allowed
    distance, ``ulps32`` that of a 32-bit dst. ``loose`` are the operands whose size need not match
    the others, or which are not read as a whole. ``call(views, options)`` replaces the plain call.
    ``fills`` says that outputs may hold something before; ``free`` that there is no rule about
    partitions and dimensions (DMA). ``also`` are further instructions that the call runs.
    """

    instruction: str
    operands: tuple
    reference: Callable
    options: Any = field(default_factory=dict)
    label: str = ""
    same: tuple = ()
    legal: Callable = lambda dtypes, generation: True
    places_legal: Callable = lambda buffers: True
    layouts_legal: Callable = lambda places: True
    in_place: tuple = ()
    prepare: Callable = None
    partitions: tuple = (7, 33, 100, 128)
    widths: tuple = (24,)
    generation: int = 2
    refused_before: bool = True
    ulps: int = 0
    ulps32: int = 0
    extremes: bool = True
    loose: tuple = ()
    call: Callable = None
    fills: bool = True
    free: bool = False
    also: tuple = ()

    def __str__(self):
        return f"{self.instruction} {self.label}".rstrip()

    @property
    def output(self):
        """The operand that is written first."""
        return next(operand for operand in self.operands if operand.output)

    def allows(self, dtypes, generation):
        """Whether the documentation allows these dtypes, by role."""
        return (
            all(dtypes[one.role] in one.dtypes for one in self.operands)
            and all(len({dtypes[role] for role in group}) == 1 for group in self.same)
            and self.legal(dtypes, generation)
        )

    def accepts(self, buffers):
        """Whether the documentation allows these buffers, by role."""
        return all(buffers[one.role] in one.buffers for one in self.operands) and self.places_legal(
            buffers
        )

    def distance(self, dtype):
        """Steps that a result of this dtype may be off."""
        return self.ulps32 if dtype in ("float32", "int32", "uint32") else self.ulps


@dataclass(frozen=True)
class Case:
    """One run of a row. ``in_place`` names the input that dst is."""

    partitions: int
    width: int
    dtypes: dict
    buffers: dict
    layouts: dict
    filled: bool = False
    extreme: bool = False
    in_place: str = ""
    seed: int = 0

    def __str__(self):
        each = ", ".join(
            f"{role}: {dtype} {self.buffers[role]} {self.layouts[role].name}"
            for role, dtype in self.dtypes.items()
        )
        return f"{self.partitions} x {self.width} ({each}){self.in_place and ' in place'}"


def plain_case(row, partitions=None, width=None, **changes):
    """Contiguous tiles of the base dtypes, in the first buffer that each operand allows."""
    case = Case(
        partitions or row.partitions[0],
        width or row.widths[0],
        {one.role: one.base_dtype for one in row.operands},
        {one.role: one.buffers[0] for one in row.operands},
        {one.role: one.places[0] for one in row.operands},
    )
    return replace(case, **changes)
