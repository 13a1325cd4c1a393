"""Random numbers: bits, uniform numbers, dropout, and the state of the generators.

A lane is a partition of the tile that an instruction fills (or, for a state, that it reads).
"""

import numpy as np

from .. import rules
from ..access import read_raw, write_float32, write_raw
from ..accumulators import lanes_of
from ..dtypes import FLOAT
from ..enums import engine as engines
from ..errors import NkiValidationError
from ..generators import WORDS, generator, uniform
from ..tensor import NkiTensor
from .operands import number_or_column

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
# Stub, rand2: "Data types".
RAND2_DTYPES = (
    "float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32", *INTEGERS,
)  # fmt: skip
# Stub, dropout: any valid dtype for the data, any float dtype for its probabilities. float8_e8m0fnu
# is left out of both: it has no zero to replace an element with, nor a probability of 0.
DROPOUT_FLOATS = (
    "float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
DROPOUT_DTYPES = (*DROPOUT_FLOATS, *INTEGERS, "bool")
SEED_DTYPES = ("uint32", "int32", "float32", "tfloat32")  # Stub, set_rng_seed: "a 32-bit value".


def rng(session, dst, engine, name):
    """dst = random bits: 32 an element, of which the dtype keeps the least significant."""
    rules.on_chip(dst, "dst")
    rules.one_of(engine, "engine", (engines.vector, engines.gpsimd))
    if engine is engines.gpsimd:
        rules.from_generation(session, 3, "rng on the GpSimd engine")
        rules.sbuf_only(dst, "dst", "the GpSimd engine")
    rules.dtype_in(dst, "dst", INTEGERS)
    write_raw(dst, _draw(session, engine, dst).astype(dst.info.storage))
    return session.finish("rng", engine.name, (dst,), (), name)


def rand2(session, dst, low, high, name):
    """dst = random numbers, uniform between min and max, which may differ by partition."""
    rules.from_generation(session, 4, "rand2")
    rules.on_chip(dst, "dst")
    rules.dtype_in(dst, "dst", RAND2_DTYPES)
    least, most = _bound(low, "min", dst), _bound(high, "max", dst)
    if not (np.isfinite(least).all() and np.isfinite(most).all() and (least < most).all()):
        raise NkiValidationError(
            "random-range", "min and max must be finite and min < max in every partition."
        )
    # In float64, because max - min may exceed what float32 holds.
    drawn = uniform(_draw(session, engines.vector, dst)).reshape(dst.shape)
    width = np.subtract(most, least, dtype=np.float64)
    write_float32(dst, (least + drawn * width).astype(np.float32))
    return session.finish("rand2", "vector", (dst,), (low, high), name)


def _bound(value, role, dst):
    if type(value) is NkiTensor:
        rules.column(value, role, dst.shape[0], "dst")
    return number_or_column(value, role, dst, ("float32",))


def dropout(session, dst, data, prob, name):
    """dst = data with elements replaced by zero with probability prob; the others keep."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_free_size(data, "data", dst, "dst")
    rules.dtype_in(data, "data", DROPOUT_DTYPES)
    if data.dtype != dst.dtype:
        raise NkiValidationError(
            "same-dtype", f"data is {data.dtype} and dst {dst.dtype}; they must be equal."
        )
    allowed = DROPOUT_FLOATS if data.info.kind == FLOAT else ("float32",)
    limit = number_or_column(prob, "prob", data, allowed)
    # Also refuses NaN.
    if not ((limit >= 0) & (limit <= 1)).all():
        raise NkiValidationError(
            "probability", "prob must be between 0 and 1, the chance that an element becomes zero."
        )
    kept = uniform(_draw(session, engines.vector, data)).reshape(data.shape) >= limit
    raw = data.info.raw
    write_raw(dst, np.where(kept, read_raw(data, "data").view(raw), raw.type(0)))
    return session.finish("dropout", "vector", (dst,), (data, prob), name)


def set_rng_seed(session, src_seeds, name):
    """Seed the generator of the Vector Engine, in every lane, from one 32-bit value."""
    rules.on_chip(src_seeds, "src_seeds")
    rules.dtype_in(src_seeds, "src_seeds", SEED_DTYPES)
    if src_seeds.shape != (1, 1):
        raise NkiValidationError(
            "seed-shape", f"src_seeds has shape {list(src_seeds.shape)}; it must be [1, 1]."
        )
    value = read_raw(src_seeds, "src_seeds").view(np.uint32)
    generator(session, engines.vector).seed(int(value[0, 0]))
    return session.finish("set_rng_seed", "vector", (), (src_seeds,), name)


def rand_set_state(session, src_seeds, engine, name):
    """Set the generator's states: a partition holds those of its lane, six words a state."""
    found = _generator_with_state(session, engine, "rand_set_state")
    _require_state(src_seeds, "src_seeds", found)
    rules.sbuf_only(src_seeds, "src_seeds", "rand_set_state")
    words = read_raw(src_seeds, "src_seeds")
    found.states[lanes_of(src_seeds)] = words.reshape((-1,) + found.states.shape[1:])
    return session.finish("rand_set_state", engine.name, (), (src_seeds,), name)


def rand_get_state(session, dst, engine, name):
    """dst = the generator's states: a partition takes those of its lane, six words a state."""
    found = _generator_with_state(session, engine, "rand_get_state")
    _require_state(dst, "dst", found)
    if engine is engines.gpsimd:
        rules.sbuf_only(dst, "dst", "the GpSimd engine")
    write_raw(dst, found.states[lanes_of(dst)].reshape(dst.shape))
    return session.finish("rand_get_state", engine.name, (dst,), (), name)


def _generator_with_state(session, engine, instruction):
    rules.from_generation(session, 3, instruction)
    rules.one_of(engine, "engine", (engines.gpsimd, engines.vector))
    if engine is engines.vector:
        rules.from_generation(session, 4, f"{instruction} on the Vector engine")
    return generator(session, engine)


def _require_state(operand, role, found):
    rules.on_chip(operand, role)
    rules.dtype_in(operand, role, ("uint32",))
    words = found.states.shape[1] * WORDS
    if operand.ndim != 2 or operand.shape[1] != words:
        raise NkiValidationError(
            "random-state",
            f"{role} has shape {list(operand.shape)}; the state of this engine's generator is "
            f"2-D with {words} words a partition.",
        )


def _draw(session, engine, tensor):
    found = generator(session, engine)
    return found.draw(lanes_of(tensor), tensor.size // tensor.shape[0])
