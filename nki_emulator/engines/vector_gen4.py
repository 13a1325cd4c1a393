"""Vector Engine of gen4: the exponential of softmax, with its running sum."""

import numpy as np

from .. import rules
from ..access import read_float32, write_float32
from ..accumulators import accumulate, accumulator, lanes_of, loaded_values, require_command
from ..enums import reduce_cmd
from ..errors import NkiValidationError
from ..operators import ALU
from .alu import rows
from .operands import number_or_column, row_result

MAX_DIMS = 4
COMMANDS = (reduce_cmd.idle, reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.load_reduce)
# Stub, exponential: "Supported dtypes" of each operand.
SMALL_FLOATS = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32")
SMALL_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16")
SRC_DTYPES = (*SMALL_FLOATS, *SMALL_INTEGERS, "uint32")
DST_DTYPES = (*SMALL_FLOATS, "tfloat32", *SMALL_INTEGERS)
RESULT_DTYPES = (*SMALL_FLOATS, "tfloat32")


def exponential(session, dst, src, max_value, reduce_res, command, reduce_init, name):
    """dst = exp(src - max_value), with an optional sum over the free dimensions."""
    rules.from_generation(session, 4, "exponential")
    rules.on_chip(dst, "dst")
    rules.on_chip(src, "src")
    rules.same_free_size(src, "src", dst, "dst")
    rules.dtype_in(dst, "dst", DST_DTYPES)
    rules.dtype_in(src, "src", SRC_DTYPES)
    for operand, role in ((dst, "dst"), (src, "src")):
        if operand.ndim > MAX_DIMS:
            raise NkiValidationError(
                "tile-rank",
                f"{role} has {operand.ndim} dimensions; exponential takes at most {MAX_DIMS}.",
            )
    require_command(command, COMMANDS)
    loaded = loaded_values(command, reduce_init, "reduce_init", src, unset=0.0)
    if reduce_res is not None:
        row_result(reduce_res, "reduce_res", src)
        rules.dtype_in(reduce_res, "reduce_res", RESULT_DTYPES)
    largest = number_or_column(max_value, "max_value", src, ("float32",))
    values = np.subtract(read_float32(src, "src"), largest)
    np.exp(values, out=values)
    registers, lanes = accumulator(session, "vector"), lanes_of(src)
    accumulate(
        registers, lanes, command, ALU["add"], lambda: np.add.reduce(rows(values), axis=1), loaded
    )
    write_float32(dst, values)
    writes = (dst,)
    if reduce_res is not None:
        write_float32(reduce_res, registers.read(lanes))
        writes = (dst, reduce_res)
    return session.finish("exponential", "vector", writes, (src, max_value, reduce_init), name)
