"""DMA: copies and transposes between HBM and SBUF, and within each. It cannot reach PSUM.

Operands may have run-time addresses: a scalar index moves the start of either side, and rows of an
HBM tensor may be chosen by a tile of indices (gather, scatter). An index out of bounds is an error
or, with ``oob_mode.skip``, leaves what it would have written untouched.
"""

from .. import rules
from ..access import read_float32, read_raw, write_float32, write_raw
from ..addresses import static_view
from ..dynamic import SCALAR, VECTOR, DynamicView
from ..enums import dge_mode as dge_modes
from ..enums import engine as engines
from ..enums import oob_mode as oob_modes
from ..errors import NkiValidationError
from ..regions import MemoryRegion
from ..registers import is_integer
from ..tensor import NkiTensor
from .rows import Rows, converted, write_rows

PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma_copy(session, dst, src, priority, oob_mode, dge_mode, engine, name):
    """dst = src, element by element in row-major order; dtypes convert through float32."""
    dynamic = type(dst) is not NkiTensor or type(src) is not NkiTensor
    for operand, role in ((dst, "dst"), (src, "src")):
        if dynamic:
            require_operand(operand, role)
        if operand.buffer is MemoryRegion.psum:
            raise NkiValidationError(
                "dma-psum",
                f"{role} is in PSUM, which DMA cannot reach; go through SBUF with "
                f"nisa.tensor_copy.",
            )
    if dst.shape != src.shape and dst.size != src.size:
        raise NkiValidationError(
            "dma-size",
            f"dst {list(dst.shape)} has {dst.size} elements and src {list(src.shape)} has "
            f"{src.size}; they must be equal.",
        )
    _check_modes(session, dst, src, priority, oob_mode, dge_mode, dynamic)
    rules.one_of(engine, "engine", (engines.unknown, engines.sync, engines.scalar))
    if engine is not engines.unknown and dge_mode is not dge_modes.hwdge:
        raise NkiValidationError(
            "dma-engine", f"engine={engine} is for dge_mode.hwdge; found {dge_mode}."
        )
    if dst.info is not src.info:
        rules.not_packed(dst, "dst")
        rules.not_packed(src, "src")
    if dynamic:
        _dynamic_copy(session, dst, src, oob_mode is oob_modes.skip)
    else:
        _copy(dst, src)
    return session.finish("dma_copy", "dma", (dst,), (src,), name)


def _copy(dst, src):
    if dst.info is src.info:
        write_raw(dst, read_raw(src, "src"))
    else:
        write_float32(dst, read_float32(src, "src"))


def _dynamic_copy(session, dst, src, skip):
    """A copy with a run-time address on one side or both."""
    vectors = [view for view in (dst, src) if is_vector(view)]
    if not vectors:
        dst, src = (
            static_view(session, view, role, skip) if type(view) is DynamicView else view
            for view, role in ((dst, "dst"), (src, "src"))
        )
        if dst is not None and src is not None:
            _copy(dst, src)
        return
    if type(dst) is DynamicView and type(src) is DynamicView:
        raise NkiValidationError(
            "dma-one-index",
            "dst and src both have a run-time address, one of them a row for each partition; the "
            "documents describe a gather or a scatter, with the other side static.",
        )
    rules.from_generation(session, 3, "a DMA with vector_offset")
    view, role = (dst, "dst") if vectors[0] is dst else (src, "src")
    indices = row_indices(view, role)
    rows = Rows(view, role, indices, skip)
    if view is src:
        write_rows(dst, converted(rows.read(), src.info, dst.info), rows.kept)
    else:
        values = read_raw(src, "src").reshape(dst.shape)[rows.kept]
        rows.write(converted(values, src.info, dst.info))


def is_vector(view):
    """Whether an operand has one row index for each partition."""
    return type(view) is DynamicView and view.kind == VECTOR


def require_operand(operand, role):
    """A tensor, or a view with a run-time address that DMA can follow."""
    if type(operand) is not DynamicView:
        rules.tensor(operand, role)
    elif operand.kind not in (SCALAR, VECTOR):
        raise NkiValidationError(
            "indirect-operand", f"{role} of a DMA cannot be an .indirect view; use vector_offset."
        )


