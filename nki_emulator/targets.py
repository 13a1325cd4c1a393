"""What the emulator knows about each NeuronCore generation.

The generation is chosen with ``NEURON_PLATFORM_TARGET_OVERRIDE``, as in the official tools. When it
is unset the emulator takes ``trn2``: the official simulator would take the chip it finds, else
trn3, but the kernels of this project are written for Trn2 first, and Trn2 is the stricter of the
two (smaller SBUF, float32-only matmul results, fewer instructions), so what passes there is not
refused on Trn3.
"""

import os
from dataclasses import dataclass

from .errors import NkiValidationError

VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
# Set when dma_transpose is lowered to matmuls, which reserves the last PSUM bank on v3 and newer
# (nki.language.tile_size, psum_num_banks).
LOWERED_TRANSPOSES = "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"
DEFAULT = "trn2"
KIB = 1024


@dataclass(frozen=True)
class Target:
    """Sizes and limits of one NeuronCore generation. Sizes are bytes of one partition."""

    name: str
    generation: int
    sbuf_partition_bytes: int
    # NKI stub, nc_matmul "Tile size": 512 float32 of one PSUM bank, on v4 the whole PSUM.
    matmul_moving_free: int
    matmul_moving_free_bfloat16: int
    # NKI stub, nc_matmul: dst must be float32 on v2/v3; float32 or bfloat16 from v4.
    matmul_dst_dtypes: tuple
    # Stub, nc_matmul "Tiling mode": row tiles of 64 from v2, of 32 from v3.
    matmul_row_sizes: tuple
    # Stub, nc_matmul "Accumulation mode": undefined on v2/v3 onto what a non-matmul wrote.
    accumulates_on_any_write: bool

    partitions: int = 128  # Architecture guides: SBUF and PSUM have 128 partitions.
    psum_banks: int = 8  # Trn1/Inf2 architecture guide, "Near-memory accumulation in PSUM".
    psum_bank_bytes: int = 2 * KIB  # Same place: 512 float32 a bank.
    matmul_contraction: int = 128  # Same guide, "Tile Size": 128 rows of processing elements.
    matmul_stationary_free: int = 128  # Same guide: 128 columns of processing elements.
    matmul_moving_gemm: int = 512  # nl.tile_size.gemm_moving_fmax.
    bn_stats_free: int = 512  # Stub, bn_stats: nl.tile_size.bn_stats_fmax.
    vector_transpose: int = 32  # Stub, nc_transpose: [32, 32] on the Vector Engine.
    # The stub documents that these two exist and not their values. 4 bytes is the width of a PSUM
    # accumulator and of the widest element; the emulator allocates on this boundary.
    psum_align: int = 4
    sbuf_align: int = 4

    @property
    def psum_partition_bytes(self):
        """PSUM bytes of one partition."""
        return self.psum_banks * self.psum_bank_bytes


# SBUF per partition: Trn1/Inf2 guide 192 KiB; Trn2 guide 28 MiB / 128; Trn3 guide 32 MiB / 128.
GEN2 = Target("trn1", 2, 192 * KIB, 512, 512, ("float32",), (64, 128), False)
GEN3 = Target("trn2", 3, 224 * KIB, 512, 512, ("float32",), (32, 64, 128), False)
GEN4 = Target("trn3", 4, 256 * KIB, 4096, 8192, ("float32", "bfloat16"), (32, 64, 128), True)

BY_NAME = {
    "trn1": GEN2, "inf2": GEN2, "gen2": GEN2,
    "trn2": GEN3, "gen3": GEN3,
    "trn3": GEN4, "gen4": GEN4,
}  # fmt: skip


def usable_psum_banks(target):
    """PSUM banks that a kernel may allocate: all, or one fewer with lowered DMA transposes."""
    lowered = os.environ.get(LOWERED_TRANSPOSES, "") in ("1", "true")
    return target.psum_banks - (lowered and target.generation >= 3)


def selected_target():
    """The target named by ``NEURON_PLATFORM_TARGET_OVERRIDE``, or trn2 when it is unset."""
    name = os.environ.get(VARIABLE) or DEFAULT
    target = BY_NAME.get(name)
    if target is None:
        raise NkiValidationError(
            "target",
            f"{VARIABLE}={name!r} is not a known target; allowed: {', '.join(BY_NAME)}.",
        )
    return target
