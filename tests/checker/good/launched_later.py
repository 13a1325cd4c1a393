"""The decorator applied where the kernel is launched; the target is a plain function."""

import nki
import nki.isa as nisa
import nki.language as nl


def scale_kernel(x, factor):
    tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    scale_tile(tile, factor)
    nisa.dma_copy(dst=x, src=tile)
    return x


def scale_tile(tile, factor):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)


def launch(x, cores):
    kernel = nki.jit(scale_kernel)
    return kernel[cores](x, 2.0)
