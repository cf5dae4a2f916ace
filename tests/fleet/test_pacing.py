"""Who leaves a draining replica now: as a function of facts alone."""

from typing import Any

from infer_engine.fleet.pacing import MOST_STEPS_AHEAD, Leaver, Room, next_moves
from infer_engine.protocol import Tier


def leaver(
    name: str, *, tier: Tier = "interactive", tokens: int = 64, blocks: int = 5, at: float = 0
) -> Leaver:
    return Leaver(id=name, tier=tier, arrived_s=at, tokens=tokens, blocks=blocks)


def room(replica: str = "r1", **changes: Any) -> Room:
    given: dict[str, Any] = {
        "prefill_tokens": 0,
        "token_budget": 64,
        "free_slots": 8,
        "taken_blocks": 10,
        "admit_limit": 90,
        "batch_limit": 65,
        "total_blocks": 100,
    }
    return Room(replica=replica, **(given | changes))


def names(leavers: list[Leaver], rooms: list[Room], *, paced: bool = True) -> list[tuple[str, str]]:
    return [(each.id, replica) for each, replica in next_moves(leavers, rooms, paced=paced)]


def test_the_interactive_go_first_then_by_arrival() -> None:
    many = [leaver("c", at=2), leaver("x", tier="batch"), leaver("a", at=1), leaver("y", tier="batch", at=-1)]
    assert [name for name, _ in names(many, [room()])] == ["a", "c", "y", "x"]


def test_a_replica_gets_only_so_much_to_compute_at_a_time() -> None:
    many = [leaver(str(number), at=number) for number in range(20)]
    assert len(names(many, [room(free_slots=20)])) == MOST_STEPS_AHEAD
    assert names(many, [room(prefill_tokens=64 * MOST_STEPS_AHEAD)]) == []
    assert len(names(many, [room(free_slots=20)], paced=False)) == 16, "all that fit below the mark"
    assert len(names(many, [room("r1"), room("r2")])) == 2 * MOST_STEPS_AHEAD, "two take twice as much"


def test_a_sequence_longer_than_the_pace_goes_when_nothing_else_is_computed() -> None:
    long = leaver("long", tokens=10_000, blocks=50)
    assert names([long], [room()]) == [("long", "r1")]
    assert names([long], [room(prefill_tokens=1)]) == []


def test_nobody_leaves_for_a_replica_without_room_below_the_mark() -> None:
    assert names([leaver("a")], [room(taken_blocks=86)]) == []
    assert names([leaver("a", tier="batch")], [room(taken_blocks=61)]) == []
    assert names([leaver("a")], [room(free_slots=0)]) == []
    assert names([leaver("a")], []) == []
    assert names([leaver("big", blocks=95)], [room(taken_blocks=0)]) == [("big", "r1")], "alone it may"


def test_one_without_room_lets_smaller_ones_pass() -> None:
    assert names([leaver("big", blocks=85), leaver("small", at=1)], [room()]) == [("small", "r1")]
