"""The checks, one module a concern.

Each has ``check(unit, context)``, called for every function of kernel code,
``check_class(value, context)``, called for every class, or ``check_jit_call(module, call,
context)``, called for every call of nki.jit.
"""

from . import (
    calls,
    classes,
    deprecated,
    dictionaries,
    dma,
    enums,
    libraries,
    loops,
    names,
    operands,
    partitions,
    purity,
    registers,
    results,
    signatures,
    syntax,
    tensor_values,
    views,
    wrappers,
)

UNIT_CHECKS = (
    signatures.check,
    syntax.check,
    libraries.check,
    names.check,
    calls.check,
    enums.check,
    wrappers.check,
    dictionaries.check,
    results.check,
    dma.check,
    views.check,
    partitions.check,
    operands.check,
    registers.check,
    loops.check,
    tensor_values.check,
    purity.check,
    deprecated.check,
)

CLASS_CHECKS = (classes.check_class,)

JIT_CALL_CHECKS = (signatures.check_jit_call,)
