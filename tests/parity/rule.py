"""The parity rule: when is a kernel's output as good as PyTorch's own?

No tolerance is chosen by hand. A PyTorch expression of the kernel is evaluated twice on the very
same inputs: in float64 (the reference) and in the kernel's dtype (the base). What PyTorch loses to
rounding in that dtype is the measure of what a kernel may lose. An output passes when

- its shape and dtype are the reference's shape and the kernel's dtype;
- every element is finite;
- its largest absolute error is at most twice the base's plus one ulp (unit in the last place) of
  the dtype at the magnitude of the reference's largest element;
- its root-mean-square error is at most twice the base's plus the root-mean-square error of one
  correct rounding, ulp / sqrt(12), at the reference's root-mean-square magnitude. This slack
  is 0.29 ulp of a typical element: it lets an output be rounded once where the base
  happens to be exact, and is far below the effect of a missing term;
- its cosine with the reference is at least 0.9999 (undefined, hence not asked, when the reference
  is zero everywhere);
- it is not constant, unless the reference rounded to the dtype is;
- a second run gives the same bits.

The maximum finds what is wrong in one place (a row, a mask), the root mean square what is slightly
wrong everywhere (a scale, an approximation), the cosine what is unrelated.
"""

import math
from dataclasses import dataclass

import torch

ERROR_RATIO = 2.0
COSINE_FLOOR = 0.9999
SHOWN_ELEMENTS = 6


def ulp(dtype, magnitude):
    """The distance between neighbouring values of `dtype` at `magnitude` (a float >= 0)."""
    info = torch.finfo(dtype)
    magnitude = max(magnitude, info.tiny)
    return info.eps * 2.0 ** math.floor(math.log2(magnitude))


@dataclass(frozen=True)
class Report:
    """Every number of one comparison. `failures` names the criteria that do not hold."""

    name: str
    dtype: torch.dtype
    shape: tuple
    max_error: float
    base_max_error: float
    max_limit: float
    rms_error: float
    base_rms_error: float
    rms_limit: float
    cosine: float
    finite: bool
    constant: bool
    identical: bool
    failures: tuple
    details: str

    @property
    def ok(self):
        return not self.failures

    def __str__(self):
        verdict = "ok" if self.ok else "FAILED: " + "; ".join(self.failures)
        lines = [
            f"parity of {self.name} {tuple(self.shape)} {self.dtype}: {verdict}",
            f"  max error {self.max_error:.4g}  PyTorch's {self.base_max_error:.4g}"
            f"  limit {self.max_limit:.4g}",
            f"  rms error {self.rms_error:.4g}  PyTorch's {self.base_rms_error:.4g}"
            f"  limit {self.rms_limit:.4g}",
            f"  cosine {self.cosine:.8f}  finite {self.finite}  constant {self.constant}"
            f"  same bits on a second run {self.identical}",
        ]
        return "\n".join(lines) + self.details


def judge(name, output, again, base, reference):
    """Apply the rule to one output tensor and return its Report.

    output     what the kernel returned
    again      what the kernel returned on a second run with the same inputs
    base       the PyTorch expression in the kernel's dtype
    reference  the PyTorch expression in float64 on the same inputs

    Raises ValueError when base or reference cannot serve as a measure: that is a fault of the
    test case (values out of the dtype's range, say), not of the kernel.
    """
    _require_usable(name, base, reference)
    dtype = base.dtype
    if output.shape != reference.shape or output.dtype != dtype:
        return _mismatch(name, output, base)

    error = (output.double() - reference).abs()
    base_error = (base.double() - reference).abs()
    base_max_error, base_rms_error = base_error.max().item(), _rms(base_error)
    max_limit = ERROR_RATIO * base_max_error + ulp(dtype, reference.abs().max().item())
    rms_slack = ulp(dtype, _rms(reference)) / math.sqrt(12)
    rms_limit = ERROR_RATIO * base_rms_error + rms_slack

    finite = bool(torch.isfinite(output).all())
    constant = _is_constant(output)
    report = dict(
        name=name,
        dtype=dtype,
        shape=tuple(output.shape),
        max_error=error.max().item(),
        base_max_error=base_max_error,
        max_limit=max_limit,
        rms_error=_rms(error),
        base_rms_error=base_rms_error,
        rms_limit=rms_limit,
        cosine=_cosine(output.double(), reference),
        finite=finite,
        constant=constant,
        identical=_same_bits(output, again),
    )
    failures = []
    if not finite:
        failures.append("not finite")
    # Written so that a NaN on either side of a comparison fails it.
    if not report["max_error"] <= max_limit:
        failures.append("largest error above its limit")
    if not report["rms_error"] <= rms_limit:
        failures.append("rms error above its limit")
    if reference.abs().max() > 0 and not report["cosine"] >= COSINE_FLOOR:
        failures.append(f"cosine below {COSINE_FLOOR}")
    if constant and not _is_constant(reference.to(dtype)):
        failures.append("constant where the reference is not")
    if not report["identical"]:
        failures.append("a second run gave other bits")
    details = _wrong_elements(output, reference, error, max_limit) if failures else ""
    return Report(**report, failures=tuple(failures), details=details)


