"""Calling kernels: arguments, results, jit, simulate and the launch grid."""

from dataclasses import dataclass

import torch

from nki_emulator import NkiArgumentError, NkiValidationError, record

from .support import (
    load,
    ml_dtypes,
    nisa,
    nki,
    nl,
    np,
    pair,
    pytest,
    refused,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip


@nki.jit
def double(x):
    t = load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    return save(t)


@nki.jit
def double_in_place(x):
    t = nl.ndarray(x.shape, dtype=x.dtype)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=x, src=t)
    return x


# Arrays in, arrays out.


def test_a_jitted_kernel_runs_when_called():
    x = values((4, 5))
    got = double(x)
    assert isinstance(got, np.ndarray)
    same_bits(got, 2 * x)
    same_bits(nki.simulate(double)(x), 2 * x)
    assert double.__name__ == "double" and double.__wrapped__ is double.function


def test_simulate_takes_a_plain_function_and_the_result_is_no_view_of_a_tile():
    def kernel(x):
        return save(load(x))

    x = values((4, 5))
    first = nki.simulate(kernel)(x)
    nki.simulate(kernel)(values((4, 5), seed=9))
    same_bits(first, x)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.int8,
     torch.float8_e4m3fn, torch.float8_e5m2],
)  # fmt: skip
def test_torch_in_torch_out(dtype):
    def kernel(x):
        return save(load(x))

    x = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    got = simulate(kernel)(x)
    assert isinstance(got, torch.Tensor) and got.dtype == dtype
    assert torch.equal(got.view(torch.uint8), x.view(torch.uint8))


def test_torch_parameters_that_require_gradients():
    x = torch.nn.Parameter(torch.ones(2, 3))
    assert torch.equal(double(x), torch.full((2, 3), 2.0))


def test_one_torch_argument_makes_torch_results():
    def kernel(x, y):
        return save(load(x)), save(load(y))

    first, second = simulate(kernel)(np.ones((2, 2), np.float32), torch.ones(2, 2))
    assert isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)


def test_bfloat16_numpy_results():
    x = values((4, 5), "bfloat16")
    got = double(x)
    assert got.dtype == ml_dtypes.bfloat16
    same_bits(got, (2 * x.astype(np.float32)).astype(ml_dtypes.bfloat16))


def test_results_keep_their_structure():
    def kernel(x, how):
        if how == "none":
            return None
        if how == "tuple":
            return save(load(x)), save(load(x))
        return [save(load(x))]

    x = values((2, 3))
    assert simulate(kernel)(x, "none") is None
    assert isinstance(simulate(kernel)(x, "tuple"), tuple)
    assert isinstance(simulate(kernel)(x, "list"), list)


# Arguments that the kernel writes.


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_written_argument_changes_for_the_caller_and_comes_back_as_itself(make):
    x = make([[1.0, 2.0], [3.0, 4.0]])
    x = x.astype(np.float32) if isinstance(x, np.ndarray) else x.to(torch.float32)
    assert double_in_place(x) is x
    assert x[1, 1] == 8


def test_strided_arguments_are_read_and_written_in_place():
    base = values((6, 8))
    expected = base.copy()
    expected[::2, 1::3] *= 2
    double_in_place(base[::2, 1::3])
    same_bits(base, expected)
    same_bits(double(base.T), np.ascontiguousarray(2 * base.T))


def test_strided_torch_arguments_are_written_in_place():
    base = torch.arange(24.0).reshape(4, 6)
    expected = base.clone()
    expected[:, 1] *= 2
    double_in_place(base[:, 1:2])
    assert torch.equal(base, expected)


def test_arguments_share_memory_with_the_caller():
    x = values((4, 4))

    def kernel(t):
        assert np.shares_memory(t.array, x)

    simulate(kernel)(x)


def test_read_only_arrays_can_be_read_and_not_written():
    def kernel(x, write):
        t = load(x)
        if write:
            nisa.dma_copy(dst=x, src=t)  # rule

    x = values((4, 4))
    x.setflags(write=False)
    pair("read-only", kernel, (x, False), (x, True))
    strided = np.broadcast_to(np.float32(1), (4, 4))
    pair("read-only", kernel, (strided, False), (strided, True))


# Other arguments.


@dataclass
class Settings(nl.NKIObject):
    eps: float
    weight: object = None


def test_compile_time_arguments_pass_through():
    def kernel(number, text, nothing, flag, shape, settings, x=None):
        assert (number, text, nothing, flag, shape) == (3, "gelu", None, True, (1, (2, "a")))
        assert settings.eps == 0.5 and settings.weight.buffer == nl.hbm
        assert x is None

    settings = Settings(0.5, values((2, 2)))
    simulate(kernel)(3, "gelu", None, True, (1, (2, "a")), settings)
    assert isinstance(settings.weight, np.ndarray)


def test_arrays_inside_tuples_become_tensors():
    def kernel(pair_of_arrays):
        return save(load(pair_of_arrays[1]))

    x = values((2, 2))
    same_bits(simulate(kernel)((1, x)), x)


