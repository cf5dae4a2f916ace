"""One replica's block map, patched by runs of changed blocks."""

from array import array
from collections.abc import Iterable

from infer_engine.protocol import IDLE_STEPS_S, BlockRun
from msgspec import UnsetType

from infer_console.state.picture import CACHED, FREE, NO_OWNER, USED, BlockMap

#: A pool beyond this is cut: a map that nobody can draw must not take the console's memory.
MAX_BLOCKS = 1 << 20
MAX_REFS = 0xFFFF
#: Owner names kept before the table is swept of those that own nothing any more.
SWEEP_AT = 256

_KINDS = {"free": FREE, "cached": CACHED, "used": USED}


class BlockTable:
    """Mutable arrays behind a ``BlockMap``. ``picture()`` returns the same map until something changes."""

    __slots__ = (
        "_block_size",
        "_evict_quarters",
        "_idle_steps",
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
        self._evict_quarters = bytearray()
        self._idle_steps = bytearray()
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
            self._evict_quarters.extend(bytes(more))
            self._idle_steps.extend(bytes(more))
            self._owner.extend(array("H", [NO_OWNER]) * more)
            self._refs.extend(array("H", [0]) * more)
        else:
            del self._kinds[total:], self._owner[total:], self._refs[total:]
            del self._evict_quarters[total:], self._idle_steps[total:]
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
            told = run.evict_quarter
            quarter = 0 if isinstance(told, UnsetType) else max(0, min(told, 4))
            self._evict_quarters[first:end] = bytes([quarter]) * count
            idle_s = run.idle_s
            steps = 0 if isinstance(idle_s, UnsetType) else sum(idle_s >= each for each in IDLE_STEPS_S)
            self._idle_steps[first:end] = bytes([steps]) * count
            self._owner[first:end] = array("H", [owner]) * count
            self._refs[first:end] = array("H", [refs]) * count
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
                evict_quarters=bytes(self._evict_quarters),
                idle_steps=bytes(self._idle_steps),
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