def compare(name, run, expression, arguments):
    """Run `run(*arguments)` twice and judge it against `expression(*arguments)`.

    run         the kernel: takes `arguments`, returns a tensor or a tuple of tensors
    expression  plain PyTorch with the same arguments and results, correct in any float dtype
    arguments   positional; tensors are upcast to float64 for the reference, the rest is passed on

    Returns one Report for each output. The reference and the base are computed before the kernel
    runs, so a kernel that writes into its inputs cannot adjust what it is compared with.
    """
    reference = _as_tuple(expression(*[upcast(argument) for argument in arguments]))
    base = _as_tuple(expression(*arguments))
    output, again = _as_tuple(run(*arguments)), _as_tuple(run(*arguments))
    if not len(output) == len(again) == len(base):
        raise AssertionError(
            f"{name} returned {len(output)} and then {len(again)} tensors; "
            f"the PyTorch expression returns {len(base)}"
        )
    names = [name] if len(base) == 1 else [f"{name}[{index}]" for index in range(len(base))]
    return [judge(*items) for items in zip(names, output, again, base, reference)]


def check(name, run, expression, arguments):
    """`compare`, raising AssertionError with every number when an output fails the rule."""
    reports = compare(name, run, expression, arguments)
    if not all(report.ok for report in reports):
        raise AssertionError("\n".join(str(report) for report in reports))
    return reports


def upcast(argument):
    """A tensor of a floating dtype in float64; anything else as it is."""
    if isinstance(argument, torch.Tensor) and argument.is_floating_point():
        return argument.double()
    return argument


def _require_usable(name, base, reference):
    if reference.dtype != torch.float64:
        raise ValueError(f"{name}: the reference is {reference.dtype}; compute it in torch.float64")
    if base.shape != reference.shape:
        raise ValueError(
            f"{name}: base has shape {tuple(base.shape)}, reference {tuple(reference.shape)}"
        )
    if reference.numel() == 0:
        raise ValueError(f"{name}: an empty result of shape {tuple(base.shape)} proves nothing")
    for what, tensor in (("base", base), ("reference", reference)):
        if not torch.isfinite(tensor).all():
            raise ValueError(
                f"{name}: the PyTorch {what} is not finite in {tensor.dtype}, so it measures "
                "nothing; choose inputs that PyTorch itself can handle in this dtype"
            )


def _mismatch(name, output, base):
    nan = float("nan")
    failure = (
        f"returned shape {tuple(output.shape)} {output.dtype}, "
        f"expected {tuple(base.shape)} {base.dtype}"
    )
    return Report(
        name, base.dtype, tuple(output.shape), nan, nan, nan, nan, nan, nan, nan,
        False, False, False, (failure,), "",
    )  # fmt: skip


def _as_tuple(result):
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _rms(tensor):
    return tensor.double().square().mean().sqrt().item()


def _cosine(output, reference):
    product = output.norm() * reference.norm()
    return ((output * reference).sum() / product).item() if product != 0 else float("nan")


def _is_constant(tensor):
    return bool((tensor == tensor.flatten()[0]).all())


def _same_bits(first, second):
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    integers = {2: torch.int16, 4: torch.int32}[first.element_size()]
    return torch.equal(first.contiguous().view(integers), second.contiguous().view(integers))


def _wrong_elements(output, reference, error, max_limit):
    """The first elements beyond the limit, or the worst ones when none is."""
    wrong = ~(error <= max_limit)
    rows = wrong.reshape(-1, wrong.shape[-1]).any(-1)
    if wrong.any():
        indices = wrong.nonzero()[:SHOWN_ELEMENTS].tolist()
        head = (
            f"\n  {int(wrong.sum())} of {wrong.numel()} elements in {int(rows.sum())} of "
            f"{rows.numel()} rows are beyond the limit of the largest error, first:"
        )
    else:
        worst = error.flatten().topk(min(SHOWN_ELEMENTS, error.numel())).indices
        indices = [list(index) for index in zip(*torch.unravel_index(worst, error.shape))]
        indices = [[int(axis) for axis in index] for index in indices]
        head = "\n  no element is beyond the limit of the largest error; the worst are:"
    lines = [
        f"    {index}: got {output[tuple(index)].item():.6g}, "
        f"expected {reference[tuple(index)].item():.6g}"
        for index in indices
    ]
    return "\n".join([head, *lines])
