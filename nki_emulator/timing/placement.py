"""Where tiles lie: addresses as a compiler could choose them, from first use to last use.

The emulator frees a tile when Python forgets it and takes the first gap, which reuses memory at
once. A compiler knows the last use and has no reason to hurry: here a tile goes to the memory that
has been free the longest, so that the wait for its previous owner is short. Tiles whose kernel
chose an address keep it. When the memory is too full for that, the emulator's own address is taken.
"""

from dataclasses import dataclass

from ..regions import MemoryRegion, is_on_chip


@dataclass(slots=True)
class Tile:
    """A tile's life: indices of the first and the last step that use it, and its box."""

    storage: int
    memory: object
    partitions: tuple
    size: int
    address: int
    explicit: bool
    first: int
    last: int


def takeovers(trace, steps, hardware):
    """{storage: storages whose memory it takes over} for the tiles of one program's trace."""
    return place(
        lives(steps, _tiles(trace)),
        {
            MemoryRegion.sbuf: hardware.sbuf_partition,
            MemoryRegion.psum: hardware.psum_bank * hardware.psum_banks,
        },
        {MemoryRegion.sbuf: None, MemoryRegion.psum: int(hardware.psum_bank)},
    )


def _tiles(trace):
    tiles = {}
    for record in trace:
        for operand in (*record.writes, *record.reads):
            if operand.storage not in tiles and is_on_chip(operand.buffer):
                tiles[operand.storage] = Tile(
                    operand.storage, operand.buffer,
                    (operand.partition, operand.partition + operand.partitions),
                    operand.tile_bytes, operand.address, operand.explicit, -1, -1,
                )  # fmt: skip
    return tiles


def lives(steps, tiles):
    """First and last use of every tile of ``tiles`` (storage number -> Tile), in program order."""
    for index, step in enumerate(steps):
        for operand in (*step.writes, *step.reads):
            tile = tiles.get(operand.storage)
            if tile is not None:
                if tile.first < 0:
                    tile.first = index
                tile.last = index
    return [tile for tile in tiles.values() if tile.first >= 0]


def place(tiles, capacities, banks):
    """Give every tile an address; returns {storage: set of storages whose memory it takes over}.

    ``capacities`` and ``banks`` map a memory to its bytes a partition and to the size that a tile
    must not straddle (None: no such rule).
    """
    inherited = {}
    for memory, capacity in capacities.items():
        mine = sorted((t for t in tiles if t.memory is memory), key=lambda t: t.first)
        inherited.update(_place_memory(mine, int(capacity), banks[memory]))
    return inherited


def _place_memory(tiles, capacity, bank):
    placed = []  # every tile placed so far that still matters, as owners of memory
    cursor = 0
    inherited = {}
    for tile in tiles:
        live = [other for other in placed if other.last >= tile.first]
        if not tile.explicit:
            address = _next_fit(tile, live, cursor, capacity, bank)
            if address is not None:
                tile.address = address
                cursor = address + tile.size
        owners = set()
        for other in placed:
            if other.last < tile.first and _overlap(tile, other):
                owners.add(other.storage)
        inherited[tile.storage] = owners
        # An owner whose memory is now the tile's own matters no longer.
        placed = [
            other for other in placed if other.storage not in owners or not _covers(tile, other)
        ]
        placed.append(tile)
    return inherited


def _next_fit(tile, live, cursor, capacity, bank):
    """The first free address from ``cursor`` on, going round once; None if there is none."""
    taken = sorted(
        (other.address, other.address + other.size)
        for other in live
        if other.partitions[0] < tile.partitions[1] and tile.partitions[0] < other.partitions[1]
    )
    for start, stop in ((cursor, capacity), (0, capacity)):
        position = _aligned(start, tile.size, bank)
        for low, high in taken:
            if high <= position:
                continue
            if position + tile.size <= low:
                break
            position = _aligned(high, tile.size, bank)
        if position + tile.size <= stop:
            return position
    return None


def _aligned(position, size, bank):
    position = -(-position // 4) * 4
    if bank and size <= bank and position // bank != (position + size - 1) // bank:
        return -(-position // bank) * bank
    if bank and size > bank:
        return -(-position // bank) * bank
    return position


def _overlap(one, other):
    return (
        one.address < other.address + other.size
        and other.address < one.address + one.size
        and one.partitions[0] < other.partitions[1]
        and other.partitions[0] < one.partitions[1]
    )


def _covers(one, other):
    return (
        one.address <= other.address
        and other.address + other.size <= one.address + one.size
        and one.partitions[0] <= other.partitions[0]
        and other.partitions[1] <= one.partitions[1]
    )
