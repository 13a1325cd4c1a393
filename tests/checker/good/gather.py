"""Gather by indices in memory, selects by a tile, views of several kinds."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def gather(table, indices):
    rows, width = 64, 512
    out = nl.ndarray((rows, 2, width // 2), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    index = nl.ndarray((rows, 1), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.dma_copy(dst=index, src=indices.expand_dim(1))
    found = nl.ndarray((rows, width), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(
        dst=found,
        src=table.ap([[width, rows], [1, width]], vector_offset=index, indirect_dim=0),
        oob_mode=nisa.oob_mode.skip,
    )
    pairs = found.reshape((rows, 2, width // 2))
    even = found[:, ::2]
    nisa.tensor_copy(dst=even, src=found[:, 1::2], engine=nisa.engine.vector)
    bits = found.view(nl.uint16)
    nisa.tensor_scalar(dst=bits, data=bits, op0=nl.bitwise_and, operand0=0x7FFF)
    nisa.dma_copy(dst=out, src=pairs, dge_mode=nisa.dge_mode.none)
    nisa.dma_copy(dst=out[0, 0], src=found[nl.ds(5, 1), 0:256])
    return out
