"""Harness of the numeric grid: one row of a table runs in every dtype, layout and buffer.

A :class:`Row` says how an instruction is called, which dtypes and buffers each operand may have,
and what it computes, as a NumPy function written from the documentation. The harness makes the
tiles, puts values into them without using an instruction, runs the instruction and requires

* the documented values: bit for bit, or within ``ulps`` steps of the dtype of dst where the
  function is transcendental,
* that nothing outside the views that are written has changed, neither bits nor what counts as
  written,
* that inputs have kept their bits.

A dtype or buffer that the row does not allow must be refused with an NkiError, and the refusal must
leave every tile as it was.
"""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Callable

import nki.isa as nisa
import nki.language as nl
import numpy as np

from nki_emulator import NkiError, simulate
from nki_emulator.access import write_raw
from nki_emulator.session import active_session

from . import grid_layouts as layouts
from .grid_values import COMPUTABLE, bits, converted, normal, raw, require_equal, special

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


class Placed:
    """An operand in its tile."""

    def __init__(self, operand, case, generator):
        self.operand = operand
        role = operand.role
        self.dtype = case.dtypes[role]
        self.layout = case.layouts[role]
        self.size = operand.shape(case.partitions, case.width)
        shape = self.layout.tile(*self.size)
        self.tile = nl.ndarray(shape, dtype=self.dtype, buffer=BUFFERS[case.buffers[role]])
        self.view = self.layout.nki(self.tile, *self.size)
        self.content = None
        if not operand.output or operand.keeps:
            self.content = operand.content(case)(generator, self.dtype, shape)
        elif case.filled:
            self.content = bits(generator, self.dtype, shape)

    def addressed(self, array):
        """The part of an array of the tile's shape that the view addresses."""
        return self.layout.numpy(array, *self.size)

    def logical(self, array):
        """The view's elements of an array of the tile's shape, as [partitions, elements]."""
        return self.addressed(array).reshape(self.size)

    def put(self, values):
        """Replace the content of the view."""
        view = self.addressed(self.content)
        view[...] = values.reshape(view.shape)

    def fill(self):
        """Put the content into memory, past all instructions, and remember it."""
        if self.content is not None:
            write_raw(self.tile, self.content.astype(self.tile.info.storage, copy=False))
        self.before = self.bits()
        self.was_written = self.tile.storage.is_written(self.tile).copy()

    def bits(self):
        """A copy of the tile's bits."""
        return raw(self.tile.array).copy()

    def values(self):
        """The view's elements in their dtype, as [partitions, elements]."""
        return self.logical(self.tile.array.copy())

    def require_untouched(self):
        """Nothing has happened to the tile."""
        assert np.array_equal(self.bits(), self.before), f"{self.operand.role} has changed"
        written = self.tile.storage.is_written(self.tile)
        assert np.array_equal(written, self.was_written), f"{self.operand.role} was written to"

    def require(self, result, ulps):
        """The tile holds ``result`` where the view is, and all else as before."""
        role = self.operand.role
        expected, written = result.values, result.written
        if written is None:
            written = np.ones(self.size, np.bool_)
        found = self.values()
        if result.holds is not None:
            assert result.holds(found), f"{role} holds {found}"
            expected = found
        assert expected.shape == self.size, f"reference of {role}: shape {expected.shape}"
        if result.bitwise or result.holds is not None:
            assert expected.dtype == found.dtype, f"reference of {role}: dtype {expected.dtype}"
            found, expected, ulps = raw(found), raw(expected), 0
        else:
            exact, expected = expected, converted(expected, self.dtype)
            if result.slack is not None:
                near = np.abs(found.astype(np.float64) - exact) <= result.slack
                found = np.where(near, expected, found)
        require_equal(np.where(written, found, expected), expected, ulps, role, self.dtype)
        mask = np.zeros(self.tile.shape, np.bool_)
        view = self.addressed(mask)
        view[...] = written.reshape(view.shape)
        outside = np.where(mask, 0, self.bits() ^ self.before)
        assert not outside.any(), f"{role}: {np.count_nonzero(outside)} elements outside changed"
        marks = self.tile.storage.is_written(self.tile)
        assert np.array_equal(marks, self.was_written | mask), f"{role}: wrong elements marked"


def place(row, case):
    """The operands in their tiles, by role; and what the reference needs to know."""
    generator = np.random.default_rng(
        (case.seed, case.partitions, case.width, len(row.operands), sum(map(ord, str(row))))
    )
    placed = {}
    for operand in row.operands:
        placed[operand.role] = Placed(operand, case, generator)
    if case.in_place:
        shared = placed[case.in_place]
        destination = placed[row.output.role]
        destination.tile, destination.view, destination.content = (
            shared.tile, shared.view, shared.content,
        )  # fmt: skip
    env = SimpleNamespace(
        dtypes=case.dtypes,
        shapes={role: one.view.shape for role, one in placed.items()},
        generation=active_session().target.generation,
        partitions=case.partitions,
        width=case.width,
        generator=generator,
    )
    if row.prepare is not None:
        inputs = {
            role: one.logical(one.content).copy()
            for role, one in placed.items()
            if not one.operand.output
        }
        for role, values in row.prepare(inputs, env).items():
            placed[role].put(values)
    for one in placed.values():
        one.fill()
    return placed, env


def call(row, placed, env):
    """Run the instruction."""
    options = row.options(env) if callable(row.options) else row.options
    views = {role: one.view for role, one in placed.items()}
    if row.call is not None:
        return row.call(views, options)
    return getattr(nisa, row.instruction)(**views, **options)


def execute(row, case):
    """Run a case and check everything (inside a kernel)."""
    placed, env = place(row, case)
    inputs = {role: one.values() for role, one in placed.items()}
    with np.errstate(all="ignore"):
        results = row.reference(inputs, env)
    call(row, placed, env)
    for role, one in placed.items():
        if one.operand.output:
            result = results[role]
            if not isinstance(result, Result):
                result = Result(np.asarray(result))
            one.require(result, row.distance(one.dtype))
        elif role != case.in_place:
            one.require_untouched()


def refuse(row, case, rule=None):
    """The case must end in an NkiError, of this rule if one is given, and change nothing."""
    placed, env = place(row, case)
    try:
        call(row, placed, env)
    except NkiError as error:
        assert rule is None or error.rule == rule, f"refused with {error}"
        for one in placed.values():
            one.require_untouched()
        return
    raise AssertionError("accepted")


def run(row, cases, act=execute):
    """Run the cases of a row, one after the other, in one kernel; returns how many there were."""

    def kernel():
        for number, case in enumerate(cases):
            try:
                act(row, replace(case, seed=number))
            except (AssertionError, NkiError) as error:
                raise AssertionError(f"{row}, {case}: {error}") from error
        return None

    simulate(kernel)()
    return len(cases)
