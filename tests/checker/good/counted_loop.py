"""A loop on the device with a bound from memory and a dynamic offset."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copy_rows(data, count):
    out = nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.shared_hbm)
    limit = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=limit, src=count)
    upper = nisa.register_alloc()
    nisa.register_load(upper, limit)
    row = nl.ndarray((1, 512), dtype=data.dtype, buffer=nl.sbuf)

    def body(i):
        with nl.no_reorder():
            nisa.dma_copy(
                dst=row, src=data.ap([[512, 1], [1, 512]], scalar_offset=i, indirect_dim=0)
            )
            nisa.dma_copy(
                dst=out.ap([[512, 1], [1, 512]], scalar_offset=i, indirect_dim=0), src=row
            )

    nl.fori_loop(0, upper, body, step=2)
    return out