def test_defaults_and_keywords():
    def kernel(x, scale=2.0):
        t = load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=scale)
        return save(t)

    x = values((2, 2))
    same_bits(simulate(kernel)(x), 2 * x)
    same_bits(simulate(kernel)(scale=3.0, x=x), 3 * x)


def ignores(x, y=None):
    pass


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("argument-dtype", np.zeros((2, 2), np.float32), np.zeros((2, 2))),
        ("argument-dtype", np.zeros((2, 2), np.int32), np.zeros((2, 2), np.int64)),
        ("argument-dtype", torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.float64)),
        ("argument-shape", np.zeros((1,), np.float32), np.zeros((), np.float32)),
        ("argument-shape", np.zeros((1, 2), np.float32), np.zeros((0, 2), np.float32)),
        ("argument-list", (1, 2), [1, 2]),
        ("argument-list", ((1, 2),), ([1, 2],)),
        ("argument-type", 2**31 - 1, 2**40),
        ("argument-type", np.int32(-3), -(2**31) - 1),
        ("argument-type", {"1": 2}, {1: 2}),
        ("argument-type", (1, 2), {1, 2}),
        ("argument-type", 1.5, 1j),
        ("argument-type", max, range(3)),
        ("argument-type", nl.NKIObject(), object()),
        ("argument-type", (None, "a", True), (None, b"a")),
        ("argument-device", torch.zeros(2, 2), torch.zeros(2, 2, device="meta")),
    ],
)
def test_argument_rules(rule, good, bad):
    error = pair(rule, ignores, (good,), (bad,), line=None)
    assert isinstance(error, NkiArgumentError) and "argument x" in str(error)


def test_missing_and_unexpected_arguments_are_type_errors():
    for arguments, keywords in (((), {}), ((1, 2, 3), {}), ((1,), {"z": 1}), ((1,), {"x": 1})):
        with pytest.raises(TypeError, match="ignores") as caught:
            simulate(ignores)(*arguments, **keywords)
        assert caught.value.rule == "arguments"


def test_wrong_keywords_of_an_instruction_are_type_errors():
    def kernel():
        nisa.memset(dst=tile((2, 2)), value=0.0, mask=None)

    with pytest.raises(TypeError, match="mask"):
        simulate(kernel)()


# Results.


def returning(how):
    out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile((4, 4)))
    if how == "hbm":
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.hbm)
        nisa.dma_copy(dst=out, src=tile((4, 4)))
    elif how == "sbuf":
        out = tile((4, 4))
    elif how == "part":
        out = out[0:2]
    elif how == "permuted":
        out = out.permute((1, 0))
    elif how == "reshaped":
        out = out.reshape((16,))
    elif how == "number":
        out = 3
    elif how == "half":
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0:3], src=tile((3, 4)))
    return out


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("return-buffer", "shared", "hbm"), ("return-buffer", "shared", "sbuf"),
        ("return-view", "reshaped", "part"), ("return-view", "shared", "permuted"),
        ("return-type", "shared", "number"), ("return-unwritten", "shared", "half"),
    ],
)  # fmt: skip
def test_result_rules(rule, good, bad):
    error = pair(rule, returning, good, bad, line=None)
    assert rule != "return-unwritten" or "[3, 0]" in str(error)


def test_a_view_of_an_argument_is_not_a_result():
    def kernel(x, part):
        return x[0:2] if part else x

    pair("return-view", kernel, (values((4, 4)), False), (values((4, 4)), True), line=None)


# jit.


def test_jit_forms():
    @nki.jit()
    def with_parentheses(x):
        return save(load(x))

    @nki.jit(mode="auto", debug_kernel=True, show_compiler_tb=True, experimental_flags="")
    def with_mode(x):
        return save(load(x))

    x = values((2, 2))
    same_bits(with_parentheses(x), x)
    same_bits(with_mode(x), x)
    assert nki.jit(with_mode) is with_mode


def test_jit_refuses_what_it_does_not_know():
    for keywords, text in (
        ({"platform_target": "trn2"}, "NEURON_PLATFORM_TARGET_OVERRIDE"),
        ({"debug_kernel": True, "inline": True}, "inline"),
    ):
        with pytest.raises(NkiValidationError, match=text) as caught:
            nki.jit(**keywords)
        assert caught.value.rule == "jit-arguments"


def test_a_jitted_function_inside_a_kernel_is_a_plain_function():
    @nki.jit
    def inner(t):
        assert t.buffer == nl.sbuf
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        return t

    @nki.jit
    def outer(x):
        return save(inner(load(x)))

    x = values((2, 2))
    same_bits(outer(x), x + 1)


def test_kernels_nest_after_an_error():
    def broken():
        raise ValueError("in the kernel")

    with pytest.raises(ValueError, match="in the kernel"):
        simulate(broken)()
    same_bits(double(np.ones((2, 2), np.float32)), np.full((2, 2), 2, np.float32))


