"""The KV pool block by block, in runs."""

from msgspec import UNSET, Struct, UnsetType

from infer_engine.protocol.words import PROTOCOL_VERSION, BlockState

#: Seconds after which a cached block counts as idle for longer: the steps of ``BlockRun.idle_s``.
IDLE_STEPS_S = (0, 10, 60, 300)


class BlockRun(Struct, frozen=True, gc=False):
    """``count`` neighbouring blocks from ``first`` with equal state, owners and reference count."""

    first: int
    count: int
    state: BlockState
    owners: tuple[str, ...] = ()
    refs: int = 0
    #: Of cached ones, the quarter (1 to 4) of the order in which they are given away: 1 goes first.
    evict_quarter: int | UnsetType = UNSET
    #: Of cached ones, for how long nobody has held them: at least so many seconds, and less than the next of
    #: IDLE_STEPS_S. In steps, so that a map in which nothing happens stays as it is.
    idle_s: int | UnsetType = UNSET


class Blocks(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    replica: str
    block_size: int
    total: int
    blocks: list[BlockRun]