def row_indices(view, role):
    """The indices of a gather or scatter: a (P, 1) tile, one index for each row."""
    if view.index.shape != (view.shape[0], 1):
        raise NkiValidationError(
            "dma-index-shape",
            f"the vector_offset of {role} has shape {list(view.index.shape)} for "
            f"{view.shape[0]} rows; it must be ({view.shape[0]}, 1).",
        )
    return read_raw(view.index, f"the vector_offset of {role}").astype("int64").reshape(-1)


def _check_modes(session, dst, src, priority, oob_mode, dge_mode, dynamic):
    rules.one_of(oob_mode, "oob_mode", tuple(oob_modes))
    rules.one_of(dge_mode, "dge_mode", tuple(dge_modes))
    if priority is not None:
        rules.from_generation(session, 4, "priority")
        if type(priority) is not int or not 0 <= priority <= 3:
            raise NkiValidationError("dma-priority", f"priority={priority!r}; allowed: 0 to 3.")
    if dge_mode is dge_modes.hwdge:
        rules.from_generation(session, 3, "dge_mode.hwdge")
        if dst.dtype != src.dtype:
            raise NkiValidationError(
                "dma-hwdge-dtype",
                f"dge_mode.hwdge moves bytes: dst is {dst.dtype} and src {src.dtype}; they must be "
                f"equal (use .view, or another dge_mode to convert).",
            )
    if not dynamic:
        if oob_mode is oob_modes.skip:
            raise NkiValidationError(
                "dma-oob", "oob_mode.skip is for indirect accesses; no operand is indirect."
            )
        return
    # nki-dge.rst: descriptors made on the host cannot follow run-time addresses (although a table
    # there allows any mode with scalar_offset), and only software DGE gathers and scatters.
    allowed = (dge_modes.unknown, dge_modes.swdge)
    if not (is_vector(dst) or is_vector(src)):
        allowed += (dge_modes.hwdge,)
    if dge_mode not in allowed:
        raise NkiValidationError(
            "dma-dge-dynamic",
            f"dge_mode={dge_mode} with a run-time address; allowed here: "
            f"{', '.join(str(mode) for mode in allowed)}.",
        )


def dma_transpose(session, dst, src, axes, priority, dge_mode, oob_mode, name):
    """dst = src with its dimensions permuted: (1,0), (2,1,0) or (3,1,2,0) by rank.

    With row indices, ``src[rows]`` is transposed, where rows are the indices column by column.
    """
    dynamic = type(dst) is not NkiTensor or type(src) is not NkiTensor
    if dynamic:
        require_operand(dst, "dst")
        require_operand(src, "src")
    rules.sbuf_only(dst, "dst", "dma_transpose")
    if src.buffer is MemoryRegion.psum:
        raise NkiValidationError("dma-psum", "src is in PSUM, which DMA cannot reach.")
    permutation = PERMUTATIONS.get(len(src.shape))
    if permutation is None or not (axes is None or _same_axes(axes, permutation)):
        raise NkiValidationError(
            "dma-transpose-axes",
            f"axes={axes!r} for src of rank {len(src.shape)}; allowed: (1, 0), (2, 1, 0) and "
            f"(3, 1, 2, 0) for ranks 2, 3 and 4.",
        )
    shape = tuple(src.shape[axis] for axis in permutation)
    if dst.shape != shape:
        raise NkiValidationError(
            "dma-transpose-shape",
            f"dst is {list(dst.shape)}; transposing src {list(src.shape)} gives {list(shape)}, "
            f"rank included.",
        )
    if dst.dtype != src.dtype:
        raise NkiValidationError(
            "same-dtype", f"src is {src.dtype} and dst {dst.dtype}; they must be equal."
        )
    # Trainium2 architecture guide, "DMA Transpose": 2-byte and 4-byte types.
    if src.info.nbytes not in (2, 4):
        raise NkiValidationError(
            "dma-transpose-dtype",
            f"src is {src.dtype}; DMA transposes dtypes of 2 or 4 bytes.",
        )
    gathers = is_vector(src)
    allowed = (dge_modes.unknown, dge_modes.swdge if gathers else dge_modes.hwdge)
    rules.one_of(dge_mode, "dge_mode", tuple(dge_modes))
    if dge_mode not in allowed:
        raise NkiValidationError(
            "dma-transpose-dge",
            f"dge_mode={dge_mode}; {'an indirect' if gathers else 'a direct'} transpose takes "
            f"{allowed[0]} or {allowed[1]}.",
        )
    _check_modes(session, dst, src, priority, oob_mode, dge_mode, dynamic)
    if dge_mode is dge_modes.hwdge:
        _check_hardware_transpose(src)
    skip = oob_mode is oob_modes.skip
    if skip and type(src) is NkiTensor:
        raise NkiValidationError("dma-oob", "oob_mode.skip needs a src with a run-time address.")
    original = dst, src
    if type(dst) is DynamicView:
        dst = static_view(session, dst, "dst")
    if gathers:
        _check_gather_transpose(session, src)
        _gather_transpose(dst, src, permutation, skip)
    else:
        if type(src) is DynamicView:
            src = static_view(session, src, "src", skip)
        if src is not None:
            write_raw(dst, read_raw(src, "src").transpose(permutation))
    return session.finish("dma_transpose", "dma", original[:1], original[1:], name)


