"""Wrong arguments: whatever a kernel passes, the emulator answers with an NkiError or obeys.

Every argument of every instruction is replaced by each of a hundred wrong things, one at a time,
and then several at once by hypothesis. A Python or NumPy exception would be the emulator's fault.
"""

import inspect
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nki_emulator import NkiError
from nki_emulator.access import write_raw

from . import grid
from .grid_rows import ROWS
from .support import nisa, nl, np, pair, simulate, tile

CMD = nisa.reduce_cmd


class Odd:
    """An object that no argument wants."""


PLAIN = {
    "None": None, "text": "x", "no text": "", "float": 3.7, "-1": -1, "0": 0, "1": 1, "7": 7,
    "2**31": 2**31, "below int32": -(2**31) - 1, "2**63": 2**63, "10**400": 10**400, "nan": float("nan"),
    "inf": float("inf"), "True": True, "False": False, "no list": [], "list": [1, 2], "no tuple": (),
    "triple": (1, 2, 3), "dictionary": {"a": 1}, "object": Odd(), "NumPy float": np.float64(1.5),
    "NumPy integer": np.int32(-5), "NumPy bool": np.bool_(True), "array": np.array([1, 2]),
    "0-d array": np.array(5), "2-D array": np.zeros((2, 2)), "bytes": b"x", "complex": 1j, "function": len,
    "type": int, "nl.add": nl.add, "nl.exp": nl.exp, "nl.bitwise_and": nl.bitwise_and, "nl.abs": nl.abs,
    "nl.rsqrt": nl.rsqrt, "nl.power": nl.power, "nl.invert": nl.invert, "nl.max": nl.max, "nl.bypass": nl.bypass,
    "dtype": nl.float32, "vector": nisa.engine.vector, "gpsimd": nisa.engine.gpsimd,
    "tensor engine": nisa.engine.tensor, "reduce": CMD.reduce, "load_reduce": CMD.load_reduce,
    "reset": CMD.reset, "skip": nisa.oob_mode.skip, "hwdge": nisa.dge_mode.hwdge,
    "swdge": nisa.dge_mode.swdge, "double_row": nisa.matmul_perf_mode.double_row, "range": range(3),
    "pattern": [[1, 24]], "huge count": [[1, 2**40]], "huge step": [[2**40, 24]],
    "text pattern": [["a", 1]], "triples": [[1, 2, 3]], "float step": [[1.5, 24]],
    "float count": [[1, 24.0]], "no count": [[1, 0]], "negative count": [[1, -24]],
    "zeros": [0] * 32, "texts": ["a"] * 32, "huge": [2**70] * 32, "floats": [1.5] * 32,
    "pair": (0, 0), "tile size": (128, 128), "row": (32, 0), "text pair": ("a", "b"),
    "slice": slice(0, 1), "ellipsis": Ellipsis, "exception": ValueError("x"), "ds": nl.ds(0, 1),
}  # fmt: skip
LEFT_OVER = {}


def _filled(shape, dtype=nl.float32, buffer=nl.sbuf):
    made = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    write_raw(made, np.ones(shape, made.info.storage))
    return made


def _tensors():
    """Tensors of the wrong shape, dtype, buffer or layout, and other things of a kernel."""
    full, hbm = _filled((7, 24)), _filled((7, 24), buffer=nl.private_hbm)
    one, column = _filled((1, 1), nl.uint32), _filled((7, 1), nl.uint32)
    found = {
        "tile": full, "taller": _filled((33, 5), nl.bfloat16), "column": _filled((7, 1)),
        "bfloat16 column": _filled((7, 1), nl.bfloat16), "psum": _filled((7, 24), buffer=nl.psum),
        "hbm": hbm, "1-D hbm": _filled((5,), nl.int32, nl.private_hbm),
        "shared": _filled((7, 24), buffer=nl.shared_hbm), "unwritten": nl.ndarray((7, 24), nl.float32),
        "packed": _filled((7, 24), nl.float8_e4m3fn_x4), "bool": _filled((7, 24), nl.bool_),
        "one": one, "scales": _filled((7, 24), nl.float8_e8m0fnu),
        "repeated": _filled((7, 1)).broadcast(1, 24), "5-D": _filled((7, 2, 3, 2, 2)),
        "permuted": _filled((7, 2, 1, 3, 2, 2)).permute((0, 5, 4, 3, 2, 1)),
        "from partition 16": _filled((128, 24))[16:23], "from 32": _filled((128, 24))[32:39],
        "register": nisa.register_alloc(1), "unwritten register": nisa.register_alloc(),
        "tensors": [full, full], "tensor and None": [full, None], "seventeen": [full] * 17,
        "rows": hbm.ap([[24, 7], [1, 24]], vector_offset=column, indirect_dim=0),
        "moved": full.ap([[24, 7], [1, 8]], scalar_offset=one, indirect_dim=1),
        "instruction": nisa.memset(full, 1.0), **LEFT_OVER,
    }  # fmt: skip
    if nisa.get_nc_version() == nisa.nc_version.gen4:
        found["indirect"] = full.indirect(_filled((7, 2), nl.uint16))
    return found


NAMES = (*PLAIN, *(
    "tile", "taller", "column", "bfloat16 column", "psum", "hbm", "1-D hbm", "shared", "unwritten",
    "packed", "bool", "one", "scales", "repeated", "5-D", "permuted", "from partition 16",
    "from 32", "register", "unwritten register", "tensors", "tensor and None", "seventeen", "rows",
    "moved", "instruction", "indirect", "of a finished kernel", "register of a finished kernel",
))  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def left_over():
    """A tile and a register of a kernel that has ended."""

    def kernel():
        LEFT_OVER["of a finished kernel"] = tile((7, 24))
        LEFT_OVER["register of a finished kernel"] = nisa.register_alloc(3)

    simulate(kernel)()
    yield
    LEFT_OVER.clear()


