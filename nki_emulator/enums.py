"""Enumerations of `nki.isa`, with the values of NKI 0.6."""

from enum import Enum

from .errors import NkiValidationError


class _Members(Enum):
    """An enum whose members have no order."""

    def _refuse(self, other):
        # nki-library compares nc_versions with >=; the language guide, "Classes and enums", leaves
        # enums no operator but == and !=.
        raise NkiValidationError(
            "enum-order",
            f"{self} is compared with {other!r}: members of an enum have no order, only == and != "
            f"are supported.",
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse


class engine(_Members):
    """Engines of a NeuronCore."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    dma = 4
    sync = 6
    unknown = 0


class reduce_cmd(_Members):
    """What an instruction does with the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(_Members):
    """Who generates DMA descriptors."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(_Members):
    """What an indirect access does with an index outside the tensor."""

    error = 0
    skip = 1


class matmul_perf_mode(_Members):
    """Performance modes of the tensor engine."""

    none = "none"
    double_row = "double_row"


class nc_version(_Members):
    """NeuronCore generations."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(_Members):
    """Engines that can carry a transfer between two cores."""

    dma = 1
    gpsimd_dma = 2
