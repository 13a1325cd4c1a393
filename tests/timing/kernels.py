"""Small kernels whose modelled times are compared with each other."""

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np

import nki_emulator

ROWS = 128


def profile(kernel, *arguments):
    """The profile of a plain or jitted kernel function."""
    return nki_emulator.profile(kernel)(*arguments)


def zeros(*shape, dtype=ml_dtypes.bfloat16):
    return np.zeros(shape, dtype)


def load(source):
    """An HBM view in a new SBUF tile (inside a kernel)."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def copy_through(x, width):
    """x [128, N] to a new tensor, ``width`` columns at a time."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[1], width):
        part = nl.ds(start, width)
        nisa.dma_copy(dst=out[:, part], src=load(x[:, part]))
    return out


def work(x, repeats):
    """``repeats`` dependent vector instructions on one tile."""
    tile = load(x)
    for _ in range(repeats):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.5)
    return save(tile)


def save(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def products(x, groups, slots):
    """``groups`` groups of four matmuls, evacuated to SBUF, over ``slots`` PSUM tiles."""
    tile = load(x)
    results = []
    psum = []
    for _ in range(slots):
        psum.append(nl.ndarray((ROWS, 512), dtype=nl.float32, buffer=nl.psum))
    for group in range(groups):
        target = psum[group % slots]
        for step in range(4):
            nisa.nc_matmul(dst=target, stationary=tile[:, 0:ROWS], moving=tile, accumulate=step > 0)
        result = nl.ndarray((ROWS, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=target)
        results.append(result)
    return save(results[-1])


def chain(x, length, dependent):
    """``length`` pairs of a ScalarE and a VectorE instruction; each pair on its own tile, or all of
    them on one."""
    tile = load(x)
    for _ in range(length):
        target = tile
        if not dependent:
            target = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.activation(dst=target, op=nl.square, data=tile)
        nisa.tensor_scalar(dst=target, data=target, op0=nl.add, operand0=1.0)
    return save(target)
