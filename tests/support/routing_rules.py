"""Other rules by which a router may choose, to compare ours with. Each is a policy as ``router.choose`` is
one."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from infer_engine.fleet.router import Ask, Choice, Load


def round_robin(loads: Sequence[Load], ask: Ask) -> Choice | None:
    """One after the other, whatever they do."""
    with_room = [load for load in loads if not load.is_full]
    if not with_room:
        return None
    return Choice(with_room[ask.turn % len(with_room)].replica, "next", len(loads))


def least_loaded(loads: Sequence[Load], ask: Ask) -> Choice | None:
    """Fewest requests in flight, ties going round."""
    with_room = [load for load in loads if not load.is_full]
    if not with_room:
        return None
    start = ask.turn % len(with_room)
    rotated = [*with_room[start:], *with_room[:start]]
    return Choice(min(rotated, key=_in_flight).replica, "fewest", len(loads))


def _in_flight(load: Load) -> int:
    return load.running + load.waiting


@dataclass
class CacheAware:
    """The rule of SGLang's gateway. Its tree is over text, approximate, and never hears of evictions; here it
    is over block hashes, so it matches in blocks of 16 tokens, and its bound on size is one of blocks.

    The defaults are those of its command line.
    """

    threshold: float = 0.3
    balance_abs: int = 64
    balance_rel: float = 1.5
    block_tokens: int = 16
    most_blocks: int = 2**20
    #: Per hash the replicas that were sent it, the latest last.
    _tree: OrderedDict[bytes, dict[str, None]] = field(default_factory=OrderedDict[bytes, dict[str, None]])

    def __call__(self, loads: Sequence[Load], ask: Ask) -> Choice | None:
        with_room = [load for load in loads if not load.is_full]
        if not with_room:
            return None
        in_flight = {load.replica: _in_flight(load) for load in with_room}
        least, most = min(in_flight.values()), max(in_flight.values())
        start = ask.turn % len(with_room)
        rotated = [load.replica for load in (*with_room[start:], *with_room[:start])]
        chosen = min(rotated, key=in_flight.__getitem__)
        why = "fewest"
        if not (most - least > self.balance_abs and most > self.balance_rel * least):
            matched, replica = self._match(ask.chain)
            if replica in in_flight and matched * self.block_tokens > self.threshold * ask.tokens:
                chosen, why = replica, "matched"
        self._insert(chosen, ask.chain)
        return Choice(chosen, why, len(loads))

    def _match(self, chain: Sequence[bytes]) -> tuple[int, str]:
        """The deepest node on the way, and who was sent it last."""
        depth, replica = 0, ""
        for hash_ in chain:
            holders = self._tree.get(hash_)
            if not holders:
                break
            depth, replica = depth + 1, next(reversed(holders))
        return depth, replica

    def _insert(self, replica: str, chain: Sequence[bytes]) -> None:
        for hash_ in reversed(chain):
            holders = self._tree.setdefault(hash_, {})
            holders.pop(replica, None)
            holders[replica] = None
            self._tree.move_to_end(hash_)
        while len(self._tree) > self.most_blocks:
            self._tree.popitem(last=False)