def test_instructions_work_only_inside_a_kernel():
    with pytest.raises(NkiValidationError) as caught:
        nl.ndarray((2, 2), dtype=nl.float32)
    assert caught.value.rule == "no-kernel" and "nl.ndarray" in str(caught.value)
    with pytest.raises(NkiValidationError) as caught:
        nisa.memset(None, 0.0)
    assert caught.value.rule == "no-kernel" and "nisa.memset" in str(caught.value)


# The launch grid.


def test_program_identity_without_and_with_a_grid():
    def kernel(dims):
        assert (nl.program_id(0), nl.num_programs(0), nl.program_ndim()) == (0, 1, dims)
        assert nl.program_id() == 0 and nl.num_programs(axes=0) == 1

    simulate(kernel)(0)
    nki.simulate(nki.jit(kernel)[1])(1)


def test_grid_rules():
    def kernel(axis):
        nl.program_id(axis)  # rule

    pair("grid-axis", kernel, 0, 1)
    for lnc in (3, 0, (1,), "2", True, (1, 1)):
        with pytest.raises(NkiArgumentError) as caught:
            double[lnc]
        assert caught.value.rule == "lnc"


# Loops of nki.language.


def test_ranges_are_deprecated_aliases():
    for function in (nl.affine_range, nl.sequential_range, nl.static_range):
        with pytest.warns(DeprecationWarning, match=r"\[deprecated\] nl." + function.__name__):
            assert list(function(3)) == [0, 1, 2]
        with pytest.warns(DeprecationWarning):
            assert list(function(1, 8, 3)) == [1, 4, 7]


# Traces.


def test_instructions_are_counted_and_traced_on_request():
    def kernel(x):
        t = load(x)
        first = nisa.activation(dst=t, op=nl.exp, data=t, name="exponential")  # traced
        second = nisa.tensor_copy(dst=t, src=t)
        assert second.depends_on(first) is second and first.name == "exponential"
        return save(t)

    result, session = record(kernel)(np.zeros((4, 6), np.float32))
    assert (result == 1).all()
    assert session.instructions == 4
    assert session.counts == {"dma_copy": 2, "activation": 1, "tensor_copy": 1}
    row = session.trace[1]
    assert (row.op, row.engine, row.name, row.elements, row.bytes) == (
        "activation", "scalar", "exponential", 6, 96,
    )  # fmt: skip
    assert row.details == {"function": "exp"} and "# traced" in row.line.text
    read, written = row.reads[0], row.writes[0]
    assert read == written and read.shape == (4, 6) and read.buffer == nl.sbuf
    assert session.trace[0].writes[0].storage == read.storage


def test_a_plain_run_keeps_no_trace():
    captured = []

    def kernel():
        from nki_emulator.session import active_session

        captured.append(active_session())
        tile((2, 2))

    simulate(kernel)()
    assert captured[0].trace is None and captured[0].instructions == 1


def test_dependencies_are_checked():
    def kernel(backwards):
        first, second = (nisa.memset(tile((2, 2)), 0.0) for _ in range(2))
        (first if backwards else second).depends_on(second if backwards else first)  # rule

    def of_what(producer):
        nisa.memset(tile((2, 2)), 0.0).depends_on(*producer)  # rule

    pair("depends-on", kernel, False, True)
    pair("depends-on", of_what, ((),), ((1,),))


def test_sessions_of_several_threads_are_independent():
    import threading

    results = {}

    def work(number):
        for _ in range(20):
            results[number] = double(np.full((4, 4), number, np.float32))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((results[n] == 2 * n).all() for n in range(4))


# NKIObject.


def test_objects_without_dataclass_get_an_initialiser():
    class Point(nl.NKIObject):
        x: int
        y: bool = False

        def toggle(self):
            self.y = not self.y

    point = Point(1)
    point.toggle()
    assert (point.x, point.y) == (1, True)
    assert Point().x is None and Point(y=True).y is True
    for arguments, keywords in (((1, 2, 3), {}), ((), {"z": 1}), ((1,), {"x": 2})):
        with pytest.raises(TypeError, match="Point"):
            Point(*arguments, **keywords)


def test_plain_class_attributes_are_fields():
    @dataclass
    class Section(nl.NKIObject):
        index = None
        size: int = 4

    assert Section(index=3).index == 3 and Section().size == 4


def test_post_init_runs():
    class Made(nl.NKIObject):
        x: int

        def __post_init__(self):
            self.twice = 2 * self.x

    assert Made(4).twice == 8


def test_refused_kernels_leave_no_session_behind():
    refused("rank", lambda: nl.ndarray((4,), nl.float32), line=None)
    from nki_emulator.session import active_session

    assert active_session() is None


def test_a_list_is_refused_with_what_to_pass_instead():
    @nki.jit
    def kernel(x):
        return x

    with pytest.raises(NkiArgumentError, match="argument x is a list") as refusal:
        kernel([1.0, 2.0])
    assert "pass an array" in str(refusal.value) and "or a tuple" in str(refusal.value)
