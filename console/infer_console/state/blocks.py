"""One replica's block map, patched by runs of changed blocks."""

from array import array
from collections.abc import Iterable

from infer_engine.protocol import BlockRun

from infer_console.state.picture import CACHED, FREE, NO_OWNER, USED, BlockMap

#: A pool beyond this is cut: a map that nobody can draw must not take the console's memory.
MAX_BLOCKS = 1 << 20
MAX_REFS = 0xFFFF
#: Owner names kept before the table is swept of those that own nothing any more.
SWEEP_AT = 256

_KINDS = {"free": FREE, "cached": CACHED, "used": USED}


def _within(first: int, count: int, size: int) -> range:
    """The blocks of a run that are in the pool, in its order."""
    if count >= 0:
        return range(max(0, first), min(size, first + count))
    return range(min(size - 1, first), max(-1, first + count), -1)


class BlockTable:
    """Mutable arrays behind a ``BlockMap``. ``picture()`` returns the same map until something changes."""

    __slots__ = (
        "_block_size",
        "_evict_quarter",
        "_index",
        "_kinds",
        "_owner",
        "_owners",
        "_picture",
        "_refs",
        "_sweep_at",
    )

    def __init__(self, total: int, block_size: int) -> None:
        self._block_size = block_size
        self._kinds = bytearray()
        self._evict_quarter = b""
        self._owner: array[int] = array("H")
        self._refs: array[int] = array("H")
        self._owners: list[str] = []
        self._index: dict[str, int] = {}
        self._sweep_at = SWEEP_AT
        self._picture: BlockMap | None = None
        self.resize(total, block_size)

    @property
    def total(self) -> int:
        return len(self._kinds)

    def resize(self, total: int, block_size: int) -> None:
        """Cut or extend to ``total`` blocks; new ones are free until a run says otherwise."""
        total = max(0, min(total, MAX_BLOCKS))
        if total == len(self._kinds) and block_size == self._block_size:
            return
        more = total - len(self._kinds)
        if more > 0:
            self._kinds.extend(bytes([FREE]) * more)
            self._owner.extend(array("H", [NO_OWNER]) * more)
            self._refs.extend(array("H", [0]) * more)
        else:
            del self._kinds[total:], self._owner[total:], self._refs[total:]
        self._block_size = block_size
        self._picture = None

    def apply(self, runs: Iterable[BlockRun]) -> None:
        for run in runs:
            first, end = max(0, run.first), min(run.first + run.count, len(self._kinds))
            count = end - first
            if count <= 0:
                continue
            owner = self._owner_index(run.owners[0]) if run.owners else NO_OWNER
            refs = max(0, min(run.refs, MAX_REFS))
            self._kinds[first:end] = bytes([_KINDS[run.state]]) * count
            self._owner[first:end] = array("H", [owner]) * count
            self._refs[first:end] = array("H", [refs]) * count
        self._picture = None

    def order(self, eviction: list[int]) -> None:
        """The order in which cached blocks go, as pairs of a first block and a count; see ReplicaFrame."""
        size = len(self._kinds)
        runs = [_within(eviction[at], eviction[at + 1], size) for at in range(0, len(eviction) - 1, 2)]
        total = sum(len(run) for run in runs)
        quarters = bytearray(size)
        place = 0
        for run in runs:
            while run:
                quarter = 1 + place * 4 // total
                part = run[: max(1, -(-quarter * total // 4) - place)]
                low = min(part[0], part[-1])
                quarters[low : low + len(part)] = bytes([quarter]) * len(part)
                place += len(part)
                run = run[len(part) :]
        self._evict_quarter = bytes(quarters)
        self._picture = None

    def picture(self) -> BlockMap:
        if self._picture is None:
            self._picture = BlockMap(
                total=len(self._kinds),
                block_size=self._block_size,
                kinds=bytes(self._kinds),
                owner=self._owner[:],
                refs=self._refs[:],
                owners=tuple(self._owners),
                evict_quarter=self._evict_quarter if len(self._evict_quarter) == len(self._kinds) else b"",
            )
        return self._picture

    def _owner_index(self, name: str) -> int:
        known = self._index.get(name)
        if known is not None:
            return known
        if len(self._owners) >= self._sweep_at:
            self._sweep()
        if len(self._owners) >= NO_OWNER:
            return NO_OWNER  # more owners than the map can name: shown as used, owner unknown
        self._index[name] = len(self._owners)
        self._owners.append(name)
        return self._index[name]

    def _sweep(self) -> None:
        """Forget owners without blocks; live ones keep their order, so that their colours stay."""
        live = sorted(set(self._owner) - {NO_OWNER})
        moved = {old: new for new, old in enumerate(live)}
        moved[NO_OWNER] = NO_OWNER
        self._owner = array("H", [moved[old] for old in self._owner])
        self._owners = [self._owners[old] for old in live]
        self._index = {name: index for index, name in enumerate(self._owners)}
        self._sweep_at = min(NO_OWNER, max(SWEEP_AT, 2 * len(self._owners)))
