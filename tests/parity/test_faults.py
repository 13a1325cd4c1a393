"""Faults put into the kernels on purpose: each must turn the parity rule, or the emulator, red."""

import pytest

import nki_emulator

from . import expressions, faults, inputs, kernels, rule
from .simulate import simulated


def run(fault, package):
    """The reports of one fault's case with the kernels of a package."""
    case = fault.case()
    kernel = simulated(kernels.load(fault.kernel, package), fault.lnc)
    return rule.compare(case.id, kernel, getattr(expressions, fault.kernel), case.build())


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.id)
def test_a_fault_is_caught(fault, tmp_path):
    with faults.edited_kernels(fault, tmp_path) as package:
        try:
            reports = run(fault, package)
        except nki_emulator.NkiError:
            return  # any other exception is a mistake in the fault, not a catch
    messages = "\n".join(str(report) for report in reports)
    assert not all(report.ok for report in reports), f"not caught:\n{messages}"


@pytest.mark.parametrize("loops", [0, 1, 2])
def test_the_same_cases_pass_without_a_fault(loops, tmp_path):
    different = {fault.case().id: fault for fault in faults.FAULTS if fault.loops == loops}
    with faults.edited_kernels(None, tmp_path, loops) as package:
        for fault in different.values():
            reports = run(fault, package)
            assert all(report.ok for report in reports), "\n".join(map(str, reports))


def test_every_kernel_has_faults():
    assert {fault.kernel for fault in faults.FAULTS} == set(inputs.BUILDERS)


def test_a_fault_whose_text_is_gone_is_an_error(tmp_path):
    fault = faults.Fault("linear", "gone", "linear.py", "no such text", "", {})
    with pytest.raises(LookupError, match="occurs 0 times in linear.py"):
        with faults.edited_kernels(fault, tmp_path):
            pass
