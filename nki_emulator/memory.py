"""SBUF and PSUM as finite memories: who owns which bytes of a partition.

Addresses are bytes within a partition. A tile occupies the same bytes in every partition it spans.
Tiles that the emulator places start on partition 0 and keep their bytes on all partitions to
themselves: the compiler may pack small tiles tighter, so the emulator is on the safe side. Tiles
are placed first fit. A tile's bytes are free again when the last view of it dies, which Python's
reference counting makes immediate.

A kernel may give an address itself, ``address=(partition, byte)``. (The migration guide, "Improved
allocation API", calls the second number an element offset in one sentence and computes it in bytes
in its examples, as the kernel library does; the emulator takes bytes.) Such a tile goes exactly
there: tiles that the emulator had placed move out of its way, as the compiler would never have put
them there, and another tile with an address of its own may share the bytes, see `overlaps.py`.
"""

import bisect
import weakref

from .errors import NkiCapacityError, NkiValidationError
from .overlaps import connect
from .report import TileUse


class _Region:
    """Bytes of some partitions that a live tile owns."""

    __slots__ = ("start", "end", "first_partition", "last_partition", "storage", "number")

    def __init__(self, start, end, first_partition, last_partition, storage, number):
        """``storage`` is a weak reference, whose callback gives the bytes back."""
        self.start = start
        self.end = end
        self.first_partition = first_partition
        self.last_partition = last_partition
        self.storage = storage
        self.number = number

    def overlaps(self, other):
        return (
            self.start < other.end
            and other.start < self.end
            and self.first_partition < other.last_partition
            and other.first_partition < self.last_partition
        )


def _tile_use(region):
    storage = region.storage()
    return TileUse(
        storage.name, storage.info.name, storage.shape, region.end - region.start,
        region.first_partition, region.start, storage.site,
    )  # fmt: skip


