"""Run every check over the kernel code of some paths."""

from dataclasses import dataclass

from .checks import CLASS_CHECKS, JIT_CALL_CHECKS, UNIT_CHECKS
from .checks.loops import find_loop_parameters
from .context import Context
from .evaluate import Evaluator
from .reach import Program
from .source import Sources


@dataclass(frozen=True)
class Result:
    """findings in order of place; kernels: @nki.jit functions; functions: all kernel code."""

    findings: list
    kernels: int
    functions: int


def check_program(paths):
    """The :class:`Result` of checking files and folders; raises CheckError if one is unusable."""
    sources = Sources(paths)
    evaluator = Evaluator(sources)
    program = Program(sources, evaluator)
    find_loop_parameters(program, evaluator)
    context = Context(evaluator, program)
    for unit in program.units:
        for check in UNIT_CHECKS:
            check(unit, context)
    for value in program.classes:
        for check in CLASS_CHECKS:
            check(value, context)
    for module, call in program.jit_calls:
        for check in JIT_CALL_CHECKS:
            check(module, call, context)
    kernels = sum(unit.is_kernel for unit in program.units)
    return Result(context.findings, kernels, len(program.units))
