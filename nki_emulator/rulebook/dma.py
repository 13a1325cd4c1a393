"""Rules of DMA instructions."""

from .pages import DGE, ISA, MIGRATION, TRAINIUM2, Rule, own

_TRANSPOSE = f"{ISA}: dma_transpose"
_DIRECT = f"{_TRANSPOSE}, DMA Direct Transpose Constraints"
_INDIRECT = f"{_TRANSPOSE}, DMA Indirect Transpose Constraints"
_COMPUTE = f"{ISA}: dma_compute"

RULES = {
    "dma-dge-dynamic": Rule(
        "a run-time address goes with dge_mode unknown, swdge or, without row indices, hwdge",
        f"{DGE}: DGE Modes (the table there allows dge_mode.none for scalar_offset; the text "
        "excludes it)",
    ),
    "dma-duplicate-rows": Rule(
        "a scatter writes no row twice with different values",
        own("the order of the rows of a transfer is not documented"),
    ),
    "dma-engine": Rule(
        "engine is for dge_mode.hwdge, and engine.sync or engine.scalar",
        f"{ISA}: dma_copy (engine); {DGE}: hwdge",
    ),
    "dma-hwdge-dtype": Rule(
        "dge_mode.hwdge copies between equal dtypes",
        f"{MIGRATION}: nisa.dma_copy — dge_mode type matching",
    ),
    "dma-index-shape": Rule(
        "vector_offset of a copy is a (P, 1) tile, one index for each row",
        f"{ISA}: dma_copy, Indirect addressing",
    ),
    "dma-one-index": Rule(
        "row indices are on one side of a copy, and the other side is static",
        own(f"{ISA} (dma_copy) describes a gather or a scatter, with the other side static"),
    ),
    "dma-oob": Rule(
        "oob_mode.skip goes with a run-time address",
        f"{ISA}: dma_copy, dma_transpose (oob_mode); release-notes/components/nki.rst: 0.4.0 "
        "(dma_compute oob_mode)",
    ),
    "dma-priority": Rule(
        "priority is 0 to 3",
        f"{ISA}: dma_copy (priority)",
    ),
    "dma-psum": Rule(
        "DMA does not reach PSUM",
        f"{MIGRATION}: nisa.dma_copy — reading from PSUM; {ISA}: dma_copy, Memory types",
    ),
    "dma-size": Rule(
        "source and destination have the same number of elements",
        f"{ISA}: dma_copy, Tile size; {_COMPUTE}, Tile size",
    ),
    "dma-transpose-axes": Rule(
        "axes are (1, 0), (2, 1, 0) or (3, 1, 2, 0), by rank",
        _TRANSPOSE,
    ),
    "dma-transpose-dge": Rule(
        "a direct transpose takes dge_mode unknown or hwdge, an indirect one unknown or swdge",
        f"{_DIRECT}; {_INDIRECT}",
    ),
    "dma-transpose-dtype": Rule(
        "DMA transposes dtypes of 2 or 4 bytes",
        f"{TRAINIUM2}: DMA Transpose",
    ),
    "dma-transpose-hwdge": Rule(
        "with hwdge src has a 2-byte dtype, a last dimension up to 128 and a first one that fits",
        _DIRECT,
    ),
    "dma-transpose-index": Rule(
        "row indices of a transpose are uint32 on 16, 32, ... or 128 partitions, 128 if several "
        "columns",
        _INDIRECT,
    ),
    "dma-transpose-indirect": Rule(
        "a gathered src has a 2-byte dtype, a last dimension up to 128, a first one that is a "
        "multiple of 16, is in HBM, and with rank 4 has a size 1 inside",
        _INDIRECT,
    ),
    "dma-transpose-shape": Rule(
        "dst has exactly the transposed shape of src, rank included",
        f"{MIGRATION}: nisa.dma_transpose — dst shape and rank now enforced exactly",
    ),
    "dma-compute-address": Rule(
        "addresses of dma_compute are known when the kernel is built, or given by vector_offset",
        f"{_COMPUTE}, Memory types",
    ),
    "dma-compute-match": Rule(
        "with row indices: dst[rows] += tile with the same indices on dst and a source, or tile += "
        "src[rows] with the tile as dst and as a source",
        f"{_COMPUTE}, Read-Modify-Write with vector_offset",
    ),
    "dma-compute-rows": Rule(
        "with row indices there are two sources and unique_indices=True",
        f"{_COMPUTE}, Read-Modify-Write with vector_offset",
    ),
    "dma-compute-scales": Rule(
        "scales is None or 1.0 for each source",
        _COMPUTE,
    ),
    "dma-compute-sources": Rule(
        "there are 2 to 16 sources",
        f"{_COMPUTE}, Tile size (16); one source means two things in {ISA} and in {MIGRATION}: "
        "dst_rmw_op and unique_indices removed",
    ),
    "dma-compute-unique": Rule(
        "rows that are added to are different rows",
        f"{_COMPUTE}, Read-Modify-Write with vector_offset (unique_indices)",
    ),
}