def arguments(row):
    """What the row passes, by parameter of the instruction."""
    placed, env = grid.place(row, grid.plain_case(row))
    options = row.options(env) if callable(row.options) else row.options
    found = {**{role: one.view for role, one in placed.items()}, **options}
    if row.instruction == "dma_compute":
        sources = [one.view for role, one in placed.items() if role != "dst"]
        found = {"dst": _filled((7, 24)), "srcs": sources, "reduce_op": nl.add}
    parameters = inspect.signature(getattr(nisa, row.instruction)).parameters
    required = {
        name: None for name, one in parameters.items() if one.default is inspect.Parameter.empty
    }
    return {**required, **{name: one for name, one in found.items() if name in parameters}}


def attempt(function, values, what):
    """Call; an NkiError with a message is an answer, any other exception is not."""
    try:
        function(**values)
    except NkiError as error:
        assert str(error)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


# The first row of each instruction.
FIRST = list({row.instruction: row for row in reversed(ROWS)}.values())[::-1]


@pytest.fixture(autouse=True)
def quiet():
    """Odd values may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("row", FIRST, ids=lambda row: row.instruction)
def test_each_argument_replaced(row, target, on_target):
    on_target(target)
    function = getattr(nisa, row.instruction)

    def kernel():
        base = arguments(row)
        wrong = {**PLAIN, **_tensors()}
        for parameter in inspect.signature(function).parameters:
            for name, value in wrong.items():
                attempt(function, {**base, parameter: value}, f"{parameter}={name}")

    simulate(kernel)()


@pytest.mark.parametrize("row", FIRST, ids=lambda row: row.instruction)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_several_arguments_replaced(row, data, monkeypatch):
    function = getattr(nisa, row.instruction)
    parameters = list(inspect.signature(function).parameters)
    replaced = data.draw(
        st.lists(
            st.dictionaries(st.sampled_from(parameters), st.sampled_from(NAMES), min_size=2),
            min_size=4, max_size=12,
        )
    )  # fmt: skip
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    def kernel():
        base = arguments(row)
        wrong = {**PLAIN, **_tensors()}
        for names in replaced:
            changed = {parameter: wrong[name] for parameter, name in names.items()}
            attempt(function, {**base, **changed}, str(names))

    simulate(kernel)()


# The same for what is not an instruction of an engine: registers, the two-core functions, views.


def _others(wrong):
    register, shared = wrong["register"], wrong["shared"]
    full, one = wrong["tile"], wrong["one"]
    return {
        "register_alloc": (nisa.register_alloc, (None,)),
        "register_move": (nisa.register_move, (register, 1)),
        "register_load": (nisa.register_load, (register, one)),
        "register_store": (nisa.register_store, (one, register)),
        "core_barrier": (nisa.core_barrier, (shared, (0, 1), nisa.engine.gpsimd)),
        "sendrecv": (nisa.sendrecv, (full, full, 1, 1, 0, nisa.dma_engine.dma)),
        "depends_on": (wrong["instruction"].depends_on, (wrong["instruction"],)),
        "ndarray": (nl.ndarray, ((7, 24), nl.float32, nl.sbuf, "", None)),
    }


def _views(tensor, wrong):
    one, column = wrong["one"], wrong["column"]
    methods = {
        "__getitem__": (slice(0, 3),), "slice": (1, 0, 3), "select": (1, 2), "vector_select": (0, column),
        "permute": ((0, 1),), "broadcast": (1, 3), "expand_dim": (1,), "squeeze_dim": (1,),
        "reshape_dim": (1, (2, 12)), "flatten_dims": (1, 1), "reshape": ((7, 2, 12),),
        "rearrange": (("p", ("a", "b")), ("p", "b", "a"), {"a": 2}), "view": (nl.int32,),
        "ap": ([[24, 7], [1, 24]], 0, None, None, 0, None), "indirect": (one, 1),
    }  # fmt: skip
    return {name: (getattr(tensor, name), values) for name, values in methods.items()}


@pytest.mark.parametrize(
    "of", ["functions", "tile", "psum", "hbm", "1-D hbm", "5-D", "permuted", "packed", "rows", "moved"]
)  # fmt: skip
def test_other_functions_and_views(of, on_target):
    on_target("trn3")

    def kernel():
        wrong = {**PLAIN, **_tensors()}
        calls = _others(wrong) if of == "functions" else _views(wrong[of], wrong)
        for function, values in calls.values():
            for position in range(len(values)):
                for name, value in wrong.items():
                    changed = (*values[:position], value, *values[position + 1 :])
                    attempt(lambda f=function, v=changed: f(*v), {}, f"{function}, {name}")

    simulate(kernel)()


# Rules that the attack has led to.


@pytest.mark.parametrize("bad", ["no", 1, None, np.array([1, 2])])
def test_flags_are_true_or_false(bad):
    def kernel(reverse):
        t = tile((4, 4))
        nisa.tensor_scalar(t, t, nl.subtract, 1.0, reverse0=reverse)  # rule

    pair("flag", kernel, True, bad)


@pytest.mark.parametrize("good, bad", [(3.4e38, 3.5e38), (float("inf"), 10**400), (-1, -(10**39))])
def test_numbers_are_in_the_range_of_float32(good, bad):
    def kernel(number):
        t = tile((4, 4))
        nisa.tensor_scalar(t, t, nl.add, number)  # rule

    pair("number-range", kernel, good, bad)
