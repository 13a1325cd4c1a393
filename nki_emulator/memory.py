"""SBUF and PSUM as finite memories: who owns which bytes of a partition.

Addresses are bytes within a partition. A tile occupies the same bytes in every partition it spans.
Tiles that the emulator places start on partition 0 and keep their bytes on all partitions to
themselves: the compiler may pack small tiles tighter, so the emulator is on the safe side. Tiles
are placed first fit. A tile's bytes are free again when the last view of it dies, which Python's
reference counting makes immediate.

A kernel may give an address itself, ``address=(partition, byte)``; two live tiles that share bytes
of a partition are then an error.
"""

import bisect
import weakref

from .errors import NkiCapacityError, NkiValidationError


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


class Memory:
    """First-fit allocator over the bytes of a partition of SBUF.

    ``name`` is used in messages, ``capacity`` and ``alignment`` are bytes of a partition, ``peak``
    the largest number of bytes of a partition that were ever in use.
    """

    def __init__(self, name, capacity, alignment, partitions):
        self.name = name
        self.capacity = capacity
        self.alignment = alignment
        self.partitions = partitions
        self.live = {}
        self.used = 0
        self.peak = 0
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
        if address is not None:
            self._require_free(region)
        self.live[number] = region
        if address is not None:
            self._irregular = True
            self._rebuild_gaps()
        storage.partition = partition
        storage.address = start
        storage.explicit = address is not None
        self.used += nbytes
        self.peak = max(self.peak, self.used)

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

    def _require_free(self, region):
        for other in self.live.values():
            if region.overlaps(other):
                mine, owner = region.storage(), other.storage()
                raise NkiCapacityError(
                    "address-overlap",
                    f"{mine.describe()} at partitions {region.first_partition}.."
                    f"{region.last_partition - 1}, bytes {region.start}..{region.end - 1} of "
                    f"{self.name} overlaps "
                    f"{owner.describe() if owner is not None else 'a live tile'} at partitions "
                    f"{other.first_partition}..{other.last_partition - 1}, bytes "
                    f"{other.start}..{other.end - 1}, which is still in use.",
                )

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
        self.used -= region.end - region.start
        if self._irregular:
            self._rebuild_gaps()
            return
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
        if nbytes <= self.bank and start // self.bank != (start + nbytes - 1) // self.bank:
            raise NkiCapacityError(
                "psum-bank",
                f"address={address!r}: bytes {start}..{start + nbytes - 1} cross the boundary of a "
                f"PSUM bank ({self.bank} bytes); a PSUM tile must fit in one bank.",
            )
        return partition, start
