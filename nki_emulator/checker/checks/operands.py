"""E20: memories, engines, operations, dtypes and sizes of single instructions."""

from .. import operand_rules as rules
from ..api import HBM, ISA
from ..ast_tools import text
from ..evaluate import language_name
from ..values import NONE, UNKNOWN, Constant, EnumMember, FunctionValue


class Instruction:
    """One nisa call under check: the call, and a way to report about one of its operands."""

    def __init__(self, unit, context, call):
        self.module = unit.module
        self.context = context
        self.call = call
        self.name = call.path[len(ISA) + 1 :]

    def tensor(self, operand):
        return self.call.tensor(operand)

    def written(self, operand):
        return text(self.call.nodes[operand])

    def report(self, rule, operand, found, allowed):
        place = self.call.nodes.get(operand, self.call.node)
        self.context.report(self.module, rule, place, found, f"nisa.{self.name}: {allowed}")


def check(unit, context):
    for call in context.api_calls(unit):
        if call.path.startswith(ISA + "."):
            instruction = Instruction(unit, context, call)
            check_buffers(instruction)
            check_engine(instruction)
            check_operations(instruction)
            check_dtypes(instruction)
            check_sizes(instruction)


# --- memories


def check_buffers(instruction):
    name = instruction.name
    for operand in rules.ON_CHIP_OPERANDS.get(name, ()):
        check_buffer(instruction, operand, HBM, "operands are in SBUF or PSUM")
    for operand in rules.SBUF_OPERANDS.get(name, ()):
        check_buffer(instruction, operand, {"psum"}, f"{operand} is in SBUF")
    for operand in rules.PSUM_OPERANDS.get(name, ()):
        check_buffer(instruction, operand, {"sbuf"}, f"{operand} is in PSUM")
    if engine_name(instruction) == "gpsimd":
        for operand in rules.GPSIMD_OPERANDS.get(name, ()):
            check_buffer(instruction, operand, {"psum"}, "GpSimd cannot reach PSUM")
    pair = rules.NOT_BOTH_PSUM.get(name)
    if pair is not None:
        tensors = [instruction.tensor(operand) for operand in pair]
        if all(tensor is not None and tensor.buffer == "psum" for tensor in tensors):
            found = f"{pair[0]} and {pair[1]} are both in nl.psum"
            instruction.report(
                "E20-two-psum", pair[1], found, f"at most one of {pair[0]} and {pair[1]} is in PSUM"
            )


def check_buffer(instruction, operand, refused, allowed):
    tensor = instruction.tensor(operand)
    if tensor is not None and tensor.buffer in refused:
        found = f"{operand} `{instruction.written(operand)}` is in nl.{tensor.buffer}"
        instruction.report("E20-buffer", operand, found, allowed)


# --- engines


def engine_name(instruction):
    value = instruction.call.value("engine")
    if isinstance(value, EnumMember) and value.enum == f"{ISA}.engine":
        return value.name
    return None


def check_engine(instruction):
    allowed = rules.ENGINES.get(instruction.name)
    engine = engine_name(instruction)
    if allowed is not None and engine is not None and engine not in allowed:
        instruction.report(
            "E20-engine", "engine", f"engine={engine}", f"engine is one of {', '.join(allowed)}"
        )


# --- operations


def check_operations(instruction):
    for operand, allowed in rules.OPERATIONS.get(instruction.name, {}).items():
        value = instruction.call.value(operand)
        if value in (UNKNOWN, NONE):
            continue
        operation = language_name(value)
        names = instruction.context.api.functions
        known = operation is not None and f"nki.language.{operation}" in names
        if known and operation not in allowed or isinstance(value, (Constant, FunctionValue)):
            found = f"{operand}={instruction.written(operand)}"
            listed = ", ".join(f"nl.{name}" for name in sorted(allowed))
            instruction.report("E20-operation", operand, found, f"{operand} is one of {listed}")


# --- dtypes


