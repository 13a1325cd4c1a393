"""MX scales in uint8."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, src):
    scale = nl.ndarray((128, 128), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.quantize_mx(dst=dst, src=src, dst_scale=scale)  # expect: W07-scale-dtype
    # instead: nisa.quantize_mx(dst=dst, src=src, dst_scale=scale.view(nl.float8_e8m0fnu))
    return dst