def _gather_transpose(dst, src, permutation, skip):
    """dst = src[rows] transposed; the rows that are skipped leave their part of dst untouched."""
    indices = read_raw(src.index, "the vector_offset of src").astype("int64")
    rows = Rows(src, "src", indices.T.reshape(-1)[: src.shape[0]], skip)
    write_rows(dst, rows.read(), rows.kept, permutation)


def _same_axes(axes, permutation):
    return (
        isinstance(axes, (tuple, list))
        and all(map(is_integer, axes))
        and tuple(axes) == permutation
    )


def _check_hardware_transpose(src):
    """Stub, dma_transpose: restrictions of the Hardware DGE."""
    first, last = src.shape[0], src.shape[-1]
    if len(src.shape) == 2:
        rows_fit = first == 16
    else:
        rows_fit = first in (1, 2, 4, 8, 16) and first * src.shape[-2] % 16 == 0
    if not rows_fit or last > 128 or src.info.nbytes != 2:
        raise NkiValidationError(
            "dma-transpose-hwdge",
            f"src {src.dtype}{list(src.shape)} with dge_mode.hwdge; it needs a 2-byte dtype, a "
            f"last dimension of at most 128, and shape[0] == 16 (rank 2) or shape[0] in "
            f"1, 2, 4, 8, 16 with shape[0] * shape[-2] a multiple of 16 (rank 3 and 4).",
        )


def _check_gather_transpose(session, src):
    """Stub, dma_transpose: "DMA Indirect Transpose Constraints"."""
    rules.from_generation(session, 3, "dma_transpose with vector_offset")
    shape, index = src.shape, src.index
    # That src is in HBM vector_offset requires, and dst has no more than 128 partitions.
    if src.info.nbytes != 2 or shape[0] % 16:
        raise NkiValidationError(
            "dma-transpose-indirect",
            f"src is {src.describe()}; an indirect transpose needs a 2-byte dtype and shape[0] a "
            f"multiple of 16.",
        )
    if len(shape) == 4 and shape[1] != 1 and shape[2] != 1:
        raise NkiValidationError(
            "dma-transpose-indirect",
            f"src has shape {list(shape)}; with rank 4 dimension 1 or 2 must have size 1.",
        )
    partitions, columns = index.shape
    legal = partitions in range(16, 129, 16) and (columns == 1 or partitions == 128)
    if index.dtype != "uint32" or not legal:
        raise NkiValidationError(
            "dma-transpose-index",
            f"vector_offset is {index.dtype}{list(index.shape)}; it must be uint32 with 16, 32, "
            f"... or 128 partitions, 128 if it has more than one column.",
        )
