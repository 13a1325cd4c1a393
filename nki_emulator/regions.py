"""Where a tensor lives: the memory regions of a NeuronCore."""

from enum import Enum


class MemoryRegion(Enum):
    """SBUF and PSUM on the chip; HBM private to one program or shared by all of a launch."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"


def is_hbm(buffer):
    """Whether ``buffer`` is HBM, private or shared."""
    return buffer is MemoryRegion.private_hbm or buffer is MemoryRegion.shared_hbm


def is_on_chip(buffer):
    """Whether ``buffer`` is SBUF or PSUM."""
    return buffer is MemoryRegion.sbuf or buffer is MemoryRegion.psum


def is_psum(buffer):
    """Whether ``buffer`` is PSUM."""
    return buffer is MemoryRegion.psum


def is_sbuf(buffer):
    """Whether ``buffer`` is SBUF."""
    return buffer is MemoryRegion.sbuf
