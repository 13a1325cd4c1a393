"""`nl.tile_size`: limits of the selected target."""

from ...errors import warn
from ...objects import NKIObject
from ...session import active_session
from ...targets import selected_target, usable_psum_banks


def _target():
    session = active_session()
    return session.target if session is not None else selected_target()


class _TileSize(NKIObject):
    """Tile size limits of the target that is selected when they are read."""

    __slots__ = ()

    @property
    def pmax(self):
        """Partitions of a tile, at most."""
        return _target().partitions

    @property
    def psum_bank_fmax(self):
        """Free size of a PSUM bank in float32 elements."""
        return _target().psum_bank_bytes // 4

    @property
    def psum_fmax(self):
        """Deprecated name of psum_bank_fmax."""
        warn("deprecated", "tile_size.psum_fmax: use psum_bank_fmax.", DeprecationWarning)
        return self.psum_bank_fmax

    @property
    def psum_bank_fmax_bytes(self):
        """Bytes of a PSUM bank in one partition."""
        return _target().psum_bank_bytes

    @property
    def psum_num_banks(self):
        """PSUM banks of a partition; one fewer when DMA transposes are lowered to matmuls."""
        return usable_psum_banks(_target())

    @property
    def gemm_stationary_fmax(self):
        """Free size of a stationary operand, at most."""
        return _target().matmul_stationary_free

    @property
    def gemm_moving_fmax(self):
        """Free size of a moving operand, at most (nc_matmul allows more on gen4)."""
        return _target().matmul_moving_gemm

    @property
    def bn_stats_fmax(self):
        """Free size of a bn_stats operand, at most."""
        return _target().bn_stats_free

    @property
    def psum_min_align(self):
        """Alignment of an address in PSUM, bytes."""
        return _target().psum_align

    @property
    def sbuf_min_align(self):
        """Alignment of an address in SBUF, bytes."""
        return _target().sbuf_align

    @property
    def sbuf_size_bytes(self):
        """Bytes of SBUF, all partitions together."""
        return self.sbuf_fmax_bytes * self.pmax

    @property
    def sbuf_fmax(self):
        """Free size of an SBUF partition in float32 elements."""
        return self.sbuf_fmax_bytes // 4

    @property
    def sbuf_fmax_bytes(self):
        """Bytes of an SBUF partition."""
        return _target().sbuf_partition_bytes

    @property
    def total_available_sbuf_size(self):
        """Deprecated name of sbuf_fmax_bytes."""
        warn(
            "deprecated", "tile_size.total_available_sbuf_size: use sbuf_fmax_bytes.",
            DeprecationWarning,
        )  # fmt: skip
        return self.sbuf_fmax_bytes


tile_size = _TileSize()
