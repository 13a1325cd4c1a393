"""The parity rule itself: it accepts honest rounding and rejects small, local and global faults."""

import pytest
import torch

from . import expressions, inputs, rule

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@pytest.fixture(params=DTYPES, ids=str)
def sample(request):
    """An attention case: (output of a careful kernel, base, reference, q, k, v)."""
    draw = inputs.Draw(request.param, seed=3)
    arguments = inputs.attention(draw, tokens=197, head_dim=64)
    base = expressions.attention(*arguments)
    reference = expressions.attention(*[rule.upcast(argument) for argument in arguments])
    return base, reference, arguments


def judge(output, sample, again=None):
    base, reference, _ = sample
    return rule.judge("sample", output, output if again is None else again, base, reference)


def test_accepts_pytorch_itself(sample):
    assert judge(sample[0], sample).ok


def test_accepts_the_correctly_rounded_result(sample):
    base, reference, _ = sample
    assert judge(reference.to(base.dtype), sample).ok


def test_accepts_other_errors_of_the_size_of_pytorch_s(sample):
    """Honest noise: PyTorch's own errors, dealt to other elements and rounded again."""
    base, reference, _ = sample
    error = (base.double() - reference).flatten()
    dealt = error[torch.randperm(error.numel())].view(reference.shape)
    assert judge((reference + dealt).to(base.dtype), sample).ok


def scaled(output, arguments):
    return (output.double() * 1.01).to(output.dtype)


def without_bias(output, arguments):
    """As if each value vector had lost a bias of a hundredth of its size."""
    return (output.double() - 0.01).to(output.dtype)


def two_rows_exchanged(output, arguments):
    output = output.clone()
    output[0, [3, 4]] = output[0, [4, 3]]
    return output


def one_row_misses_the_last_key(output, arguments):
    """A mask that is off by one for a single query."""
    q, k, v, scale, *views = [rule.upcast(argument) for argument in arguments]
    short = expressions.attention(q, k[:, :, :-1], v[:, :, :-1], scale, None, None, None)
    output = output.clone()
    output[0, 100] = short[0, 100].to(output.dtype)
    return output


def one_nan(output, arguments):
    output = output.clone()
    output[0, 50, 1, 7] = float("nan")
    return output


def one_infinity(output, arguments):
    output = output.clone()
    output[0, 50, 1, 7] = float("inf")
    return output


def constant(output, arguments):
    return torch.zeros_like(output)


def negated(output, arguments):
    return -output


def another_dtype(output, arguments):
    return output.double()


def another_shape(output, arguments):
    return output.transpose(1, 2)


@pytest.mark.parametrize(
    "fault",
    [
        scaled,
        without_bias,
        two_rows_exchanged,
        one_row_misses_the_last_key,
        one_nan,
        one_infinity,
        constant,
        negated,
        another_dtype,
        another_shape,
    ],
)
def test_rejects(sample, fault):
    base, reference, arguments = sample
    output = fault(reference.to(base.dtype), arguments)
    assert not judge(output, sample).ok


def test_rejects_other_bits_on_the_second_run(sample):
    again = sample[0].clone()
    again.view(-1)[5] = torch.nextafter(again.view(-1)[5].float(), torch.tensor(9.0)) * 1.01
    report = judge(sample[0], sample, again)
    assert report.failures == ("a second run gave other bits",)


def test_a_negative_zero_is_another_result_than_zero():
    zeros = torch.zeros(3, 3)
    report = rule.judge("zeros", zeros, -zeros, zeros, zeros.double())
    assert not report.identical


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_accepts_a_constant_where_the_reference_is(dtype):
    ones = torch.ones(4, 8, dtype=dtype)
    assert rule.judge("ones", ones, ones, ones, ones.double()).ok


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_reference_of_zeros_leaves_no_room(dtype):
    zeros = torch.zeros(4, 8, dtype=dtype)
    wrong = zeros.clone()
    wrong[2, 3] = 1e-4
    assert rule.judge("zeros", zeros, zeros, zeros, zeros.double()).ok
    assert not rule.judge("wrong", wrong, wrong, zeros, zeros.double()).ok


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_slack_admits_one_rounding_where_pytorch_is_exact(dtype):
    """Base without error: each element off by half an ulp passes, by an ulp everywhere fails."""
    step = torch.finfo(dtype).eps
    exact = torch.full((64, 64), 1.5, dtype=torch.float64)
    exact[::2] = -1.5
    base = exact.to(dtype)
    once = exact + (torch.rand(64, 64).double() - 0.5) * step
    assert rule.judge("rounded once", base, base, once.to(dtype), once).ok
    shifted = (exact + step).to(dtype)
    assert not rule.judge("shifted", shifted, shifted, base, exact).ok


@pytest.mark.parametrize(
    ("dtype", "magnitude", "expected"),
    [
        (torch.bfloat16, 1.0, 2.0**-7),
        (torch.bfloat16, 1.99, 2.0**-7),
        (torch.float16, 2.0, 2.0**-9),
        (torch.float32, 0.75, 2.0**-24),
        (torch.float16, 0.0, 2.0**-24),
    ],
)
def test_ulp(dtype, magnitude, expected):
    assert rule.ulp(dtype, magnitude) == expected


def test_the_message_has_every_number_and_the_first_wrong_elements(sample):
    base, reference, arguments = sample
    message = str(judge(two_rows_exchanged(reference.to(base.dtype), arguments), sample))
    for part in ("max error", "rms error", "PyTorch's", "limit", "cosine", "finite", "second run"):
        assert part in message
    assert "FAILED: largest error above its limit" in message
    assert "in 4 of 394 rows" in message  # two tokens of two heads
    assert "[0, 3, 0, 0]: got" in message


def test_unusable_measures_are_the_case_s_fault():
    ones, nan = torch.ones(2, 2), torch.full((2, 2), float("nan"))
    with pytest.raises(ValueError, match="base is not finite"):
        rule.judge("case", ones, ones, nan, ones.double())
    with pytest.raises(ValueError, match="torch.float64"):
        rule.judge("case", ones, ones, ones, ones)
    with pytest.raises(ValueError, match="empty"):
        rule.judge("case", ones[:0], ones[:0], ones[:0], ones[:0].double())


def test_the_base_is_computed_before_the_kernel_can_touch_its_inputs():
    def doubles_its_input(x, weight, residual, eps):
        x.mul_(2)
        return expressions.rms_norm(x, weight, residual, eps)

    arguments = inputs.rms_norm(inputs.Draw(torch.float32, seed=1), values="faint", eps=1e-2)
    with pytest.raises(AssertionError, match="second run gave other bits"):
        rule.check("doubles", doubles_its_input, expressions.rms_norm, arguments)


def test_every_output_of_a_tuple_is_judged():
    arguments = inputs.rms_norm(inputs.Draw(torch.float32, seed=1), residual=True)

    def forgets_the_sum(x, weight, residual, eps):
        return expressions.rms_norm(x, weight, residual, eps)[0], x

    with pytest.raises(AssertionError, match=r"forgets\[1\]"):
        rule.check("forgets", forgets_the_sum, expressions.rms_norm, arguments)
    with pytest.raises(AssertionError, match="returned 1 and then 1 tensors"):
        rule.check("one", lambda *items: items[0], expressions.rms_norm, arguments)
