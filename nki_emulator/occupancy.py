"""Which tiles lie where in SBUF, once a kernel has chosen an address itself.

Tiles may then share bytes and partitions may differ in what they hold, so who is on given bytes and
how many bytes are in use takes more than a list of gaps. Kernels that place everything themselves
have many hundreds of live tiles; neither question walks through all of them.
"""

from collections import defaultdict

import numpy as np

_BUCKET = 4096  # bytes; a tile is looked up by the buckets that it touches


class Occupancy:
    """The regions of a memory, by their bytes; ``capacity`` is bytes of a partition."""

    def __init__(self, capacity, regions):
        self.capacity = capacity
        self._buckets = defaultdict(dict)
        # Bytes in use change at the first partition of a tile only: how many tiles are on each byte
        # of those partitions.
        self._tiles_on = {}
        self._used = {}
        for region in regions:
            self.add(region)

    @property
    def used(self):
        """Bytes in use on the partition with most of them; bytes that tiles share count once."""
        return max(self._used.values(), default=0)

    def add(self, region):
        if region.first_partition not in self._tiles_on:
            self._watch(region.first_partition)
        for bucket in self._buckets_of(region):
            bucket[region.number] = region
        for partition, tiles_on in self._tiles_on.items():
            if region.first_partition <= partition < region.last_partition:
                self._count(partition, tiles_on, region)

    def remove(self, region):
        for bucket in self._buckets_of(region):
            del bucket[region.number]
        for partition, tiles_on in self._tiles_on.items():
            if region.first_partition <= partition < region.last_partition:
                tiles = tiles_on[region.start : region.end]
                tiles -= 1
                self._used[partition] -= tiles.size - int(np.count_nonzero(tiles))

    def overlapping(self, region):
        """The regions that have bytes in common with ``region``, oldest first."""
        found = {}
        for bucket in self._buckets_of(region):
            found.update(bucket)
        return [found[number] for number in sorted(found) if region.overlaps(found[number])]

    def _buckets_of(self, region):
        for index in range(region.start // _BUCKET, (region.end - 1) // _BUCKET + 1):
            yield self._buckets[index]

    def _watch(self, partition):
        """Start to count the bytes in use on a partition."""
        tiles_on = self._tiles_on[partition] = np.zeros(self.capacity, np.int32)
        self._used[partition] = 0
        known = {}
        for bucket in self._buckets.values():
            known.update(bucket)
        for region in known.values():
            if region.first_partition <= partition < region.last_partition:
                self._count(partition, tiles_on, region)

    def _count(self, partition, tiles_on, region):
        tiles = tiles_on[region.start : region.end]
        self._used[partition] += tiles.size - int(np.count_nonzero(tiles))
        tiles += 1
