"""Operand rules that several instructions share.

Each function returns nothing and raises :class:`NkiValidationError` with the id of the broken rule.
They look at shapes, dtypes and buffers only, and run on every instruction, so they are short.
"""

import numpy as np

from . import views
from .errors import NkiValidationError
from .regions import MemoryRegion
from .tensor import NkiTensor

SBUF, PSUM = MemoryRegion.sbuf, MemoryRegion.psum

# ISA access patterns have a partition and up to four free dimensions (nki-aps.rst, "Hardware
# Capability").
FREE_DIMS = 4


def tensor(value, role):
    """``value`` is a tensor."""
    if type(value) is not NkiTensor:
        raise NkiValidationError(
            "operand-type", f"{role} is {value!r}; it must be a tensor (nl.ndarray or a view)."
        )


def on_chip(operand, role):
    """A compute engine's operand: a tile in SBUF or PSUM, legal partitions, few enough dims."""
    if type(operand) is not NkiTensor:
        tensor(operand, role)
    buffer = operand.buffer
    if buffer is not SBUF and buffer is not PSUM:
        raise NkiValidationError(
            "buffer-on-chip",
            f"{role} is in {buffer.value}; compute engines reach SBUF and PSUM only. Load it with "
            f"nisa.dma_copy first.",
        )
    # Architecture guide (trainium_inferentia2_arch.rst, "Data streaming" of SBUF/PSUM): which
    # partition an access may start at depends on how many partitions it covers.
    storage = operand.storage
    if operand.offset or storage.partition:
        start = operand.start_partition
        if start:
            count = operand.shape[0]
            step = 32 if count <= 32 else 64 if count <= 64 else 128
            if start % step:
                legal = {32: "0, 32, 64 or 96", 64: "0 or 64", 128: "0"}[step]
                raise NkiValidationError(
                    "start-partition",
                    f"{role} covers {count} partitions from partition {start}; an access to "
                    f"{_range(step)} partitions must start at {legal}.",
                )
    if len(operand.shape) > FREE_DIMS + 1:
        free_dims(operand, role)


def free_dims(operand, role):
    """An access pattern of an instruction has few enough free dimensions."""
    if len(operand.shape) > FREE_DIMS + 1:
        pairs = views.coalesce(operand.shape[1:], operand.strides[1:])
        if len(pairs) > FREE_DIMS:
            raise NkiValidationError(
                "free-dims",
                f"{role} has {len(pairs)} free dimensions that do not merge; an access pattern has "
                f"at most {FREE_DIMS} beside the partition.",
            )


def _range(step):
    return {32: "1..32", 64: "33..64", 128: "65..128"}[step]


def sbuf_only(operand, role, engine):
    """GpSimd and the tensor engine's inputs: SBUF."""
    if operand.buffer is not SBUF:
        raise NkiValidationError(
            "buffer-sbuf", f"{role} is in {operand.buffer.value}; {engine} reads and writes it in "
            f"SBUF only."
        )


def not_both_psum(first, second, first_role, second_role):
    """Two inputs of one instruction: at most one in PSUM."""
    if first.buffer is PSUM and second.buffer is PSUM:
        raise NkiValidationError(
            "both-psum",
            f"{first_role} and {second_role} are both in PSUM; one of them must be in SBUF.",
        )


def same_partitions(operand, role, partitions, other_role):
    """Same number of partitions."""
    if operand.shape[0] != partitions:
        raise NkiValidationError(
            "partition-count",
            f"{role} has {operand.shape[0]} partitions and {other_role} {partitions}; they must "
            f"be equal.",
        )


def same_free_size(operand, role, other, other_role):
    """Same number of partitions and of elements per partition, whatever the shapes."""
    if operand.shape == other.shape:
        return
    same_partitions(operand, role, other.shape[0], other_role)
    if operand.size != other.size:
        raise NkiValidationError(
            "free-size",
            f"{role} has {operand.size // operand.shape[0]} elements per partition (shape "
            f"{list(operand.shape)}) and {other_role} {other.size // other.shape[0]} (shape "
            f"{list(other.shape)}); they must be equal. Use .broadcast(dim, size) to repeat.",
        )


def column(operand, role, partitions, other_role):
    """A (P, 1) vector: one element per partition."""
    on_chip(operand, role)
    same_partitions(operand, role, partitions, other_role)
    if operand.size != partitions:
        raise NkiValidationError(
            "vector-operand",
            f"{role} has {operand.size // partitions} elements per partition; a vector operand "
            f"has one, shape ({partitions}, 1).",
        )


def not_packed(operand, role):
    """An engine that computes cannot look into x4 packed types."""
    if operand.info.kind == "packed":
        raise NkiValidationError(
            "packed-dtype", f"{role} is {operand.dtype}; packed types go to nc_matmul_mx, "
            f"dma_copy and tensor_copy only."
        )


def integers(operand, role, why):
    """A dtype of integers."""
    if operand.info.kind != "integer":
        raise NkiValidationError(
            "integer-dtype", f"{role} is {operand.dtype}; {why} needs an integer dtype."
        )


def dtype_in(operand, role, allowed):
    """A dtype that the instruction takes for this operand; ``allowed`` are names."""
    if operand.dtype not in allowed:
        raise NkiValidationError(
            "operand-dtype", f"{role} is {operand.dtype}; allowed: {', '.join(allowed)}."
        )


def flag(value, role):
    """An argument that is True or False."""
    if value is not True and value is not False and not isinstance(value, np.bool_):
        raise NkiValidationError("flag", f"{role}={value!r}; allowed: True or False.")


def one_of(value, role, allowed):
    """An enum argument: one of ``allowed`` (members of one enum)."""
    if type(value) is not type(allowed[0]) or value not in allowed:
        names = ", ".join(str(member) for member in allowed)
        raise NkiValidationError("enum", f"{role}={value!r}; allowed: {names}.")


def from_generation(session, least, what):
    """An instruction or option that older cores lack."""
    if session.target.generation < least:
        raise NkiValidationError(
            "target",
            f"{what} needs NeuronCore-v{least} or newer; the target is {session.target.name}.",
        )
