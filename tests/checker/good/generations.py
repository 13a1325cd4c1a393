"""Branches on the generation, MX instructions, optional tensors and string options."""

import math

import nki
import nki.isa as nisa
import nki.language as nl

FLOATS = ("bfloat16", "float16")


def quantized(tile, width):
    packed = nl.ndarray((128, width // 4), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    scale = nl.ndarray((128, width // 4), dtype=nl.float8_e8m0fnu, buffer=nl.sbuf)
    nisa.memset(dst=packed, value=0)
    nisa.quantize_mx(dst=packed, src=tile, dst_scale=scale)
    return packed, scale


def convert(tile, bias, options):
    if bias == None and "bias" not in options:
        return tile
    shifted = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.activation(dst=shifted, op=nl.copy, data=tile, bias=bias, scale=1 / math.sqrt(2))
    return shifted


@nki.jit
def kernel(x, bias=None, mode="fast"):
    options = {"mode": mode, "shape": x.shape}
    options["count"] = options.setdefault("rows", 128)
    for key in options.keys():
        print(key, options[key])
    version = nisa.get_nc_version()
    assert mode in ("fast", "exact") and str(x.dtype) in FLOATS
    engine = nisa.engine.vector if version == nisa.nc_version.gen2 else nisa.engine.scalar
    tile = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    tile = convert(tile, bias, options)
    if version == nisa.nc_version.gen4 and mode == "fast":
        packed, scale = quantized(tile, 512)
        psum = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(psum, packed, packed, scale, scale)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    copied = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(dst=copied, src=tile, engine=engine)
    nisa.dma_copy(dst=out, src=copied)
    return out
