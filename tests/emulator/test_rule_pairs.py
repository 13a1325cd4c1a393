"""Pairs of tests for rules that only warn, that no kernel line breaks, or that need more set up.

The other rules have theirs in the tests of the instructions they belong to.
"""

from nki_emulator import NkiArgumentError, NkiNotImplemented, NkiUninitializedRead

from .support import (
    load,
    nisa,
    nki,
    nl,
    pair,
    pair_of_calls,
    pytest,
    save,
    simulate,
    tile,
    values,
    warned,
)  # fmt: skip

X = values((4, 8))


def copied(x):
    return save(load(x))


# Launches.


@pytest.mark.parametrize(
    "arguments, keywords", [((), {}), ((X, X), {}), ((X,), {"y": X}), ((X,), {"x": X})]
)
def test_arguments(arguments, keywords):
    error = pair_of_calls(
        "arguments", lambda: simulate(copied)(x=X), lambda: simulate(copied)(*arguments, **keywords)
    )
    assert isinstance(error, NkiArgumentError) and "copied(x)" in str(error)


@pytest.mark.parametrize("bad", [0, 3, (1,), "2", True])
def test_lnc(bad):
    pair_of_calls("lnc", lambda: nki.jit(copied)[2], lambda: nki.jit(copied)[bad])


@pytest.mark.parametrize("bad", [{"platform_target": "trn2"}, {"debug_kernel": True}])
def test_jit_arguments(bad):
    pair_of_calls("jit-arguments", lambda: nki.jit(mode="auto"), lambda: nki.jit(**bad))


def test_instructions_outside_a_kernel():
    def allocate():
        nl.ndarray((2, 2), dtype=nl.float32)

    pair_of_calls("no-kernel", simulate(allocate), allocate)


def test_what_is_not_implemented():
    def bad():
        nki.collectives.all_reduce([], [], None, nl.add)

    error = pair_of_calls("not-implemented", lambda: simulate(copied)(X), bad)
    assert isinstance(error, NkiNotImplemented)


def test_results_that_were_not_written():
    def kernel(rows):
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0:rows], src=tile((rows, 8)))
        return out

    error = pair("return-unwritten", kernel, 4, 3, line=None)
    assert isinstance(error, NkiUninitializedRead)


@pytest.mark.parametrize(
    "rule, variable, good, bad",
    [
        ("precise-fp", "NKI_PRECISE_FP", "1", "2"),
        ("precise-fp", "NKI_PRECISE_FP", "0", "yes"),
        ("target", "NEURON_PLATFORM_TARGET_OVERRIDE", "gen2", "gen1"),
    ],
)
def test_values_of_the_environment(monkeypatch, rule, variable, good, bad):
    def run_with(value):
        monkeypatch.setenv(variable, value)
        simulate(copied)(X)

    pair_of_calls(rule, lambda: run_with(good), lambda: run_with(bad))


# Constants.


@pytest.mark.parametrize("bad", [1, 0, "yes", None])
def test_what_is_on_or_off(bad):
    def kernel(reverse):
        t = tile((4, 4))
        nisa.tensor_scalar(dst=t, data=t, op0=nl.subtract, operand0=1.0, reverse0=reverse)  # rule

    pair("flag", kernel, True, (bad,))


@pytest.mark.parametrize("good, bad", [(3.4e38, 3.5e38), (float("inf"), 1e39), (0, -(10**39))])
def test_numbers_beyond_float32(good, bad):
    def kernel(number):
        t = tile((4, 4))
        nisa.tensor_scalar(dst=t, data=t, op0=nl.maximum, operand0=number)  # rule

    pair("number-range", kernel, good, bad)


# Warnings.


def test_a_value_outside_the_range_of_an_activation():
    def kernel(value):
        t = tile((2, 2), value=value)
        nisa.activation(dst=t, op=nl.log, data=t)  # rule

    warned("activation-range", kernel, 2.0**64, 2.0**65)


def test_the_maximum_of_a_row_without_elements():
    def kernel(dtype):
        bound, x = tile((8, 1), value=6.0), tile((8, 6))
        result, narrow = tile((8, 1), dtype), tile((8, 6), nl.bfloat16)
        at_least = nl.greater_equal
        nisa.range_select(narrow, x, at_least, at_least, bound, bound, reduce_res=result)  # rule

    warned("range-select-maximum", kernel, nl.float32, nl.bfloat16)


def test_logic_of_other_numbers_than_0_and_1():
    def kernel(value):
        nl.logical_and(tile((2, 2), value=1.0), tile((2, 2), value=value))  # rule

    warned("boolean-values", kernel, 1.0, 2.0)


@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
def test_deprecated_ranges(name):
    def kernel(function):
        assert list(function(1, 6, 2)) == [1, 3, 5]  # rule

    warned("deprecated", kernel, range, getattr(nl, name))


@pytest.mark.parametrize(
    "old, new", [("psum_fmax", "psum_bank_fmax"), ("total_available_sbuf_size", "sbuf_fmax_bytes")]
)
def test_deprecated_names_of_tile_size(old, new):
    def kernel(name):
        assert getattr(nl.tile_size, name) == getattr(nl.tile_size, new)  # rule

    warned("deprecated", kernel, new, old)


def test_a_seed_that_may_not_reach_rand():
    def kernel(seed):
        seed(nl.full((1, 1), 42, dtype=nl.int32))  # rule

    warned("random-seed-engine", kernel, nisa.set_rng_seed, nl.random_seed)


# Rules of .indirect views that need an operand of their own.


def test_an_indirect_operand_in_transpose_mode(on_target):
    on_target("trn3")

    def kernel(indirect):
        acc = nl.ndarray((32, 32), dtype=nl.bfloat16, buffer=nl.psum)
        eye = nl.shared_identity_matrix(32, nl.bfloat16)
        data = tile((32, 32), nl.bfloat16)
        columns = nl.ndarray((32, 1), dtype=nl.uint32)
        nisa.iota(dst=columns, pattern=[[0, 1]], channel_multiplier=1)
        if indirect == "moving":
            eye = eye.indirect(columns, 32)
        else:
            data = data.indirect(columns, 32)
        nisa.nc_matmul(acc, data, eye, is_transpose=True)  # rule

    pair("indirect-transpose", kernel, "stationary", "moving")


def test_mx_operands_and_their_scales(on_target):
    on_target("trn3")

    def kernel(which):
        index, other = tile((32, 1), nl.uint32), tile((32, 1), nl.uint32)
        data = tile((32, 8), nl.float8_e4m3fn_x4)
        scale = tile((32, 8), nl.float8_e8m0fnu, value=1.0)
        scales = {
            "same": scale.indirect(index, 4),
            "static": scale[:, 0:4],
            "other": scale.indirect(other, 4),
        }
        acc = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        moving, fixed = data.indirect(index, 4), data[:, 0:4]
        nisa.nc_matmul_mx(acc, fixed, moving, scale[:, 0:4], scales[which])  # rule

    for bad in ("static", "other"):
        pair("indirect-mx-pair", kernel, "same", bad)
