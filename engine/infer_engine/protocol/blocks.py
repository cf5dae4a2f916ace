"""The KV pool block by block, in runs."""

from msgspec import UNSET, Struct, UnsetType

from infer_engine.protocol.words import PROTOCOL_VERSION, BlockState


class BlockRun(Struct, frozen=True, gc=False):
    """``count`` neighbouring blocks from ``first`` with equal state, owners and reference count."""

    first: int
    count: int
    state: BlockState
    owners: tuple[str, ...] = ()
    refs: int = 0
    #: Of cached ones, the quarter (1 to 4) of the order in which they are given away: 1 goes first.
    evict_quarter: int | UnsetType = UNSET


class Blocks(Struct, frozen=True, kw_only=True):
    version: int = PROTOCOL_VERSION
    simulated: bool = False
    replica: str
    block_size: int
    total: int
    blocks: list[BlockRun]
