"""An LNC 2 launch: two programs on one shared HBM."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nki_emulator import NkiError, NkiValidationError, simulate


def halves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(axes=0)
    first = nl.program_id(axis=0) * rows
    tile = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[first : first + rows, :])
    nisa.dma_copy(dst=out[first : first + rows, :], src=tile)
    return out


def different_tensors(x):
    width = 4 + nl.program_id(axis=0)
    return nl.ndarray((8, width), dtype=x.dtype, buffer=nl.shared_hbm)


def test_each_program_writes_its_part():
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    kernel = nki.jit(halves)
    assert np.array_equal(nki.simulate(kernel[2])(x), x)
    assert np.array_equal(nki.simulate(kernel[1])(x), x)


def test_a_part_that_no_program_writes_is_an_error():
    def first_half_only(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((4, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[0:4, :])
        nisa.dma_copy(dst=out[0:4, :], src=tile)
        return out

    with pytest.raises(NkiError, match="return-unwritten"):
        simulate(nki.jit(first_half_only)[2])(np.zeros((8, 4), np.float32))


def test_programs_must_allocate_the_same_shared_tensors():
    with pytest.raises(NkiValidationError, match="shared-hbm"):
        simulate(nki.jit(different_tensors)[2])(np.zeros((8, 4), np.float32))
