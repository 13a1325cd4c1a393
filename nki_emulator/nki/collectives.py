"""`nki.collectives`: communication between devices, which the emulator does not have."""

from ..errors import NkiNotImplemented
from ..objects import NKIObject


class ReplicaGroup(NKIObject):
    """Ranks that take part in a collective operation."""

    def __init__(self, *ranks):
        raise NkiNotImplemented("nki.collectives", "The emulator runs one device.")


def all_reduce(srcs, dsts, replica_group, op, priority=None, name=None):
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.all_reduce")


def all_gather(srcs, dsts, replica_group, collective_dim, priority=None, name=None):
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.all_gather")


def all_gather_v(
    srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False, has_rdispls=False,
    priority=None, name=None,
):  # fmt: skip
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.all_gather_v")


def reduce_scatter(srcs, dsts, replica_group, collective_dim, op, priority=None, name=None):
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.reduce_scatter")


def all_to_all(srcs, dsts, replica_group, collective_dim, priority=None, name=None):
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.all_to_all")


def all_to_all_v(
    srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False, has_rdispls=False,
    priority=None, name=None,
):  # fmt: skip
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.all_to_all_v")


def collective_permute(srcs, dsts, source_target_pairs, priority=None, name=None):
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.collective_permute")


def collective_permute_implicit(
    srcs_by_channel, dsts_by_channel, replica_group, channel_ids=(0,), priority=None, name=None,
):  # fmt: skip
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.collective_permute_implicit")


def collective_permute_implicit_reduce(
    srcs0_by_channel, srcs1_by_channel, dsts_by_channel, replica_group, op, channel_ids=(0,),
    priority=None, name=None,
):  # fmt: skip
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.collective_permute_implicit_reduce")


def collective_permute_implicit_current_processing_rank_id(
    iteration_id, replica_group, channel_id=0, name=None,
):  # fmt: skip
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented(
        "nki.collectives.collective_permute_implicit_current_processing_rank_id"
    )


def rank_id(name=None):
    """Not implemented: the emulator runs one device."""
    raise NkiNotImplemented("nki.collectives.rank_id")
