"""Harness of the numeric grid: one row of a table runs in every dtype, layout and buffer.

The harness makes the tiles, puts values into them without using an instruction, runs the
instruction and requires

* the documented values: bit for bit, or within ``ulps`` steps of the dtype of dst where the
  function is transcendental,
* that nothing outside the views that are written has changed, neither bits nor what counts as
  written,
* that inputs have kept their bits.

A dtype or buffer that the row does not allow must be refused with an NkiError, and the refusal must
leave every tile as it was.
"""

from dataclasses import replace
from types import SimpleNamespace

import nki.isa as nisa
import nki.language as nl
import numpy as np

from nki_emulator import NkiError, simulate
from nki_emulator.access import write_raw
from nki_emulator.session import active_session

from .grid import BUFFERS, Result
from .grid_values import bits, converted, raw, require_equal


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
