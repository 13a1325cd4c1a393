"""Every NKI kernel, under emulation, on every row of the table."""

import pytest

from . import expressions, kernels, rule
from .cases import CASES
from .simulate import simulated


def parameters(cases):
    return [
        pytest.param(case, id=case.id, marks=[pytest.mark.long] if case.long else [])
        for case in cases
    ]


@pytest.mark.parametrize("case", parameters(CASES))
def test_kernel(case):
    kernel = simulated(kernels.load(case.kernel), case.lnc)
    rule.check(case.id, kernel, getattr(expressions, case.kernel), case.build())
