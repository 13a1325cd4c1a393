"""What happens to a block, and a host function."""

import os

import nki.isa as nisa
import nki.language as nl

FACTOR = 0.5


def scale(tile, factor):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)


def from_environment():
    return {int(key): value for key, value in os.environ.items() if key is not None}
