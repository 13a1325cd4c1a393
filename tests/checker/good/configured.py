"""Configuration objects: dataclasses, an Enum, methods, a static method, a callable object."""

import math
from dataclasses import dataclass
from enum import Enum

import nki
import nki.isa as nisa
import nki.language as nl
from nki.language import NKIObject


class Mode(Enum):
    ADD = 1
    SCALE = 2


@dataclass(frozen=True)
class Tiling(NKIObject):
    rows: int
    width: int = 512
    offset = None

    def __post_init__(self):
        assert 0 < self.rows <= 128, f"rows {self.rows}"

    def tiles(self, size):
        return math.ceil(size / self.rows)

    @staticmethod
    def full(width):
        return Tiling(128, width)

    def describe(self):
        # Host only: no kernel names this method.
        return ", ".join(f"{name}={value}" for name, value in vars(self).items())


class Step(nl.NKIObject):
    def __init__(self, mode, value):
        self.mode = mode
        self.value = value

    def __call__(self, dst, src):
        operation = nl.add if self.mode == Mode.ADD else nl.multiply
        nisa.tensor_scalar(dst=dst, data=src, op0=operation, operand0=self.value)


DEFAULT = Step(Mode.SCALE, 0.5)


@nki.jit
def kernel(x, mode: Mode, tiling: Tiling = None):
    chosen = Tiling.full(x.shape[1]) if tiling == None else tiling
    step = Step(mode, 1.5) if mode != Mode.SCALE else DEFAULT
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for index in range(chosen.tiles(x.shape[0])):
        first = index * chosen.rows
        last = min(first + chosen.rows, x.shape[0])
        tile = nl.ndarray((last - first, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first:last, :])
        step(tile, tile)
        nisa.dma_copy(dst=out[first:last, :], src=tile)
    return out