def check_dtypes(instruction):
    for operand, allowed in rules.DTYPES.get(instruction.name, {}).items():
        tensor = instruction.tensor(operand)
        if tensor is not None and tensor.dtype is not None and tensor.dtype not in allowed:
            found = f"{operand} `{instruction.written(operand)}` is {tensor.dtype}"
            listed = ", ".join(sorted(allowed))
            instruction.report("E20-dtype", operand, found, f"{operand} is {listed}")
    pair = rules.SAME_DTYPE.get(instruction.name)
    if pair is not None:
        dtypes = [getattr(instruction.tensor(operand), "dtype", None) for operand in pair]
        if None not in dtypes and dtypes[0] != dtypes[1]:
            found = f"{pair[0]} is {dtypes[0]}, {pair[1]} is {dtypes[1]}"
            instruction.report(
                "E20-dtype", pair[0], found, f"{pair[0]} and {pair[1]} have one dtype"
            )


# --- sizes


def check_sizes(instruction):
    check_free_size(instruction)
    check_same_shape(instruction)
    if instruction.name == "nc_matmul":
        check_matmul(instruction)
    elif instruction.name == "nc_transpose":
        check_transpose(instruction)


def check_free_size(instruction):
    limits = rules.FREE_SIZES.get(instruction.name)
    if limits is None:
        return
    operand, least, most = limits
    size = getattr(instruction.tensor(operand), "free_size", None)
    if size is not None and not least <= size <= most:
        instruction.report(
            "E20-size",
            operand,
            f"{operand} has {size} elements per partition",
            f"{operand} has {least} to {most}",
        )


def check_same_shape(instruction):
    operands = rules.SAME_SHAPE.get(instruction.name, ())
    known = [(name, instruction.tensor(name)) for name in operands]
    known = [(name, tensor) for name, tensor in known if tensor is not None and tensor.shape]
    for (first, one), (second, other) in zip(known, known[1:]):
        for what, left, right in (
            ("partitions", one.shape[0], other.shape[0]),
            ("elements per partition", one.free_size, other.free_size),
        ):
            if None not in (left, right) and left != right:
                found = f"{first} has {left} {what}, {second} has {right}"
                instruction.report(
                    "E20-size", second, found, f"{' and '.join(operands)} have equal sizes"
                )
                return


def check_matmul(instruction):
    if any(name in instruction.call.nodes for name in ("perf_mode", "tile_size", "tile_position")):
        return
    stationary = instruction.tensor("stationary")
    moving = instruction.tensor("moving")
    dst = instruction.tensor("dst")
    rows = stationary.free_size if stationary is not None else None
    columns = moving.free_size if moving is not None else None
    if rows is not None and rows > 128:
        instruction.report(
            "E20-size", "stationary", f"stationary has {rows} columns", "stationary has at most 128"
        )
        return
    if stationary is not None and moving is not None and stationary.shape and moving.shape:
        depths = (stationary.shape[0], moving.shape[0])
        if None not in depths and depths[0] != depths[1]:
            found = f"stationary has {depths[0]} partitions, moving has {depths[1]}"
            instruction.report("E20-size", "moving", found, "both have the contracted axis there")
            return
    if dst is None or not dst.shape:
        return
    for what, size, expected in (
        ("partitions", dst.shape[0], rows),
        ("elements per partition", dst.free_size, columns),
    ):
        if None not in (size, expected) and size != expected:
            found = f"dst has {size} {what}, the operands give {expected}"
            instruction.report("E20-size", "dst", found, "dst is [stationary free, moving free]")
            return


def check_transpose(instruction):
    data = instruction.tensor("data")
    dst = instruction.tensor("dst")
    engine = engine_name(instruction)
    limit = 32 if engine == "vector" else 128
    size = getattr(data, "free_size", None)
    if size is not None and size > limit:
        found = f"data has {size} elements per partition"
        instruction.report("E20-size", "data", found, f"a tile is at most {limit} x {limit}")
    elif data is not None and dst is not None and data.shape and dst.shape:
        wanted = (data.free_size, data.shape[0])
        given = (dst.shape[0], dst.free_size)
        if None not in (*wanted, *given) and wanted != given:
            found = f"data transposes to {wanted}, dst is {given}"
            instruction.report("E20-size", "dst", found, "dst is [data free, data partitions]")
