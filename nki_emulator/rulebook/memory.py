"""Rules of SBUF, PSUM and HBM: capacity, addresses, what was written, two cores."""

from .pages import (
    EACH,
    ISA,
    LANGUAGE,
    LNC,
    MIGRATION,
    RELEASES,
    SIMULATOR,
    TILE_SIZE,
    TRAINIUM1,
    TRAINIUM2,
    TRAINIUM3,
    Rule,
    own,
)  # fmt: skip

RULES = {
    "address": Rule(
        "address is (partition, byte) of a place in SBUF or PSUM",
        f"{LANGUAGE}: ndarray; {MIGRATION}: Improved allocation API",
    ),
    "address-alignment": Rule(
        "an address is a multiple of tile_size.sbuf_min_align or psum_min_align",
        f"{TILE_SIZE}: sbuf_min_align, psum_min_align",
    ),
    "address-overlap": Rule(
        "a tile is not read after a tile with an overlapping address was written",
        f"{SIMULATOR}: Memory Model (conflicts fail or give wrong results on hardware)",
    ),
    "hbm-race": Rule(
        "two cores access the same bytes of HBM, one of them to write, only with a core_barrier "
        "on them in between",
        f"{ISA}: core_barrier",
    ),
    "psum-accumulate-ambiguous": Rule(
        "accumulate=None is not used on PSUM that another engine set to other values than zero",
        own(
            f"{ISA} (nc_matmul) says both that the first write overwrites and that any earlier "
            "write counts"
        ),
    ),
    "psum-accumulate-on-other": Rule(
        "a matmul does not accumulate on what another engine wrote (before NeuronCore-v4)",
        f"{ISA}: nc_matmul, Accumulation mode (note)",
    ),
    "psum-accumulate-unwritten": Rule(
        "accumulate=True needs a PSUM location that a matmul has started",
        f"{ISA}: nc_matmul, Accumulation mode",
    ),
    "psum-address": Rule(
        "an address in PSUM is the start of a bank",
        f"{MIGRATION}: Improved allocation API",
    ),
    "psum-bank": Rule(
        "a PSUM tile fits in one bank of 2 KiB a partition (before NeuronCore-v4)",
        f"{TRAINIUM1}: Near-memory accumulation in PSUM",
    ),
    "psum-full": Rule(
        "the live tiles fit into the 16 KiB of a PSUM partition",
        f"{TRAINIUM1}: NeuronCore-v2 Compute Engines; {TILE_SIZE}: psum_num_banks",
    ),
    "psum-view-dtype": Rule(
        "a matmul accumulates on elements of its own dst dtype's size",
        own("the sum of two dtypes in one place is nowhere defined"),
    ),
    "sbuf-full": Rule(
        "the live tiles fit into an SBUF partition: 192 KiB (gen2), 224 KiB (gen3), 256 KiB (gen4)",
        f"{TRAINIUM1}, {TRAINIUM2}, {TRAINIUM3}: Compute Engines; {TILE_SIZE}: sbuf_fmax_bytes",
    ),
    "shared-hbm": Rule(
        "both programs allocate the same tensors in shared HBM, in the same order",
        f"{LNC}: Final Notes (the program on each core is the same)",
    ),
    "uninitialized-read": Rule(
        "an element is written before it is read",
        f"{LANGUAGE}: ndarray; {SIMULATOR}: Uninitialized Memory Detection",
    ),
    # Two cores.
    "barrier-cores": Rule(
        "cores of core_barrier is (0, 1)",
        f"{ISA}: core_barrier",
    ),
    "barrier-data": Rule(
        "data of core_barrier is in shared HBM",
        f"{ISA}: core_barrier",
    ),
    "barrier-pair": Rule(
        "both cores wait on the same data in core_barrier",
        f"{ISA}: core_barrier",
    ),
    "lnc-deadlock": Rule(
        "both cores call core_barrier and sendrecv equally often, in the same order",
        f"{LNC}: Final Notes; {RELEASES}: 0.3.0, Known Issues (LNC2)",
    ),
    "lnc2-only": Rule(
        "core_barrier and sendrecv run in a launch on two cores",
        f"{ISA}: core_barrier, sendrecv",
    ),
    "sendrecv-overlap": Rule(
        "src and dst of sendrecv share no elements",
        own("sending and receiving happen at the same time, in no order"),
    ),
    "sendrecv-pair": Rule(
        "both cores exchange tiles of one shape and dtype, with one pipe_id and dma_engine",
        f"{ISA}: sendrecv",
    ),
    "sendrecv-pipe": Rule(
        "pipe_id is an integer that is not negative",
        own("the stub calls it an identifier and shows 0"),
    ),
    "sendrecv-rank": Rule(
        "send_to_rank and recv_from_rank are the other core",
        f"{ISA}: sendrecv (ranks 0 and 1); {EACH} shows an exchange, never a core with itself",
    ),
    "sendrecv-shape": Rule(
        "src and dst of sendrecv have one shape",
        f"{ISA}: sendrecv, Constraints",
    ),
    "sendrecv-size": Rule(
        "gpsimd_dma moves at most 1024, 512 or 256 bytes a partition of 4-, 2- or 1-byte types",
        f"{ISA}: sendrecv",
    ),
}