class Memory:
    """First-fit allocator over the bytes of a partition of SBUF.

    ``name`` is used in messages, ``capacity`` and ``alignment`` are bytes of a partition, ``used``
    the bytes in use on the fullest partition and ``peak`` the largest number that ever were. A
    memory that is ``watched`` keeps the tiles of that moment in ``at_peak``.
    """

    def __init__(self, name, capacity, alignment, partitions):
        self.name = name
        self.capacity = capacity
        self.alignment = alignment
        self.partitions = partitions
        self.live = {}
        self.used = 0
        self.peak = 0
        self.watched = False  # whether at_peak is kept
        self.at_peak = ()
        self._gaps = [(0, capacity)]
        self._irregular = False  # an explicit address was used: gaps are then found anew
        self._count = 0

    def place(self, storage, nbytes, address=None):
        """Give ``storage`` its bytes (``nbytes`` of a partition) and note it as live."""
        if address is None:
            partition, start = 0, self._first_fit(storage, nbytes)
        else:
            partition, start = self._checked_address(storage, nbytes, address)
        self._count += 1
        number = self._count
        reference = weakref.ref(storage, lambda _: self._release(number))
        region = _Region(
            start, start + nbytes, partition, partition + storage.shape[0], reference, number
        )
        storage.partition = partition
        storage.address = start
        if address is None:
            self.live[number] = region
            self.used += nbytes
        else:
            storage.explicit = self._irregular = True
            self._claim(region, storage)
        if self.used > self.peak:
            self.peak = self.used
            if self.watched:
                self.at_peak = [_tile_use(region) for region in self.live.values()]

    def _claim(self, region, storage):
        """Put a tile at the kernel's own address, whatever is there."""
        in_the_way = []
        for other in list(self.live.values()):
            owner = other.storage()
            if owner is None or not region.overlaps(other):
                continue
            if owner.explicit:
                connect(owner, storage)
            else:
                in_the_way.append((other, owner))
                del self.live[other.number]
        self.live[region.number] = region
        self._rebuild_gaps()
        for other, owner in sorted(in_the_way, key=lambda pair: pair[0].start - pair[0].end):
            size = other.end - other.start
            other.start = owner.address = self._first_fit(owner, size)
            other.end = other.start + size
            self.live[other.number] = other
        self.used = self._most_used()

    def _most_used(self):
        """Bytes in use on the partition with most of them; bytes that tiles share count once."""
        most = 0
        for partition in {region.first_partition for region in self.live.values()}:
            used = cursor = 0
            for region in sorted(self.live.values(), key=lambda region: region.start):
                if region.first_partition <= partition < region.last_partition:
                    used += max(0, region.end - max(region.start, cursor))
                    cursor = max(cursor, region.end)
            most = max(most, used)
        return most

    def table(self):
        """The live tiles, largest first, one line each."""
        regions = sorted(self.live.values(), key=lambda region: region.start - region.end)
        lines = []
        for region in regions:
            storage = region.storage()
            what = storage.describe() if storage is not None else "(being freed)"
            lines.append(f"    {region.end - region.start:>7} bytes at {region.start:>6}: {what}")
        return "\n".join(lines)

    def _first_fit(self, storage, nbytes):
        size = self._rounded(nbytes)
        for index, (start, end) in enumerate(self._gaps):
            place = self._fit(start, end, size)
            if place is not None:
                self._cut(index, place, place + size)
                return place
        raise NkiCapacityError(
            f"{self.name.lower()}-full",
            f"{self.name} has no room for {storage.describe()}: it needs {nbytes} bytes of a "
            f"partition, {self.used} of {self.capacity} are in use and the largest gap is "
            f"{max((end - start for start, end in self._gaps), default=0)}. Live tiles, largest "
            f"first:\n{self.table()}",
        )

    def _fit(self, start, end, size):
        """Where a tile of ``size`` bytes goes in the gap [start, end), or None."""
        return start if end - start >= size else None

    def _rounded(self, nbytes):
        return -(-nbytes // self.alignment) * self.alignment

    def _cut(self, index, start, end):
        low, high = self._gaps[index]
        self._gaps[index : index + 1] = [
            gap for gap in ((low, start), (end, high)) if gap[0] < gap[1]
        ]

    def _checked_address(self, storage, nbytes, address):
        try:
            partition, start = (int(number) for number in address)
        except (TypeError, ValueError):
            raise NkiValidationError(
                "address",
                f"address={address!r}; expected (partition, byte within the partition).",
            ) from None
        if partition < 0 or partition + storage.shape[0] > self.partitions:
            raise NkiValidationError(
                "address",
                f"address={address!r}: partitions {partition}.."
                f"{partition + storage.shape[0] - 1} are not within 0..{self.partitions - 1}.",
            )
        if start < 0 or start + nbytes > self.capacity:
            raise NkiCapacityError(
                f"{self.name.lower()}-full",
                f"address={address!r}: bytes {start}..{start + nbytes - 1} are not within the "
                f"{self.capacity} bytes of a {self.name} partition.",
            )
        if start % self.alignment:
            raise NkiValidationError(
                "address-alignment",
                f"address={address!r}: byte {start} is not a multiple of {self.alignment}.",
            )
        return partition, start

    def _release(self, number):
        region = self.live.pop(number)
        if self._irregular:
            self._rebuild_gaps()
            self.used = self._most_used()
            return
        self.used -= region.end - region.start
        start, end = region.start, region.start + self._rounded(region.end - region.start)
        gaps = self._gaps
        index = bisect.bisect_left(gaps, (start, end))
        if index < len(gaps) and gaps[index][0] == end:
            end = gaps.pop(index)[1]
        if index and gaps[index - 1][1] == start:
            index -= 1
            start = gaps.pop(index)[0]
        gaps.insert(index, (start, end))

    def _rebuild_gaps(self):
        """Gaps between the live regions, after an explicit address made them irregular."""
        gaps, cursor = [], 0
        for region in sorted(self.live.values(), key=lambda region: region.start):
            if region.start > cursor:
                gaps.append((cursor, region.start))
            cursor = max(cursor, region.start + self._rounded(region.end - region.start))
        if cursor < self.capacity:
            gaps.append((cursor, self.capacity))
        self._gaps = gaps


class PsumMemory(Memory):
    """PSUM: a tile lies within one bank; several small tiles may share a bank.

    With ``several_banks`` (gen4, where a matmul may write the whole PSUM) a larger tile takes whole
    consecutive banks.
    """

    def __init__(self, capacity, bank, alignment, partitions, several_banks):
        super().__init__("PSUM", capacity, alignment, partitions)
        self.bank = bank
        self.several_banks = several_banks

    def place(self, storage, nbytes, address=None):
        if nbytes > self.bank and not self.several_banks:
            raise NkiCapacityError(
                "psum-bank",
                f"{storage.describe()} needs {nbytes} bytes of a partition; a PSUM tile must fit "
                f"in one bank of {self.bank} bytes.",
            )
        super().place(storage, nbytes, address)

    def _fit(self, start, end, size):
        if size > self.bank:
            start = -(-start // self.bank) * self.bank
        elif start // self.bank != (start + size - 1) // self.bank:
            start = (start // self.bank + 1) * self.bank
        return start if end - start >= size else None

    def _checked_address(self, storage, nbytes, address):
        partition, start = super()._checked_address(storage, nbytes, address)
        # Migration guide, "Improved allocation API": the compiler refuses anything else.
        if start % self.bank:
            raise NkiValidationError(
                "psum-address",
                f"address={address!r}: byte {start} is not the start of a PSUM bank; an address in "
                f"PSUM is a multiple of {self.bank} (bank number times bytes of a bank).",
            )
        return partition, start
