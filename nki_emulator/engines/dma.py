"""DMA: copies and transposes between HBM and SBUF, and within each. It cannot reach PSUM."""

from .. import rules
from ..access import read_float32, read_raw, write_float32, write_raw
from ..enums import dge_mode as dge_modes
from ..enums import engine as engines
from ..enums import oob_mode as oob_modes
from ..errors import NkiValidationError
from ..regions import MemoryRegion

PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma_copy(session, dst, src, priority, oob_mode, dge_mode, engine, name):
    """dst = src, element by element in row-major order; dtypes convert through float32."""
    for operand, role in ((dst, "dst"), (src, "src")):
        rules.tensor(operand, role)
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
    _check_modes(session, dst, src, priority, oob_mode, dge_mode)
    rules.one_of(engine, "engine", (engines.unknown, engines.sync, engines.scalar))
    if engine is not engines.unknown and dge_mode is not dge_modes.hwdge:
        raise NkiValidationError(
            "dma-engine", f"engine={engine} is for dge_mode.hwdge; found {dge_mode}."
        )
    if dst.info is src.info:
        write_raw(dst, read_raw(src, "src"))
    else:
        rules.not_packed(dst, "dst")
        rules.not_packed(src, "src")
        write_float32(dst, read_float32(src, "src"))
    return session.finish("dma_copy", "dma", (dst,), (src,), name)


def _check_modes(session, dst, src, priority, oob_mode, dge_mode):
    rules.one_of(oob_mode, "oob_mode", tuple(oob_modes))
    rules.one_of(dge_mode, "dge_mode", tuple(dge_modes))
    if priority is not None:
        rules.from_generation(session, 4, "priority")
        if priority not in (0, 1, 2, 3):
            raise NkiValidationError("dma-priority", f"priority={priority!r}; allowed: 0 to 3.")
    if dge_mode is dge_modes.hwdge:
        rules.from_generation(session, 3, "dge_mode.hwdge")
        if dst.dtype != src.dtype:
            raise NkiValidationError(
                "dma-hwdge-dtype",
                f"dge_mode.hwdge moves bytes: dst is {dst.dtype} and src {src.dtype}; they must be "
                f"equal (use .view, or another dge_mode to convert).",
            )
    if oob_mode is oob_modes.skip:
        raise NkiValidationError(
            "dma-oob", "oob_mode.skip is for indirect accesses; no operand is indirect."
        )


def dma_transpose(session, dst, src, axes, priority, dge_mode, oob_mode, name):
    """dst = src with its dimensions permuted: (1,0), (2,1,0) or (3,1,2,0) by rank."""
    rules.tensor(dst, "dst")
    rules.tensor(src, "src")
    rules.sbuf_only(dst, "dst", "dma_transpose")
    if src.buffer is MemoryRegion.psum:
        raise NkiValidationError("dma-psum", "src is in PSUM, which DMA cannot reach.")
    permutation = PERMUTATIONS.get(len(src.shape))
    if permutation is None or (axes is not None and tuple(axes) != permutation):
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
    if dge_mode not in (dge_modes.unknown, dge_modes.hwdge):
        raise NkiValidationError(
            "dma-transpose-dge", f"dge_mode={dge_mode}; a direct transpose takes unknown or hwdge."
        )
    _check_modes(session, dst, src, priority, oob_mode, dge_mode)
    if dge_mode is dge_modes.hwdge:
        _check_hardware_transpose(src)
    write_raw(dst, read_raw(src, "src").transpose(permutation))
    return session.finish("dma_transpose", "dma", (dst,), (src,), name)


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
