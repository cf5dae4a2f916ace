"""What a server counts its KV in: blocks, or tokens where a block is one (llama.cpp has no blocks)."""

from collections.abc import Iterable

from infer_engine.protocol import Kv

from infer_console.state.picture import ReplicaPicture
from infer_console.view.row import Shown


def kv_unit(kv: Kv) -> Shown:
    return "tok" if kv.block_size == 1 else "blk"


def in_tokens(replicas: Iterable[ReplicaPicture]) -> bool:
    """Whether all count in tokens: different units have one column."""
    return {each.status.kv.block_size for each in replicas} == {1}
