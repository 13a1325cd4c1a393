"""The convenience functions of nki.language, with a star import and a NumPy constant."""

import nki
import numpy as np
from nki.language import *  # noqa: F403
from nki.language import shared_constant, shared_hbm


@nki.jit
def norm(x, weight):
    tile = load(x)  # noqa: F405
    squares = mean(square(tile), axis=1, keepdims=True)  # noqa: F405
    inverse = rsqrt(add(squares, 1e-6))  # noqa: F405
    scaled = multiply(tile, broadcast_to(inverse, tile.shape))  # noqa: F405
    weighted = multiply(scaled, load(weight.broadcast(0, 128)))  # noqa: F405
    mixed = matmul(weighted, load(shared_constant(np.eye(128))), transpose_x=True)  # noqa: F405
    out = ndarray(x.shape, dtype=x.dtype, buffer=shared_hbm)  # noqa: F405
    store(out, copy(mixed))  # noqa: F405
    device_print("out", mixed)  # noqa: F405
    return out
