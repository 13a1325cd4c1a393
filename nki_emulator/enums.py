"""Enumerations of `nki.isa`, with the values of NKI 0.6."""

from enum import Enum


class engine(Enum):
    """Engines of a NeuronCore."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    dma = 4
    sync = 6
    unknown = 0


class reduce_cmd(Enum):
    """What an instruction does with the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who generates DMA descriptors."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What an indirect access does with an index outside the tensor."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """Performance modes of the tensor engine."""

    none = "none"
    double_row = "double_row"


class nc_version(Enum):
    """NeuronCore generations."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(Enum):
    """Engines that can carry a transfer between two cores."""

    dma = 1
    gpsimd_dma = 2
