"""Keywords from a dictionary."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, src, options):
    nisa.dma_copy(dst, src, **options)  # expect: E21-star
    # instead: nisa.dma_copy(dst, src, engine=options["engine"])
    return dst
