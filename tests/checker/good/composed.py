"""Functions that are passed, stored, returned and chosen by name; closures."""

import nki
import nki.isa as nisa
import nki.language as nl


def double(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=2.0)


def negate(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=-1.0)


TABLE = {"double": double, "negate": negate}


def choose(name):
    if name == "relu":

        def rectify(dst, src):
            nisa.activation(dst=dst, op=nl.relu, data=src)

        return rectify
    return TABLE[name]


def adder(value):
    def apply(dst, src):
        nisa.tensor_scalar(dst=dst, data=src, op0=nl.add, operand0=value)

    return apply


def each_tile(x, out, steps):
    for row in range(x.shape[0] // 128):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row * 128 : (row + 1) * 128, :])
        for step in steps:
            step(dst=tile, src=tile)
        nisa.dma_copy(dst=out[row * 128 : (row + 1) * 128, :], src=tile)


@nki.jit
def kernel(x, names, offset):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    steps = [adder(offset)]
    for name in names:
        steps.append(choose(name))
    each_tile(x, out, steps)
    return out
