"""Operands made with `.indirect(index)`: columns of a tile, gathered or scattered (gen4).

The instruction works on a stand-in, a tile of the addressed columns. Which operands of which
instructions may be indirect is the table below, from the paragraph "Tensor indirection" of each
instruction in the stub.

The stub gives column i as ``index[i % G, i // G]`` and says that offsets lie in a snake "across
partition groups". Read literally all partitions use the offsets of the first group; it may also
mean that each group of G partitions has its own. So every group must hold the same offsets here.
"""

import numpy as np

from .access import read_raw, require_writable
from .dynamic import INDIRECT, DynamicView
from .enums import engine
from .errors import NkiValidationError
from .regions import is_psum, is_sbuf
from .tensor import NkiTensor

VECTOR_OR_SCALAR = (engine.unknown, engine.vector, engine.scalar)
VECTOR_OR_GPSIMD = (engine.unknown, engine.vector, engine.gpsimd)
COMPUTE = (*VECTOR_OR_SCALAR, engine.gpsimd)

# Instruction: (indirect operands, the input whose partitions rule the output's, engines).
SUPPORT = {
    "tensor_copy": (("dst", "src"), "src", VECTOR_OR_SCALAR),
    "tensor_copy_predicated": (("dst", "predicate"), "predicate", None),
    "nc_matmul": (("dst", "stationary", "moving"), "stationary", None),
    "nc_matmul_mx": (
        ("dst", "stationary", "moving", "stationary_scale", "moving_scale"), "stationary", None,
    ),
    "tensor_tensor": (("dst", "data1"), "data1", VECTOR_OR_GPSIMD),
    "tensor_scalar": (("dst", "data"), "data", COMPUTE),
    "tensor_reduce": (("dst", "data"), "data", None),
    "tensor_scalar_cumulative": (("dst", "src"), "src", None),
    "tensor_scalar_reduce": (("dst", "data"), "data", None),
    "activation": (("dst", "data"), "data", None),
    "activation_reduce": (("dst", "data"), "data", None),
    "activate2": (("dst", "data"), "data", None),
    "exponential": (("dst", "src"), "src", None),
}  # fmt: skip
TENSOR_ENGINE = ("nc_matmul", "nc_matmul_mx")
SCALAR_ENGINE = ("activation", "activation_reduce", "activate2")
MATMUL_DTYPES = ("float16", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")

QUADRANT = 32


def check(instruction, operands):
    """The rules that do not depend on the offsets; ``operands`` by parameter name."""
    views = {
        name: value for name, value in operands.items()
        if isinstance(value, DynamicView) and value.kind == INDIRECT
    }  # fmt: skip
    if not views:
        return
    allowed, source, engines = SUPPORT.get(instruction, ((), None, None))
    for name in views:
        if name not in allowed:
            raise NkiValidationError(
                "indirect-operand",
                f"{name} of nisa.{instruction} cannot be an .indirect view; it takes them as "
                f"{', '.join(allowed) or 'no operand'}.",
            )
    if engines is not None and operands["engine"] not in engines:
        raise NkiValidationError(
            "indirect-engine",
            f"nisa.{instruction} with an .indirect view on {operands['engine']}; allowed: "
            f"{', '.join(map(str, engines))}.",
        )
    on_scalar_engine = instruction in SCALAR_ENGINE or operands.get("engine") is engine.scalar
    if on_scalar_engine and "dst" in views and is_psum(views["dst"].buffer):
        raise NkiValidationError(
            "indirect-scalar-psum",
            "dst is an .indirect view in PSUM, which the Scalar Engine "
            "cannot scatter to; use SBUF.",
        )
    if instruction in TENSOR_ENGINE:
        _check_matmul(instruction, operands, views)
    if instruction == "tensor_scalar" and operands["data"].dtype in ("int32", "uint32"):
        raise NkiValidationError(
            "indirect-integer",
            f"data is {operands['data'].dtype}: tensor_scalar on 32-bit integers does not take "
            f".indirect views.",
        )
    _check_partitions(views, operands[source], source)


def _check_matmul(instruction, operands, views):
    if tuple(operands["tile_position"] or ()) not in ((), (0, 0)):
        raise NkiValidationError(
            "indirect-tiling",
            f"tile_position={operands['tile_position']!r} with .indirect views; tiling needs "
            f"static operands.",
        )
    if instruction == "nc_matmul":
        if operands["is_transpose"] and "moving" in views:
            raise NkiValidationError(
                "indirect-transpose", "moving is an .indirect view and is_transpose=True."
            )
        for name, view in views.items():
            if name != "dst" and view.dtype not in MATMUL_DTYPES:
                raise NkiValidationError(
                    "indirect-dtype",
                    f"{name} is {view.dtype}; an .indirect operand of nc_matmul is "
                    f"{', '.join(MATMUL_DTYPES)}.",
                )
        return
    for name in ("stationary", "moving"):
        data, scale = views.get(name), views.get(f"{name}_scale")
        pair = data is None and scale is None
        if data is not None and scale is not None:
            same = data.index.storage is scale.index.storage
            pair = same and data.index.region == scale.index.region
        if not pair:
            raise NkiValidationError(
                "indirect-mx-pair",
                f"{name} and {name}_scale form one MX tensor: both are .indirect views with the "
                f"same index, or neither.",
            )


def _check_partitions(views, source, source_name):
    """Start partitions (stub: "When operands are manually allocated, ...")."""
    for name, view in views.items():
        start = view.index.start_partition
        if start % QUADRANT:
            raise NkiValidationError(
                "indirect-partition",
                f"the index of {name} starts at partition {start}; it must start at 0, 32, 64 or "
                f"96.",
            )
        if name != "dst" and view.start_partition != start:
            raise NkiValidationError(
                "indirect-partition",
                f"{name} starts at partition {view.start_partition} and its index at {start}; they "
                f"must be equal.",
            )
    if "dst" not in views or not isinstance(source, NkiTensor):
        return
    start, expected = views["dst"].index.start_partition, source.start_partition
    if source_name in views and is_psum(source.buffer):
        expected = views[source_name].index.start_partition
    elif not is_sbuf(source.buffer):
        return
    if start != expected:
        raise NkiValidationError(
            "indirect-partition",
            f"the index of dst starts at partition {start} and {source_name} (or its index) at "
            f"{expected}; they must be equal.",
        )


class StandIn:
    """A tile with the columns that an indirect view addresses."""

    def __init__(self, session, view, columns):
        self.view = view
        self.columns = columns
        self.tensor = _empty_like(view)
        self.whole = NkiTensor._view(
            view, view.offset, (view.shape[0], view.limit), view.strides, exact=False
        )
        held = self.whole.array[:, columns]
        raw = self.tensor.info.raw
        self.tensor.array.view(raw)[...] = held.view(raw)
        written = view.storage.is_written(self.whole)[:, columns]
        if written.any():
            self.tensor.storage.mark_where(self.tensor, written)
        if is_psum(view.buffer):
            states = view.storage.states_of(self.whole)[:, columns]
            self.tensor.storage.set_states(self.tensor, slice(None), states)
        self._version = self.tensor.storage.version
        if session.trace is not None:
            session.dynamic.stands_for(self.tensor, view, view.offset)

    def scatter(self):
        """Write the columns back, if the instruction wrote them."""
        if self.tensor.storage.version == self._version:
            return
        storage, tile = self.view.storage, self.whole
        require_writable(tile)
        if np.unique(self.columns).size != self.columns.size:
            raise NkiValidationError(
                "indirect-duplicates",
                f"the offsets {self.columns.tolist()} of the written operand hold a column twice; "
                f"which value stays is not defined.",
            )
        raw = tile.info.raw
        tile.array.view(raw)[:, self.columns] = self.tensor.array.view(raw)
        flags = np.zeros(tile.shape, np.bool_)
        flags[:, self.columns] = self.tensor.storage.is_written(self.tensor)
        storage.mark_where(tile, flags)
        if is_psum(self.view.buffer):
            states = self.tensor.storage.states_of(self.tensor)
            storage.set_states(tile, self.columns, states)


def gather(session, instruction, view, role):
    """The stand-in of an indirect operand, with the values that the addressed columns hold now."""
    group = 32 if instruction in TENSOR_ENGINE else 16
    return StandIn(session, view, _columns(view, group, role))


def _columns(view, group, role):
    index, count = view.index, view.shape[1]
    partitions, width = index.shape
    rows = min(group, partitions)
    most = rows * width if rows == group else rows
    if count > most or (partitions > group and partitions % group):
        raise NkiValidationError(
            "indirect-count",
            f"{role} uses {count} offsets of an index of shape {list(index.shape)}; this engine "
            f"takes offset i from index[i % {group}, i // {group}], so that there are at most "
            f"{most}, and more than {group} partitions come in groups of {group}. Pass num_elem.",
        )
    offsets = read_raw(index, f"the index of {role}").astype(np.int64)
    groups = offsets.reshape(-1, rows, width)
    if (groups != groups[0]).any():
        raise NkiValidationError(
            "indirect-groups",
            f"the groups of {group} partitions in the index of {role} hold different offsets; the "
            f"documents do not say whether each group uses its own. Repeat the offsets in every "
            f"group.",
        )
    columns = groups[0].T.reshape(-1)[:count]
    outside = (columns < 0) | (columns >= view.limit)
    if outside.any():
        raise NkiValidationError(
            "dynamic-out-of-bounds",
            f"the index of {role} holds {int(columns[outside][0])}; the tile has columns "
            f"0..{view.limit - 1}.",
        )
    return columns


def _empty_like(view):
    """A tile of the view's shape at its partitions, outside the memory that the kernel uses."""
    original = view.storage
    storage = type(original)(
        view.buffer, view.shape, view.info, original.table, None, original.name, original.site
    )
    storage.on_chip = True
    storage.partition, storage.address = view.start_partition, original.address
    storage.number = original.number
    return NkiTensor(view.shape, view.dtype, storage, view.buffer)
