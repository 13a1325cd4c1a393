"""Every function of `reference/` on every row of the table, under the rule for kernels."""

import importlib

import pytest

from . import expressions, rule
from .cases import CASES
from .test_kernels import parameters


@pytest.mark.parametrize("case", parameters(CASES))
def test_reference(case):
    reference = importlib.import_module("neuron_vit.reference")
    expression = getattr(expressions, case.kernel)
    rule.check(case.id, getattr(reference, case.kernel), expression, case.build())
