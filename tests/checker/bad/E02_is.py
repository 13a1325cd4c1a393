"""`is not None`, in a helper that the kernel reaches."""

import nki
import nki.isa as nisa
import nki.language as nl


def load(x, bias):
    tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    if bias is not None:  # expect: E02-is
    # instead: if bias != None:
        nisa.dma_copy(dst=tile, src=bias)
    return tile


@nki.jit
def kernel(x, bias):
    tile = load(x, bias)
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
