"""Which sequences leave a draining replica now, and where to. Pure: what is there in, moves out.

A sequence that goes on elsewhere must have its KV computed anew there. All at once, these would hold up those
who decode there, and fill a pool so far that its sequences preempt one another. So a sequence stays where it
runs until another replica has room for it below its mark, and each of those gets only so much to compute at a
time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from infer_engine.protocol import Tier

#: A replica is given more until what it has yet to prefill fills so many of its steps.
MOST_STEPS_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Leaver:
    """A sequence that is to go on elsewhere."""

    id: str
    tier: Tier
    arrived_s: float
    #: Tokens whose KV must be computed again, and the blocks that they and the next token take.
    tokens: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Room:
    """A replica that takes sequences, those on their way to it included."""

    replica: str
    #: Tokens that it has yet to prefill, and how many it computes per step at most.
    prefill_tokens: int
    token_budget: int
    #: Places in its batch that are not spoken for.
    free_slots: int
    #: Blocks in use or promised, the marks up to which each tier is admitted, and all there are.
    taken_blocks: int
    admit_limit: int
    batch_limit: int
    total_blocks: int

    def mark(self, tier: Tier) -> int:
        return self.batch_limit if tier == "batch" else self.admit_limit

    def fits(self, leaver: Leaver) -> bool:
        """Admission would let it in without a wait."""
        mark = self.mark(leaver.tier) if self.taken_blocks else self.total_blocks
        return self.free_slots > 0 and self.taken_blocks + leaver.blocks <= mark

    def is_due(self, leaver: Leaver) -> bool:
        """It would not wait for the prefills of others for long; the first of all is always due."""
        ahead = self.prefill_tokens + leaver.tokens
        return not self.prefill_tokens or ahead <= MOST_STEPS_AHEAD * self.token_budget

    def with_one_more(self, leaver: Leaver) -> "Room":
        return replace(
            self,
            prefill_tokens=self.prefill_tokens + leaver.tokens,
            free_slots=self.free_slots - 1,
            taken_blocks=self.taken_blocks + leaver.blocks,
        )


def next_moves(
    leavers: Iterable[Leaver], rooms: Sequence[Room], *, paced: bool = True
) -> list[tuple[Leaver, str]]:
    """Who may leave now and for which replica, the interactive first, then by arrival; one that has no room
    lets smaller ones pass. Not ``paced``: all who would leave in the end if nothing else changed."""
    open_rooms = {room.replica: room for room in rooms}
    moves: list[tuple[Leaver, str]] = []
    for leaver in sorted(leavers, key=lambda each: (each.tier == "batch", each.arrived_s, each.id)):
        fitting = [
            room for room in open_rooms.values() if room.fits(leaver) and (room.is_due(leaver) or not paced)
        ]
        if not fitting:
            continue
        # The emptiest first, so that several share the work.
        room = min(fitting, key=lambda each: (each.prefill_tokens / each.token_budget, _fullness(each)))
        open_rooms[room.replica] = room.with_one_more(leaver)
        moves.append((leaver, room.replica))
    return moves


def _fullness(room: Room) -> float:
    return room.taken_blocks / max(1, room.total_blocks)
