"""The cases that every row of the grid runs: dtypes, buffers, layouts, in place, extreme values."""

import itertools

import numpy as np

from nki_emulator import NkiError
from nki_emulator.access import write_raw

from . import grid_layouts as layouts
from .grid import BUFFERS, Placed, call, place, plain_case
from .grid_values import ALL


def _picked(items, most, seed):
    """At most ``most`` of the items, the same ones every time."""
    items = list(items)
    if most is None or len(items) <= most:
        return items
    chosen = np.random.default_rng(seed).choice(len(items), most, replace=False)
    return [items[index] for index in sorted(chosen)]


def _combinations(row, values_of):
    """Dictionaries by role: every pair of roles takes all pairs of values, others their base.

    ``values_of(operand)`` gives (base value, other values) of an operand.
    """
    choices = [values_of(one) for one in row.operands]
    base = [chosen[0] for chosen in choices]
    found = {tuple(base): None}
    places = range(len(choices))
    pairs = itertools.combinations(places, 2) if len(choices) > 1 else [(0, 0)]
    for first, second in pairs:
        for one, other in itertools.product(choices[first][1], choices[second][1]):
            values = list(base)
            values[first], values[second] = one, other
            found[tuple(values)] = None
    roles = [one.role for one in row.operands]
    return [dict(zip(roles, values)) for values in found]


def _of_groups(row, dtypes):
    """Copies of ``dtypes`` in which each group that shares a dtype takes one of all dtypes."""
    return [{**dtypes, **dict.fromkeys(group, dtype)} for group in row.same for dtype in ALL]


_DTYPES = {}


def _dtypes(row, generation):
    """(allowed, refused) combinations of dtypes, the base first."""
    key = (id(row), generation)
    if key not in _DTYPES:
        combinations = _combinations(row, lambda one: (one.base_dtype, ALL))
        shared = [one for dtypes in combinations for one in _of_groups(row, dtypes)]
        unique = {tuple(one.values()): one for one in combinations + shared}.values()
        allowed = [one for one in unique if row.allows(one, generation)]
        refused = [one for one in unique if not row.allows(one, generation)]
        _DTYPES[key] = allowed, refused
    return _DTYPES[key]


def dtype_cases(row, generation, most):
    """(allowed, refused) cases: every pair of dtypes of every pair of operands."""
    return tuple(
        [plain_case(row, dtypes=dtypes) for dtypes in _picked(chosen, most, seed)]
        for seed, chosen in enumerate(_dtypes(row, generation))
    )


def buffer_cases(row):
    """(allowed, refused) cases: every pair of buffers of every pair of operands."""
    found = _combinations(row, lambda one: (one.buffers[0], tuple(BUFFERS)))
    return tuple(
        [plain_case(row, buffers=buffers) for buffers in found if row.accepts(buffers) is wanted]
        for wanted in (True, False)
    )


def _fitting(operand, partitions, width):
    size = operand.shape(partitions, width)
    return [place for place in operand.places if place.fits(*size)]


def some_dtypes(row, generation, number):
    """Allowed combinations of dtypes, at most ``number``: the base, then others."""
    allowed = _dtypes(row, generation)[0]
    return allowed[:1] + _picked(allowed[1:], number - 1, 0)


def layout_cases(row, generation, most):
    """Each pair of layouts, at several partition counts; tiles filled and unwritten by turns."""
    dtypes = some_dtypes(row, generation, 6)
    found = []
    for partitions, width in itertools.product(row.partitions, row.widths):
        fitting = {one.role: _fitting(one, partitions, width) for one in row.operands}
        combined = _combinations(
            row, lambda one, fitting=fitting: (fitting[one.role][0], tuple(fitting[one.role]))
        )
        # All operands from one partition on, as well as each from its own.
        for start in (32, 64, 96):
            alike = {
                role: next((place for place in places if place.start == start), None)
                for role, places in fitting.items()
            }
            if all(alike.values()):
                combined.append(alike)
        found += [(partitions, width, one) for one in combined if row.layouts_legal(one)]
    return [
        plain_case(
            row, partitions, width, layouts=places, dtypes=dtypes[number % len(dtypes)],
            filled=row.fills and number % 2 == 1,
        )
        for number, (partitions, width, places) in enumerate(_picked(found, most, 2))
    ]  # fmt: skip


