"""A member of dge_mode where an engine is wanted."""

import nki
from nki.isa import dge_mode, dma_copy


@nki.jit
def kernel(dst, src):
    dma_copy(dst, src, engine=dge_mode.hwdge)  # expect: E04-wrong-enum
    # instead: dma_copy(dst, src, dge_mode=dge_mode.hwdge)
    return dst
