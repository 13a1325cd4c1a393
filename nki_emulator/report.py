"""How much SBUF and PSUM a kernel used, and for what: the data behind `memory_report`."""

from dataclasses import dataclass

from .errors import SourceLine

# Below the table: what these numbers are not.
NOTE = (
    "This is the emulator's placement, not the compiler's. Here a tile lives until Python drops "
    "its last view, and one without an address= has its bytes on all partitions to itself. The "
    "compiler decides on order, lifetimes and places itself: its peak may be lower or higher."
)


@dataclass(frozen=True)
class TileUse:
    """A tile that was alive at the peak.

    ``bytes`` of each of its ``partitions``, which start at ``partition``, at byte ``address``;
    ``line`` is the kernel line that allocated it.
    """

    name: str
    dtype: str
    shape: tuple
    bytes: int
    partition: int
    address: int
    line: SourceLine | None

    @property
    def partitions(self):
        """Partitions that it covers."""
        return self.shape[0]


@dataclass(frozen=True)
class MemoryUse:
    """One memory of one program: ``peak`` of ``capacity`` bytes a partition, and the tiles then."""

    memory: str
    program: int
    peak: int
    capacity: int
    tiles: tuple

    def __str__(self):
        share = 100 * self.peak / self.capacity
        count = f"{len(self.tiles)} tile{'' if len(self.tiles) == 1 else 's'}"
        lines = [
            f"{self.memory}, program {self.program}: {self.peak} of {self.capacity} bytes a "
            f"partition ({share:.0f} %), {count} at the peak"
        ]
        if self.tiles:
            lines.append(f"    {'bytes':>7} {'address':>7}  tile")
        for tile in self.tiles:
            name = f"{tile.name} " if tile.name else ""
            lines.append(
                f"    {tile.bytes:>7} {tile.address:>7}  {name}{tile.dtype}{list(tile.shape)} "
                f"at {tile.line}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class MemoryReport:
    """Peak memory of a kernel's launch; ``str()`` gives a table.

    ``sbuf`` and ``psum`` hold one :class:`MemoryUse` a program, in the order of the programs.
    """

    kernel: str
    target: str
    sbuf: tuple
    psum: tuple

    @classmethod
    def of(cls, kernel, sessions):
        """The report of a launch whose memories were watched."""
        return cls(
            kernel,
            sessions[0].target.name,
            tuple(_use(session.sbuf, session.program) for session in sessions),
            tuple(_use(session.psum, session.program) for session in sessions),
        )

    def __str__(self):
        uses = [use for pair in zip(self.sbuf, self.psum) for use in pair]
        return "\n".join([f"{self.kernel} on {self.target}", *map(str, uses), NOTE])


def _use(memory, program):
    tiles = sorted(memory.at_peak, key=lambda tile: (-tile.bytes, tile.address))
    return MemoryUse(memory.name, program, memory.peak, memory.capacity, tuple(tiles))
