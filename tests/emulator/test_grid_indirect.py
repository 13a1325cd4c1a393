"""The grid with `.indirect` operands (gen4): which take them, and what they read and write.

Stub, ``NkiTensor.indirect`` and the paragraph "Tensor indirection" of each instruction. The offsets
of a view are the columns of its tile from the last to the first, so that NumPy can address the same
elements with a slice, or each column twice.
"""

from dataclasses import replace

import pytest

from nki_emulator.access import write_raw

from .grid import plain_case
from .grid_layouts import Layout
from .grid_rows import ROWS
from .grid_run import refuse, run
from .support import nl, np

# Instruction: operands that may be indirect.
INDIRECT = {
    "tensor_copy": ("dst", "src"), "tensor_copy_predicated": ("dst", "predicate"),
    "nc_matmul": ("dst", "stationary", "moving"), "tensor_tensor": ("dst", "data1"),
    "tensor_scalar": ("dst", "data"), "tensor_reduce": ("dst", "data"),
    "tensor_scalar_cumulative": ("dst", "src"), "tensor_scalar_reduce": ("dst", "data"),
    "activation": ("dst", "data"), "activation_reduce": ("dst", "data"),
    "activate2": ("dst", "data"), "exponential": ("dst", "src"),
}  # fmt: skip
# The MX pairs need one index for data and scale: test_tensor_indirection.py.
ELSEWHERE = ("nc_matmul_mx",)


def _indirect(tile, offsets, group):
    """A view of the tile's columns at ``offsets``: number i at index[i % group, i // group]."""
    partitions = tile.shape[0]
    held = np.zeros((partitions, -(-len(offsets) // group)), np.uint32)
    for number, offset in enumerate(offsets):
        held[number % group :: group, number // group] = offset
    index = nl.ndarray(held.shape, dtype=nl.uint32, buffer=nl.sbuf)
    write_raw(index, held)
    return tile.indirect(index, len(offsets))


def _backwards(group):
    return Layout(
        f"columns backwards, groups of {group}", lambda p, w: (p, w + 4),
        lambda t, p, w: _indirect(t, range(w + 2, 2, -1), group),
        lambda a, p, w: a[:, 3 : w + 3][:, ::-1],
    )  # fmt: skip


def _doubled(group):
    return Layout(
        f"each column twice, groups of {group}", lambda p, w: (p, w // 2),
        lambda t, p, w: _indirect(t, [i // 2 for i in range(w)], group),
        lambda a, p, w: np.broadcast_to(a[:, :, None], (p, w // 2, 2)),
        repeats=True, fits=lambda p, w: w % 2 == 0,
    )  # fmt: skip


def _cases(row, role, partitions):
    """The role in indirect layouts, alone and with another role, in a few dtypes."""
    operand = next(one for one in row.operands if one.role == role)
    group = 32 if row.instruction == "nc_matmul" else 16
    plain = plain_case(row, partitions)
    if row.instruction == "nc_matmul":
        plain.dtypes.update({"stationary": "bfloat16", "moving": "float16"})
    width = operand.shape(partitions, plain.width)[1]
    for layout in (_backwards(group), _doubled(group)):
        if not (layout.repeats and operand.output) and layout.fits(partitions, width):
            yield replace(plain, layouts={**plain.layouts, role: layout})
            yield replace(plain, layouts={**plain.layouts, role: layout}, filled=row.fills)


def _runs(row):
    """What the rows of an instruction cannot have together with an indirect view."""
    options = row.options if isinstance(row.options, dict) else {}
    engine = getattr(options.get("engine"), "name", "")
    return not (
        (row.instruction == "tensor_copy" and engine == "gpsimd")
        or options.get("is_transpose")
        or options.get("tile_position")
        or "perf_mode" in options
        or "last" in row.label
    )


TAKERS = [row for row in ROWS if row.instruction in INDIRECT and _runs(row)]


@pytest.mark.parametrize("row", TAKERS, ids=str)
def test_indirect_operands(row, on_target):
    on_target("trn3")
    for operand in row.operands:
        for partitions in (32, 128):
            for case in _cases(row, operand.role, partitions):
                taken = operand.role in INDIRECT[row.instruction]
                run(row, [case], *(() if taken else (refuse,)))


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.instruction not in (*INDIRECT, *ELSEWHERE) and not row.free],
    ids=str,
)
def test_instructions_without_indirect_operands(row, on_target):
    on_target("trn3")
    for operand in row.operands:
        for case in _cases(row, operand.role, row.partitions[0]):
            if case.partitions % 16 == 0:
                run(row, [case], refuse)


def test_every_instruction_is_in_one_of_the_lists():
    assert {row.instruction for row in TAKERS} == set(INDIRECT)
