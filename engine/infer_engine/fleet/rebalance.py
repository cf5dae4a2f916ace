"""Which waiting requests go on waiting elsewhere, where they would run sooner. Pure: what is there in, moves
out.

The router decides by what is true when a request comes. When one replica's sequences turn out longer than
another's, or one has come back empty, requests wait beside room for them. Those go to a replica that would
admit them at once, if their first token comes sooner there by more than MARGIN_STEPS, counted as the router
counts, so that a beginning that is cached where they are is given up only for more than it saves.

So that nothing goes back and forth: a request stays for a while where it came to, twice as long after each
such move; only a replica where nobody waits is gone to, and by few at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from infer_engine.fleet.pacing import Leaver, Room
from infer_engine.fleet.router import Load, cost

#: Steps by which the first token has to come sooner elsewhere.
MARGIN_STEPS = 4.0
#: Seconds that a request stays where it came to at least.
SETTLE_S = 2.0
#: And most times as long, however often it was moved so.
MOST_PATIENCE = 64
#: Requests that leave for one replica at a time.
MOST_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue of ``source``, since ``settled_s`` seconds."""

    source: str
    leaver: Leaver
    settled_s: float
    #: How often it was moved so already.
    moved: int = 0
    #: Of its tokens, those that are probably cached, by replica.
    held_tokens: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def is_settled(self) -> bool:
        return self.settled_s >= SETTLE_S * min(MOST_PATIENCE, 2**self.moved)

    def uncached_tokens(self, replica: str) -> int:
        return max(1, self.leaver.tokens - self.held_tokens.get(replica, 0))


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One move, and by how many steps the first token comes sooner."""

    waiting: Waiting
    to: str
    sooner_steps: float


def rebalance(
    waiting: Iterable[Waiting], loads: Mapping[str, Load], rooms: Sequence[Room]
) -> list[Rebalance]:
    """Who moves now: the interactive first, then by arrival. ``loads`` are those of the replicas that step;
    ``rooms`` of those of them that take requests, with what is on its way to them."""
    idle = {room.replica: room for room in rooms if room.replica in loads and not loads[room.replica].waiting}
    sent: dict[str, int] = {}
    moves: list[Rebalance] = []
    for each in sorted(waiting, key=_turn):
        source = loads.get(each.source)
        if source is None or not each.is_settled:
            continue
        stays = cost(_without(source, each), each.uncached_tokens(each.source))
        best: Rebalance | None = None
        for replica, room in idle.items():
            if replica == each.source or sent.get(replica, 0) >= MOST_AT_ONCE:
                continue
            if not (room.fits(each.leaver) and room.is_due(each.leaver)):
                continue
            sooner = stays - cost(_as_room(loads[replica], room), each.uncached_tokens(replica))
            if sooner > MARGIN_STEPS and (best is None or sooner > best.sooner_steps):
                best = Rebalance(each, replica, sooner)
        if best is not None:
            idle[best.to] = idle[best.to].with_one_more(each.leaver)
            sent[best.to] = sent.get(best.to, 0) + 1
            moves.append(best)
    return moves


def _turn(each: Waiting) -> tuple[bool, float, str]:
    leaver = each.leaver
    return leaver.tier == "batch", leaver.arrived_s, leaver.id


def _without(load: Load, each: Waiting) -> Load:
    """What stands between the request and its first token where it is: all but itself."""
    tokens = max(0, load.queued_prefill_tokens - each.uncached_tokens(each.source))
    return replace(
        load,
        waiting=max(0, load.waiting - 1),
        queued_prefill_tokens=tokens,
        kv_promised_blocks=max(0, load.kv_promised_blocks - each.leaver.blocks),
        base_steps=None,
    )


def _as_room(load: Load, room: Room) -> Load:
    """With those that are on their way there."""
    return replace(
        load,
        running=load.slots - room.free_slots,
        queued_prefill_tokens=room.prefill_tokens,
        kv_used_blocks=room.taken_blocks,
        kv_promised_blocks=0,
        base_steps=None,
    )