def in_place_cases(row, generation, most):
    """dst is an input: same view, same dtype, in several layouts."""
    found = []
    output = row.output
    for role in row.in_place:
        operand = next(one for one in row.operands if one.role == role)
        alike = [one for one in _dtypes(row, generation)[0] if one[role] == one[output.role]]
        alike = _picked(alike, 6, 4)
        for partitions in row.partitions:
            for chosen in _fitting(operand, partitions, row.widths[0]):
                if not chosen.repeats and chosen in output.places:
                    found += [(role, partitions, chosen, dtypes) for dtypes in alike]
    cases = []
    for role, partitions, chosen, dtypes in _picked(found, most, 3):
        plain = plain_case(row, partitions, dtypes=dtypes, in_place=role)
        plain.layouts.update({role: chosen, output.role: chosen})
        plain.buffers[output.role] = plain.buffers[role]
        cases.append(plain)
    return cases


def extreme_cases(row, generation, most):
    """NaN, infinities, subnormals and the ends of the integers, in allowed dtypes."""
    dtypes = some_dtypes(row, generation, most)
    return [plain_case(row, dtypes=one, extreme=True) for one in dtypes]


# Refusals that every instruction owes.


def leave_one_unwritten(row, case, role):
    """One element of an input is unwritten: reading it is an error."""
    placed, env = place(row, case)
    one = placed[role]
    fresh = Placed(one.operand, case, env.generator)
    content = one.content.astype(fresh.tile.info.storage, copy=False)
    partitions, width = fresh.tile.shape
    # A tile of one element stays unwritten.
    if width > 1:
        write_raw(fresh.tile[:, 0 : width - 1], content[:, : width - 1])
    if partitions > 1:
        write_raw(fresh.tile[0 : partitions - 1, width - 1 : width], content[:-1, width - 1 :])
    placed[role] = fresh
    _require_error(row, placed, env, "uninitialized-read")


def wrong_size(row, case, role, way):
    """An operand that has a partition or an element too few."""
    placed, env = place(row, case)
    one = placed[role]
    shape = one.view.shape
    if way == "partitions" and shape[0] > 1:
        one.view = one.view[0 : shape[0] - 1]
    elif way == "elements" and len(shape) == 2 and shape[1] > 1:
        one.view = one.view[:, 0 : shape[1] - 1]
    else:
        return
    _require_error(row, placed, env)


def too_many_dims(row, case, role):
    """Five free dimensions that do not merge: more than an access pattern has."""
    if row.free:
        return
    placed, env = place(row, case)
    one = placed[role]
    partitions, width = one.size
    if width % 32 == 0 and one.tile.shape == (partitions, width):
        halves = one.tile.reshape((partitions, 2, 2, 2, 2, width // 16))
        one.view = halves.permute((0, 5, 4, 3, 2, 1))
        _require_error(row, placed, env)


def bad_start(row, case, role):
    """An access that starts where the hardware cannot: partition 16."""
    if row.free or case.partitions > 100:
        return
    placed, env = place(row, case)
    one = placed[role]
    start = layouts.Layout(
        "from partition 16", lambda p, w: (128, w), lambda t, p, w: t[16 : 16 + p],
        lambda a, p, w: a[16 : 16 + p],
    )  # fmt: skip
    case = plain_case(row, case.partitions, case.width)
    case.layouts[role] = start
    fresh = Placed(one.operand, case, env.generator)
    fresh.fill()
    placed[role] = fresh
    _require_error(row, placed, env)


def _require_error(row, placed, env, rule=None):
    for one in placed.values():
        one.before = one.bits()
        one.was_written = one.tile.storage.is_written(one.tile).copy()
    try:
        call(row, placed, env)
    except NkiError as error:
        assert rule is None or error.rule == rule, f"refused with {error}"
        for one in placed.values():
            one.require_untouched()
        return
    raise AssertionError("accepted")
