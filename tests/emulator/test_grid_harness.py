"""The grid finds what it looks for: each fault of an instruction fails in the way it should."""

from dataclasses import replace

from nki_emulator.access import write_raw

from . import grid_cases as cases
from .grid import Operand, Row, plain_case
from .grid_layouts import COLUMNS, CORNER, REPEATED
from .grid_run import execute, refuse, run
from .grid_values import f32, steps
from .support import nisa, nl, np, pytest


def scaled(call=None, **settings):
    """tensor_scalar(multiply, 0.5) as a row, or something that claims to be it."""
    operands = (Operand("data"), Operand("dst", output=True))
    return Row(
        "tensor_scalar", operands, lambda x, env: {"dst": f32(x["data"]) * np.float32(0.5)},
        {"op0": nl.multiply, "operand0": 0.5}, call=call, in_place=("data",), **settings,
    )  # fmt: skip


def right(views, options):
    nisa.tensor_scalar(**views, **options)


def wrong_factor(views, options):
    nisa.tensor_scalar(views["dst"], views["data"], nl.multiply, 0.50001)


def one_step_off(views, options):
    right(views, options)
    raw = views["dst"].array.view(np.uint32)
    raw[0, 0] += 1


def one_element_too_few(views, options):
    width = views["dst"].shape[1] - 1
    nisa.tensor_scalar(views["dst"][:, 0:width], views["data"][:, 0:width], **options)


def outside(views, options):
    """Writes the whole tile where a part of it was asked for."""
    right(views, options)
    tile = nl.NkiTensor(views["dst"].storage.shape, "float32", views["dst"].storage)
    write_raw(tile[0:1, 0:1], np.zeros((1, 1), np.float32))


def into_the_input(views, options):
    right(views, options)
    write_raw(views["data"][0:1, 0:1], np.full((1, 1), 77, np.float32))


def marks_too_much(views, options):
    right(views, options)
    views["dst"].storage._complete()


def values_of_rows_swapped(views, options):
    right(views, options)
    array = views["dst"].array
    array[[0, 1]] = array[[1, 0]]


LOOSE = {"layouts": {"data": COLUMNS, "dst": CORNER}}


@pytest.mark.parametrize(
    "call, message, changes",
    [
        (wrong_factor, "elements differ", {}),
        (one_step_off, "1 of 168 elements differ", {}),
        (one_element_too_few, "7 of 168 elements differ", {"filled": True}),
        (one_element_too_few, "7 of 168 elements differ", {}),
        (values_of_rows_swapped, "elements differ", {}),
        (outside, "outside changed", LOOSE | {"filled": True}),
        (outside, "outside changed", LOOSE),
        (into_the_input, "data has changed", {}),
        (marks_too_much, "wrong elements marked", LOOSE),
    ],
)
def test_faults(call, message, changes):
    row = scaled()
    case = plain_case(row, **changes)
    assert run(row, [case]) == 1
    with pytest.raises(AssertionError, match=message):
        run(scaled(call), [case])


def test_what_should_be_refused_and_is_not():
    with pytest.raises(AssertionError, match="accepted"):
        run(scaled(), [plain_case(scaled())], refuse)


def test_a_refusal_that_has_changed_something():
    def call(views, options):
        right(views, options)
        nisa.tensor_scalar(views["dst"], None, **options)

    with pytest.raises(AssertionError, match="dst has changed"):
        run(scaled(call), [plain_case(scaled())], refuse)


def test_another_exception_is_not_a_refusal():
    def call(views, options):
        raise TypeError("not ours")

    with pytest.raises(TypeError, match="not ours"):
        run(scaled(call), [plain_case(scaled())], refuse)


def test_an_unwritten_element_that_is_not_noticed():
    def call(views, options):
        views["data"].storage._complete()
        right(views, options)

    def act(row, case):
        cases.leave_one_unwritten(row, case, "data")

    run(scaled(), [plain_case(scaled())], act)
    with pytest.raises(AssertionError, match="accepted"):
        run(scaled(call), [plain_case(scaled())], act)


def test_ulps_and_slack():
    row = scaled(one_step_off)
    run(replace(row, ulps32=1), [plain_case(row)])
    with pytest.raises(AssertionError):
        run(replace(row, ulps=1), [plain_case(row)])  # dst is float32


def test_steps():
    one = np.float32(1)
    after = np.nextafter(one, np.float32(2), dtype=np.float32)
    left = np.array([1, 1, 0, np.nan, np.inf, 1], np.float32)
    right_ = np.array([1, after, -0.0, np.nan, 3.4e38, np.nan], np.float32)
    found = steps(left, right_)
    assert list(found[:4]) == [0, 1, 0, 0] and found[4] > 1 and found[5] > 1


def test_a_layout_addresses_what_numpy_addresses():
    """A wrong NumPy half of a layout would show: every element is found where it should be."""
    row = scaled()
    twisted = replace(CORNER, numpy=lambda a, p, w: a[32 : 32 + p, 2 : 2 + w])
    good, bad = (
        plain_case(row, layouts={"data": place, "dst": COLUMNS}) for place in (CORNER, twisted)
    )
    run(row, [good, plain_case(row, layouts={"data": REPEATED, "dst": CORNER})])
    with pytest.raises(AssertionError):
        run(row, [bad], execute)
